"""The contracts' events in chain order, once each, confirmed; and a rewind when the chain turns.

Rule of this file: nothing is handed out before it is on disk and held against the state of a block
whose hash is remembered (`atoll.chain.log_witness`); only `ahead` tells what may still be taken
back, to whoever begins work by it and signs nothing. What strangers wrote is data: a log that does
not decode is kept, counted and passed over, and the index goes on behind it.

The state is asked behind each look that brought logs, and once a minute: an endpoint that hides all
of them is noticed by then. Blocks that brought none were given to nobody, so that what it hid comes
in order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain as joined
from pathlib import Path

import structlog

from atoll.chain.checkpoint import FINAL_BLOCKS, WORTH_BLOCKS, Checkpoints, check
from atoll.chain.contracts import AtollChain
from atoll.chain.decode import RawLog, decode_log
from atoll.chain.indexed import Indexed
from atoll.chain.log_heads import NO_JOB
from atoll.chain.log_snapshot import CheckpointRefused
from atoll.chain.log_store import (
    EVERY_LOG,
    FAR,
    KeptFold,
    LogFilter,
    LogStore,
    block_of,
)
from atoll.chain.log_witness import StateWitness
from atoll.chain.logs import ChainTurned
from atoll.errors import ConfigError, RpcUnavailable, UndecodableLog
from atoll.protocol.types import BlockRef

log = structlog.get_logger("atoll.chain.index")

MAX_RANGE = 2_000
"""Blocks asked for at once; public endpoints refuse much more."""
CHECK_SECONDS = 60.0
"""So often the state is asked where no log was heard of."""


@dataclass(frozen=True, slots=True)
class Rewound:
    """A reorg: what was said about blocks above `to_block` is void."""

    to_block: int


@dataclass(frozen=True, slots=True)
class Advanced:
    """A new newest block: its timestamp is the chain's clock.

    Attributes:
        confirmed: height up to which every event has been given.
    """

    block: BlockRef
    confirmed: int


Change = Indexed | Rewound | Advanced


@dataclass(frozen=True, slots=True)
class LogRangeOnDisk:
    """Every log up to a block.

    Attributes:
        pages: reads them, oldest first, some at once.
    """

    block: BlockRef
    count: int
    pages: Callable[[], Iterator[list[RawLog]]]


class History:
    """Events on disk, in chain order.

    Each pass reads them anew and decodes one when it is asked for it: so who has others to let in
    can do so between two.

    Args:
        after: the height behind which they begin.
        which: others are neither read nor decoded.
    """

    def __init__(
        self,
        store: LogStore,
        indexed: Callable[[RawLog], list[Indexed]],
        *,
        after: int = -1,
        which: LogFilter = EVERY_LOG,
    ) -> None:
        self._store, self._indexed, self._after, self._which = store, indexed, after, which

    def __iter__(self) -> Iterator[Indexed]:
        return joined.from_iterable(self.pages())

    def pages(self) -> Iterator[Iterator[Indexed]]:
        """The same, of so many logs at once, whether they are events or not."""
        for page in self._store.pages(self._after, self._store.checked, self._which):
            yield joined.from_iterable(map(self._indexed, page))


class EventIndex:
    """Follows one deployment from its first block.

    A new index starts with everything on disk, so that a mirror can be folded from nothing at
    every start, or with what is behind a fold that was kept; after a `Rewound` it is folded anew
    from `history()`.

    Args:
        confirmations: blocks on top of a block before its events are given; 0: at once.
        looks_ahead: whether `ahead` is asked for, which reads each block once more.
        from_block: where to start; None: at the deployment's own block.
        path: SQLite file; one process at a time.
        checkpoints: asked where nothing was read yet and there is much to read.
    Raises:
        ConfigError: the file belongs to another network or start.
    """

    def __init__(
        self,
        chain: AtollChain,
        *,
        confirmations: int,
        path: Path,
        from_block: int | None = None,
        looks_ahead: bool = False,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._chain = chain
        self._checkpoints = checkpoints
        self._is_on_trial = False
        self._confirmations = confirmations
        self._looks_ahead = looks_ahead
        self._ahead: list[Indexed] = []
        self._from_block = chain.deployment.block if from_block is None else from_block
        self._head: BlockRef | None = None
        self._untold: list[Change] = []
        self._has_recalled = False
        self._recalls_after = -1
        self._range = MAX_RANGE
        self._undecodable: set[tuple[bytes, int]] = set()
        self._store = LogStore(path, chain.events.behind)
        self._claim(path)
        self._store.open()
        self._confirmed = self._store.tip()
        self._store.prune(self.confirmed - MAX_RANGE)
        self._witness = StateWitness(chain.events, self._store, self._from_block)
        self._looked_at: float | None = None

    def close(self) -> None:
        """Lets go of the file."""
        self._store.db.close()

    @property
    def confirmed(self) -> int:
        """Height up to which the index knows everything."""
        return self._from_block - 1 if self._confirmed is None else self._confirmed.number

    @property
    def confirmed_at(self) -> int:
        """Unix seconds of the block at that height; 0 before any."""
        return 0 if self._confirmed is None else self._confirmed.timestamp

    @property
    def undecodable(self) -> int:
        """Logs of the contracts met by this index that are no events, whoever wrote them."""
        return len(self._undecodable)

    @property
    def ahead(self) -> tuple[Indexed, ...]:
        """Events of the blocks behind the last confirmed one, at the last poll; on no disk."""
        return tuple(self._ahead)

    async def look_ahead(self) -> tuple[Indexed, ...]:
        """Looks at the newest blocks now, whether or not each poll does. Raises RpcUnavailable."""
        await self._look_ahead((await self._chain.head()).number)
        newest = self.ahead
        if not self._looks_ahead:  # no poll would take back what a reorg does
            self._ahead = []
        return newest

    def history(self, which: LogFilter = EVERY_LOG, *, after: int = -1) -> History:
        """Every event given so far that no reorg took back, in chain order.

        Args:
            which: of all, those that are asked for.
            after: the height behind which they begin.
        """
        return History(self._store, self._indexed, after=after, which=which)

    def begin_behind(self, number: int) -> None:
        """Before the first poll: what is on disk up to that height is known, and is not given."""
        self._recalls_after = number

    def keep_fold(self, code: bytes, fold: bytes) -> None:
        """Keeps on disk what was made of every event given so far: see `LogStore.keep_fold`."""
        self._store.keep_fold(code, fold)

    def kept_fold(self, code: bytes, at_most: int = FAR) -> KeptFold | None:
        """The newest such fold up to a height that no reorg took back."""
        return self._store.kept_fold(code, at_most)

    async def poll(self) -> list[Change]:
        """What is new: on the first call everything on disk, too. Never waits for a block.

        A reorg comes as `Rewound` before the events that replace the lost ones; `Advanced` is last.
        An endpoint that ends below the last block that was read tells nothing.

        Raises:
            RpcUnavailable: no endpoint answers; call again.
        """
        if not self._has_recalled:
            await self._recall()
        head = await self._chain.head()
        if head != self._head and await self._catch_up(head):
            self._head = head
            self._untold.append(Advanced(head, self.confirmed))
        changes, self._untold = self._untold, []
        return changes

    async def _recall(self) -> None:
        """Everything on disk is untold; others get their turn while it is read and decoded."""
        recalled = list[Change]()
        for page in self.history(after=self._recalls_after).pages():
            recalled += page
            await asyncio.sleep(0)
        self._untold, self._has_recalled = recalled, True

    async def _catch_up(self, head: BlockRef) -> bool:
        """Reads up to the last confirmed block; False where the endpoint lags, or the chain moved.

        What it learns is untold until `poll` returns, so that a failure half-way loses nothing.
        """
        if not await self._rewind(head):
            return False
        last = head.number - self._confirmations
        if self._checkpoints is not None and self._store.tip() is None:
            await self._begin_with_checkpoint(last)
        while (first := self._behind_tip()) <= last:
            try:
                is_read = await self._scan(first, min(last, first + self._range - 1))
            except RpcUnavailable:
                self._range = max(1, self._range // 2)  # it may have been too much for one answer
                raise
            self._range = min(MAX_RANGE, self._range * 2)
            if not is_read:
                return False
        if self._is_on_trial and not await self._stands_trial():
            return await self._catch_up(head)
        if not await self._check():
            return False
        if self._looks_ahead:
            await self._look_ahead(head.number)
        return True

    async def _begin_with_checkpoint(self, last: int) -> None:
        """Takes the first checkpoint that is true; without one, everything is read in ranges."""
        checkpoints, self._checkpoints = self._checkpoints, None
        if checkpoints is None or last - self._from_block < WORTH_BLOCKS:
            return
        newest = await self._chain.block(last)
        if newest is None:
            return
        async for snapshot in checkpoints(newest):
            try:
                is_proven = await check(self._chain.events, snapshot, self._from_block, newest)
            except CheckpointRefused as refused:
                log.warning("a checkpoint is refused", cause=str(refused))
                continue
            self._store.add(snapshot.block, snapshot.logs)
            self._is_on_trial = not is_proven
            log.info("begins with a checkpoint", block=snapshot.block.number)
            return

    async def _stands_trial(self) -> bool:
        """Whether all that was read since leads to the words of the newest block.

        Where it does not, nothing of it stands, and all is read in ranges.
        """
        tip = self._store.tip()
        assert tip is not None
        heads = await self._chain.events.heads(tip, sorted({NO_JOB, *self._store.jobs}))
        self._is_on_trial = False
        if all(self._store.head(key, tip.number) == head for key, head in heads.items()):
            return True
        cause = f"the checkpoint is false: with it, the logs are not those of block {tip.number}"
        log.warning("a checkpoint is refused", cause=cause)
        self._store.drop_after(self._from_block - 1)
        return False

    def checkpoint(self) -> LogRangeOnDisk | None:
        """What a checkpoint of the newest block would have that no reorg takes back."""
        block = self._store.tip(below=self._store.checked - FINAL_BLOCKS + 1)
        if block is None:
            return None
        count = self._store.count(block.number)
        return LogRangeOnDisk(block, count, partial(self._store.pages, -1, block.number))

    def _behind_tip(self) -> int:
        tip = self._store.tip()
        return self._from_block if tip is None else tip.number + 1

    async def _check(self) -> bool:
        """Holds what was read against the state, where it is time to, and tells what is new.

        False where even what was told is void, or the chain turned.
        """
        tip, now, before = self._store.tip(), time.monotonic(), self._store.checked
        is_due = self._looked_at is None or now - self._looked_at >= CHECK_SECONDS
        if tip is not None and (is_due or self._store.has_unchecked()):
            try:
                back = await self._witness.settle(tip)
            except ChainTurned:
                return False
            if back is not None:
                self._void(back)
                return False
            self._looked_at = now
            self._untold += self.history(after=before)
            self._store.prune(tip.number - MAX_RANGE)
        self._confirmed = tip
        return True

    def _void(self, to_block: int) -> None:
        """Nothing behind that height stands any more."""
        self._store.drop_after(to_block)
        self._confirmed = self._store.tip()
        self._untold.append(Rewound(to_block))

    async def _look_ahead(self, last: int) -> None:
        """Reads on to the newest block.

        An endpoint that has not got that far holds nothing up: what was read before stays, until
        it is confirmed or the next block is read.
        """
        tip = self._store.tip()
        self._ahead = [item for item in self._ahead if item.block.number > self.confirmed]
        if tip is None or not tip.number < last <= tip.number + MAX_RANGE:
            return
        with suppress(RpcUnavailable):
            newest = await self._chain.events.read(tip.number + 1, last, tip.hash)
            if newest is not None:  # else the chain turned while it was read
                self._ahead = [item for raw in newest.logs for item in self._indexed(raw)]

    async def _rewind(self, head: BlockRef) -> bool:
        """Forgets blocks in whose place the chain has others; False where it ends below the last.

        That it is shorter says nothing: so it is told by an endpoint that lags. A chain that turned
        has another block at a height that was read, at the latest when it is as long again.
        """
        tip = self._store.tip()
        kept = newest = self._store.tip(below=head.number + 1)
        while kept is not None and not (stands := await self._stands(kept)):
            if stands is None:
                return False
            kept = self._store.tip(below=kept.number)
        if kept == newest:
            return newest == tip
        to_block = kept.number if kept is not None else self._from_block - 1
        log.info("the chain turned", to_block=to_block, from_block=self.confirmed)
        self._void(to_block)
        return True

    async def _stands(self, block: BlockRef) -> bool | None:
        """Whether the chain still has a block that was read; None where it does not reach it."""
        standing = await self._chain.block(block.number)
        return None if standing is None else standing == block

    async def _scan(self, first: int, last: int) -> bool:
        """Stores the logs of a range; False where the chain turned while being read.

        The range has to stand on the tip: a turn below it since `_rewind` would leave lost events
        for ever, since `_rewind` starts from the tip.
        """
        tip = self._store.tip()
        logs = await self._chain.events.read(first, last, None if tip is None else tip.hash)
        if logs is None:
            return False
        self._store.add(logs.last, logs.logs)
        return True

    def _indexed(self, raw: RawLog) -> list[Indexed]:
        """The log's event; nothing for a log that is none."""
        try:
            event = decode_log(raw)
        except UndecodableLog as error:
            place = (raw.block_hash, raw.index)
            if place not in self._undecodable:
                self._undecodable.add(place)
                at = {"block": raw.block_number, "log_index": raw.index}
                log.warning("a log does not decode and is passed over", **at, cause=str(error))
            return []
        block = block_of(raw)
        return [] if event is None else [Indexed(event, block, raw.index, raw.transaction)]

    def _claim(self, path: Path) -> None:
        chain, deployment = self._chain, self._chain.deployment
        mine = (deployment.chain_id, deployment.addresses["Rounds"], self._from_block)
        row = self._store.db.execute(
            "SELECT chain_id, rounds, from_block, genesis FROM meta"
        ).fetchone()
        if row is None:
            self._store.db.execute("INSERT INTO meta VALUES (?, ?, ?, ?)", (*mine, chain.genesis))
            return
        held, genesis = (row[0], row[1], row[2]), row["genesis"]
        is_another_chain = len({genesis, chain.genesis} - {b""}) > 1
        if held != mine or is_another_chain:
            self._store.db.close()
            raise ConfigError(
                f"{path} holds the events of {_named(*held, genesis)}, "
                f"not those of {_named(*mine, chain.genesis)}",
                next_step="use a folder of its own for each network: another --home (ATOLL_HOME), "
                "or a service's data_dir",
            )


def _named(chain_id: int, rounds: str, from_block: int, genesis: bytes) -> str:
    began = genesis.hex() or "unknown"
    return f"{rounds} on chain {chain_id} (block 0 is {began}) from block {from_block}"
