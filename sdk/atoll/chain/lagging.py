"""Which endpoints are behind others: nodes that have lost their peers, or have yet to catch up.

Such a one answers usefully, and would be asked first for ever. Rule of this file: an endpoint is
passed over for one that has its newest block, too, and a later one: never for what one says of
itself, which may be anything.
"""

from __future__ import annotations

from typing import Final

import structlog

from atoll.chain.response_checks import BlockHeader, header_at, optional
from atoll.chain.rpc import FailoverProvider
from atoll.chain.urls import redact
from atoll.protocol.types import BlockRef

log = structlog.get_logger("atoll.chain.lagging")

LOOK_SECONDS: Final = 30.0
"""So often the first one is compared with others: one that is behind may go on, as far behind."""
FAR_BLOCKS: Final = 5
"""So many blocks two honest endpoints may be apart."""


class HeadGrowth:
    """Remembers how far the newest block had got, and when others were looked at; seconds are the
    caller's clock's.
    """

    def __init__(self) -> None:
        self._highest = -1
        self._looked_at: float | None = None

    def is_doubtful(self, newest: BlockRef, now: float) -> bool:
        """Whether it is time to look if others are further."""
        if self._looked_at is None:
            self._looked_at = now
        self._highest = max(self._highest, newest.number)
        is_due = now - self._looked_at >= LOOK_SECONDS
        return is_due or newest.number + FAR_BLOCKS < self._highest

    def note(self, newest: BlockRef, now: float) -> None:
        """Others were looked at; counts from this block on."""
        self._highest, self._looked_at = newest.number, now


async def pass_over_lagging(provider: FailoverProvider, newest: BlockRef) -> bool:
    """Has those asked last for a while who end about there, if another one goes on from there.

    Args:
        newest: the newest block of whoever was asked.

    Returns:
        whether one does.
    """

    async def blocks(number: int) -> dict[str, BlockHeader | None]:
        question = ("eth_getBlockByNumber", [hex(number), False])
        return await provider.ask_all(*question, optional(header_at(number)), bool)

    if len(provider.urls) < 2:
        return False
    later = await blocks(newest.number + FAR_BLOCKS)
    same = await blocks(newest.number)
    goes_on = (same.get(url) for url, block in later.items() if block is not None)
    if not any(block is not None and block.ref == newest for block in goes_on):
        return False
    for url, block in later.items():
        if block is None:
            log.warning("an endpoint is behind", url=redact(url), block=newest.number)
            provider.distrust(url, f"it is behind at block {newest.number}, and others go on")
    return True
