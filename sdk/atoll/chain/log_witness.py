"""Logs on disk are held against the words of state, and mended where they are others.

Rule of this file: what was given out is what the state said. Of a difference the first block that
has it is searched for by halves, and only its receipts are read; where no endpoint has the state of
blocks so old, receipts are read one block after another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain as joined

import structlog

from atoll.chain.decode import RawLog
from atoll.chain.log_heads import NO_JOB, LogKey
from atoll.chain.log_store import LogStore
from atoll.chain.logs import ChainTurned, LogReader
from atoll.errors import RpcUnavailable
from atoll.protocol.types import BlockRef

log = structlog.get_logger("atoll.chain.log_witness")

OTHERS = 64
"""Jobs that nothing was heard of, and that are looked at, too: all of them, so many at a time."""


class StateWitness:
    """Compares what a store has with what the chain's state says of it.

    Args:
        first: the height at which the store begins.
    """

    def __init__(self, reader: LogReader, store: LogStore, first: int) -> None:
        self._reader, self._store, self._first = reader, store, first
        self._turn = 0

    async def settle(self, tip: BlockRef) -> int | None:
        """Has the logs up to the tip be those of which the state has the words.

        Returns:
            None; or the height behind which even what was checked is void, and forgotten.

        Raises:
            ChainTurned: the tip is not the chain's any more.
            RpcUnavailable: no endpoint has what it takes.
        """
        mended, jobs = max(self._store.checked, self._first - 1), self._jobs()
        # Asked anew behind each mend: a node that was making its next block meanwhile has been seen
        # to give that one's state for the hash of its newest, once.
        while wrong := await self._wrong(tip, jobs):
            if mended >= tip.number:
                raise RpcUnavailable(
                    f"what the RPC endpoint says of the state of block {tip.number} changes",
                    next_step="use another RPC endpoint",
                )
            block = await self._first_wrong(wrong, mended, tip)
            if not await self._mend(block, wrong):
                return await self._go_back(wrong)
            mended = block.number
        self._store.note_checked(tip.number)
        return None

    async def _wrong(self, tip: BlockRef, jobs: list[int]) -> list[LogKey]:
        """Whose heads are others than the state says."""
        heads = await self._reader.heads(tip, jobs)
        return [key for key in heads if self._store.head(key, tip.number) != heads[key]]

    def _jobs(self) -> list[int]:
        """Those of new logs, what belongs to none, and some of the others in turn."""
        jobs = self._store.unchecked_jobs() | {NO_JOB}
        others = sorted(self._store.jobs - jobs)
        turned = [*others[self._turn :], *others[: self._turn]][:OTHERS]
        self._turn = (self._turn + OTHERS) % len(others) if len(others) > OTHERS else 0
        return [*sorted(jobs), *turned]

    async def _first_wrong(self, wrong: Collection[LogKey], low: int, tip: BlockRef) -> BlockRef:
        """The first block behind `low` with whose end heads are others than folded."""
        high, without_state = tip, low
        while high.number - max(low, without_state) > 1:
            middle = await self._block((max(low, without_state) + high.number) // 2)
            try:
                is_equal = await self._is_equal(wrong, middle)
            except ChainTurned:
                raise
            except RpcUnavailable:
                without_state = middle.number
                continue
            if is_equal:
                low = middle.number
            else:
                high = middle
        for number in range(low + 1, high.number):
            if set(await self._reader.in_receipts(number)) != set(self._stored(number)):
                return await self._block(number)
        return high

    async def _mend(self, block: BlockRef, wrong: Collection[LogKey]) -> bool:
        """Takes a block's logs from its receipts; whether heads are then as the state says.

        Of the endpoints the first one counts whose receipts lead there.
        """
        stored, failure = set(self._stored(block.number)), None
        for url in self._reader.endpoints():
            try:
                logs = await self._reader.in_receipts(block.number, url)
            except RpcUnavailable as error:
                failure = error
                continue
            self._store.replace(block.number, logs)
            if await self._may_be_equal(wrong, block):
                here = range(block.number, block.number + 1)
                self._reader.note_missing(len(set(logs) - stored), here)
                return True
        if failure is not None:
            raise failure
        return False

    async def _may_be_equal(self, wrong: Collection[LogKey], block: BlockRef) -> bool:
        """Where no endpoint has the state of so old a block, that of the tip decides."""
        try:
            return await self._is_equal(wrong, block)
        except ChainTurned:
            raise
        except RpcUnavailable:
            return True

    async def _go_back(self, wrong: Collection[LogKey]) -> int:
        """Forgets what is behind the last checked block with which the state agrees.

        Raises:
            RpcUnavailable: it agrees with the last one, so that receipts are what is false.
        """
        checked, step = self._store.checked, 1
        block = self._store.tip(below=checked + 1)
        while block is not None and not await self._is_equal(wrong, block):
            block = self._store.tip(below=block.number + 1 - step)
            step *= 2
        to_block = self._first - 1 if block is None else block.number
        if to_block >= checked:
            raise RpcUnavailable(
                "the receipts that the RPC endpoint gives are not those that the chain's state "
                "has the hash of",
                next_step="use another RPC endpoint: this one leaves logs out, or makes them up",
            )
        log.warning("what was read is not what the state says", to_block=to_block, checked=checked)
        self._store.drop_after(to_block)
        return to_block

    async def _is_equal(self, keys: Collection[LogKey], block: BlockRef) -> bool:
        heads = await self._reader.heads(block, sorted({key.job for key in keys}))
        return all(self._store.head(key, block.number) == heads[key] for key in keys)

    async def _block(self, number: int) -> BlockRef:
        header = await self._reader.header(number)
        if header is None:
            raise ChainTurned(f"the chain does not reach block {number} any more")
        return header.ref

    def _stored(self, number: int) -> Iterator[RawLog]:
        return joined.from_iterable(self._store.pages(number - 1, number))
