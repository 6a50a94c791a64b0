"""Blocks by their height, and the newest one, as a chain's follower needs them.

Rule of this file: nobody is asked twice for a block that is known. Where an agreement of n is asked
for, n endpoints have to give a block alike (`atoll.chain.agreement`).
"""

from __future__ import annotations

import time

from atoll.chain.agreement import Agreement
from atoll.chain.lagging import HeadGrowth, pass_over_lagging
from atoll.chain.response_checks import BlockHeader, header, header_at, optional
from atoll.chain.rpc import FailoverProvider
from atoll.errors import RpcUnavailable
from atoll.protocol.types import Digest

KEPT_HEADERS = 64
"""Of blocks seen as the newest: the confirmations of most chains, and the polls between."""
LOOKS = 3
"""How often one block is asked for: behind one URL may stand nodes that are not equally far."""


class HeaderReader:
    """Reads blocks.

    Args:
        agreement: endpoints that have to give a block alike.
    """

    def __init__(self, provider: FailoverProvider, agreement: int = 1) -> None:
        self._provider = provider
        self._agreement = Agreement(provider, agreement) if agreement > 1 else None
        self._newest: BlockHeader | None = None
        self._newest_at = 0.0
        self._growth = HeadGrowth()
        self._seen: dict[Digest, BlockHeader] = {}

    async def header(self, number: int) -> BlockHeader | None:
        """The block of that height, or None where the chain does not reach up to it.

        Nobody is asked for a block that the newest one names, parent by parent, and that was the
        newest itself when it was seen: who follows a chain has nearly all of them.

        Null is believed of an endpoint only whose newest block is lower: what it knows of the chain
        then fits together.

        Raises:
            RpcUnavailable: no endpoint answers, each contradicts itself, or too few agree.
        """

        return self._named(number) or await self._ask(number)

    def _named(self, number: int) -> BlockHeader | None:
        """The block of that height which the newest names, if every one between was seen."""
        block = self._newest
        while block is not None and block.ref.number > number:
            parent = self._seen.get(block.parent)
            # Blocks of an endpoint that makes them up may name one another in a circle.
            is_below = parent is not None and parent.ref.number < block.ref.number
            block = parent if is_below else None
        return block if block is not None and block.ref.number == number else None

    async def _ask(self, number: int) -> BlockHeader | None:
        if self._agreement is not None:
            return await self._ask_for_agreed(self._agreement, number)
        for _ in range(LOOKS):
            question = ("eth_getBlockByNumber", [hex(number), False])
            block = await self._provider.ask(*question, optional(header_at(number)))
            if block is not None or (await self.newest()).ref.number < number:
                return block
        raise RpcUnavailable(
            f"the RPC endpoint says that it has no block {number}, and has later ones",
            next_step="use another RPC endpoint: this one has dropped old blocks, or answers from "
            "nodes that disagree",
        )

    async def _ask_for_agreed(self, agreement: Agreement, number: int) -> BlockHeader | None:
        for _ in range(LOOKS):
            try:
                return await agreement.block(number)
            except RpcUnavailable as error:
                failure = error
            if (await self.newest()).ref.number < number:
                return None
        raise failure

    async def newest(self, within: float = 0.0) -> BlockHeader:
        """The newest block, as it was at most `within` seconds ago. Raises RpcUnavailable.

        Of an endpoint that is behind another one, it is the other's.
        """
        if self._newest is not None and time.monotonic() - self._newest_at < within:
            return self._newest
        asked_at = time.monotonic()
        if self._agreement is not None:
            newest = await self._agreement.newest()
        else:
            newest = await self._growing(asked_at)
        self._remember(newest, asked_at)
        return newest

    async def _growing(self, asked_at: float) -> BlockHeader:
        """The newest block of the first endpoint that is not behind others."""
        newest = await self._latest()
        if self._growth.is_doubtful(newest.ref, asked_at):
            if await pass_over_lagging(self._provider, newest.ref):
                newest = await self._latest()
            self._growth.note(newest.ref, asked_at)
        return newest

    def _remember(self, newest: BlockHeader, asked_at: float) -> None:
        self._newest, self._newest_at = newest, asked_at
        self._seen[newest.ref.hash] = newest
        if len(self._seen) > KEPT_HEADERS:
            del self._seen[next(iter(self._seen))]

    async def _latest(self) -> BlockHeader:
        return await self._provider.ask("eth_getBlockByNumber", ["latest", False], header)
