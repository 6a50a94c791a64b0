"""Whether somebody else acts with our key: a second service, or this one's folder on two machines.

Rule of this file: pure. Two services with one key send each other's gateway away, take each other's
nonces and, without one journal, may sign two things for one slot. What the chain says that the
account did, by a transaction that our queue never signed, is somebody else's act.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from atoll.chain.indexed import Indexed
from atoll.law import events as ev
from atoll.law.words import Address

ACTS: Final = (
    ev.GatewayAnnounced, ev.Seated, ev.Enrolled, ev.Ready, ev.Committed, ev.Revealed, ev.Said,
    ev.Balloted,
)  # fmt: skip
"""What the contracts take of the account alone, and only a service sends. A seat may be stopped by
somebody else, in a game; pay and stake may be moved from a wallet.
"""


@dataclass
class Twin:
    """Remembers the newest act that was not ours.

    Args:
        is_ours: whether our queue signed a transaction, by its hash in hex.
        wait_seconds: of the chain's clock, without such an act, until we are taken to be alone.
        since: unix time of the chain before which acts are ours: the journal was moved here then.
    """

    me: Address
    is_ours: Callable[[str], bool]
    wait_seconds: int
    since: float = 0.0
    _last: Indexed | None = None

    def see(self, items: Iterable[Indexed]) -> None:
        """Events as they are told, oldest first."""
        for item in items:
            event = item.event
            if not isinstance(event, ACTS) or event.account != self.me:
                continue
            if item.block.timestamp > self.since and not self.is_ours(
                f"0x{item.transaction.hex()}"
            ):
                self._last = item

    def why_waits(self, now: int, block: int) -> str:
        """Why it is better not to act at that second and height; empty where we are alone."""
        last = self._last
        if last is None or now - last.block.timestamp >= self.wait_seconds:
            return ""
        ago = block - last.block.number
        left = self.wait_seconds - (now - last.block.timestamp)
        return (
            f"its key acted {ago} blocks ago ({type(last.event).__name__}, transaction "
            f"0x{last.transaction.hex()}) and not from this folder; it waits until nobody else has "
            f"for {self.wait_seconds} s, {left} s more"
        )
