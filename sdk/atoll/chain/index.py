"""The contracts' events in chain order, once each, confirmed; and a rewind when the chain turns.

Rule of this file: nothing is handed out before it is on disk, and what is on disk is what one
unbroken chain said up to one block, whose hash is remembered; only `ahead` tells what may still be
taken back, to whoever begins work by it and signs nothing. What strangers wrote is data: a log
that does not decode is kept, counted and passed over, and the index goes on behind it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain as joined
from pathlib import Path

import structlog

from atoll.chain.contracts import AtollChain
from atoll.chain.database import Database
from atoll.chain.decode import RawLog, decode_log
from atoll.chain.indexed import Indexed
from atoll.errors import ConfigError, RpcUnavailable, UndecodableLog
from atoll.protocol.types import Address, BlockRef, Digest

log = structlog.get_logger("atoll.chain.index")

MAX_RANGE = 2_000
"""Blocks asked for at once; public endpoints refuse much more."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (chain_id INTEGER NOT NULL, rounds TEXT NOT NULL,
    from_block INTEGER NOT NULL, genesis BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS read_blocks (number INTEGER PRIMARY KEY, hash BLOB NOT NULL,
    timestamp INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS read_logs (block INTEGER NOT NULL REFERENCES read_blocks (number)
    ON DELETE CASCADE, log_index INTEGER NOT NULL, address TEXT NOT NULL, topics BLOB NOT NULL,
    data BLOB NOT NULL, tx BLOB NOT NULL, PRIMARY KEY (block, log_index)) WITHOUT ROWID;
"""
PAGE = 256
"""Logs that are read from disk at once."""
NEXT_LOGS = """
SELECT l.address, l.topics, l.data, l.log_index, l.tx, b.number, b.hash, b.timestamp
FROM read_logs l JOIN read_blocks b ON b.number = l.block
WHERE (l.block, l.log_index) > (?, ?) ORDER BY l.block, l.log_index LIMIT ?
"""


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


class History:
    """Events on disk, in chain order.

    Each pass reads them anew and decodes one when it is asked for it: so who has others to let in
    can do so between two.
    """

    def __init__(self, db: Database, indexed: Callable[[RawLog, BlockRef], list[Indexed]]) -> None:
        self._db, self._indexed = db, indexed

    def __iter__(self) -> Iterator[Indexed]:
        return joined.from_iterable(self.pages())

    def pages(self) -> Iterator[Iterator[Indexed]]:
        """The same, of so many logs at once, whether they are events or not."""
        last = (-1, -1)
        while rows := self._db.rows(NEXT_LOGS, (*last, PAGE)):
            yield joined.from_iterable(map(self._of_row, rows))
            last = (rows[-1]["number"], rows[-1]["log_index"])

    def _of_row(self, row: sqlite3.Row) -> list[Indexed]:
        address, topics, data, index, tx, number, hash_, timestamp = row
        words = tuple(topics[at : at + 32] for at in range(0, len(topics), 32))
        raw = RawLog(Address(address), words, data, number, hash_, index, tx)
        return self._indexed(raw, BlockRef(number, Digest(hash_), timestamp))


class EventIndex:
    """Follows one deployment from its first block.

    A new index starts with everything on disk, so that a mirror can be folded from nothing at
    every start; after a `Rewound` it is folded anew from `history()`.

    Args:
        confirmations: blocks on top of a block before its events are given; 0: at once.
        looks_ahead: whether `ahead` is asked for, which reads each block once more.
        from_block: where to start; None: at the deployment's own block.
        path: SQLite file; one process at a time.
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
    ) -> None:
        self._chain = chain
        self._confirmations = confirmations
        self._looks_ahead = looks_ahead
        self._ahead: list[Indexed] = []
        self._from_block = chain.deployment.block if from_block is None else from_block
        self._head: BlockRef | None = None
        self._untold: list[Change] = []
        self._has_recalled = False
        self._range = MAX_RANGE
        self._undecodable: set[tuple[bytes, int]] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        # What a power cut may take from it, the chain can say again.
        self._db = Database(path, SCHEMA, synchronous="NORMAL")
        self._claim(path)
        self._prune()

    def close(self) -> None:
        """Lets go of the file."""
        self._db.close()

    @property
    def confirmed(self) -> int:
        """Height up to which the index knows everything."""
        tip = self._tip()
        return tip.number if tip is not None else self._from_block - 1

    @property
    def confirmed_at(self) -> int:
        """Unix seconds of the block at that height; 0 before any."""
        tip = self._tip()
        return tip.timestamp if tip is not None else 0

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
        found = self.ahead
        if not self._looks_ahead:  # no poll would take back what a reorg does
            self._ahead = []
        return found

    def history(self) -> History:
        """Every event given so far that no reorg took back, in chain order."""
        return History(self._db, self._indexed)

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
        found = list[Change]()
        for page in self.history().pages():
            found += page
            await asyncio.sleep(0)
        self._untold, self._has_recalled = found, True

    async def _catch_up(self, head: BlockRef) -> bool:
        """Reads up to the last confirmed block; False where the endpoint lags, or the chain moved.

        What it learns is untold until `poll` returns, so that a failure half-way loses nothing.
        """
        if not await self._rewind(head):
            return False
        last = head.number - self._confirmations
        while self.confirmed < last:
            first = self.confirmed + 1
            try:
                batch = await self._scan(first, min(last, first + self._range - 1))
            except RpcUnavailable:
                self._range = max(1, self._range // 2)  # it may have been too much for one answer
                raise
            self._range = min(MAX_RANGE, self._range * 2)
            if batch is None:
                return False
            self._untold += batch
        if self._looks_ahead:
            await self._look_ahead(head.number)
        return True

    async def _look_ahead(self, last: int) -> None:
        """Reads on to the newest block.

        An endpoint that has not got that far holds nothing up: what was read before stays, until
        it is confirmed or the next block is read.
        """
        tip = self._tip()
        self._ahead = [item for item in self._ahead if item.block.number > self.confirmed]
        if tip is None or not tip.number < last <= tip.number + MAX_RANGE:
            return
        with suppress(RpcUnavailable):
            found = await self._chain.events.read(tip.number + 1, last, tip.hash)
            if found is None:  # the chain turned while it was read
                return
            headers, logs = found
            blocks = {item.ref.number: item.ref for item in headers}
            told = (self._indexed(raw, blocks[raw.block_number]) for raw in logs)
            self._ahead = [item for items in told for item in items]

    async def _rewind(self, head: BlockRef) -> bool:
        """Forgets blocks in whose place the chain has others; False where it ends below the last.

        That it is shorter says nothing: so it is told by an endpoint that lags. A chain that turned
        has another block at a height that was read, at the latest when it is as long again.
        """
        tip = self._tip()
        kept = newest = self._tip(below=head.number + 1)
        while kept is not None and not (stands := await self._stands(kept)):
            if stands is None:
                return False
            kept = self._tip(below=kept.number)
        if kept == newest:
            return newest == tip
        to_block = kept.number if kept is not None else self._from_block - 1
        log.info("the chain turned", to_block=to_block, from_block=self.confirmed)
        self._db.execute("DELETE FROM read_blocks WHERE number > ?", (to_block,))
        self._untold.append(Rewound(to_block))
        return True

    async def _stands(self, block: BlockRef) -> bool | None:
        """Whether the chain still has a block that was read; None where it does not reach it."""
        found = await self._chain.block(block.number)
        return None if found is None else found == block

    async def _scan(self, first: int, last: int) -> list[Indexed] | None:
        """Stores and returns the events of a range; None where the chain turned while being read.

        The range has to stand on the tip, header by header: a turn below it since `_rewind` would
        leave lost events for ever, since `_rewind` starts from the tip.
        """
        tip = self._tip()
        found = await self._chain.events.read(first, last, None if tip is None else tip.hash)
        if found is None:
            return None
        headers, logs = found
        kept = {raw.block_number for raw in logs} | {last}
        blocks = {item.ref.number: item.ref for item in headers if item.ref.number in kept}
        self._save(blocks, logs)
        return [item for raw in logs for item in self._indexed(raw, blocks[raw.block_number])]

    def _indexed(self, raw: RawLog, block: BlockRef) -> list[Indexed]:
        """The log's event; nothing for a log that is none."""
        try:
            event = decode_log(raw)
        except UndecodableLog as error:
            place = (bytes(block.hash), raw.index)
            if place not in self._undecodable:
                self._undecodable.add(place)
                at = {"block": block.number, "log_index": raw.index}
                log.warning("a log does not decode and is passed over", **at, cause=str(error))
            return []
        return [] if event is None else [Indexed(event, block, raw.index, raw.transaction)]

    def _save(self, blocks: dict[int, BlockRef], logs: list[RawLog]) -> None:
        with self._db.transaction():
            self._db.executemany(
                "INSERT INTO read_blocks VALUES (?, ?, ?)",
                [(block.number, block.hash, block.timestamp) for block in blocks.values()],
            )
            self._db.executemany(
                "INSERT INTO read_logs VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (r.block_number, r.index, r.address, b"".join(r.topics), r.data, r.transaction)
                    for r in logs
                ],
            )

    def _prune(self) -> None:
        """Old blocks without events serve no rewind that a rescan would not serve as well."""
        self._db.execute(
            "DELETE FROM read_blocks WHERE number < ?"
            " AND number NOT IN (SELECT block FROM read_logs)",
            (self.confirmed - MAX_RANGE,),
        )

    def _tip(self, below: int = 1 << 62) -> BlockRef | None:
        row = self._db.execute(
            "SELECT number, hash, timestamp FROM read_blocks WHERE number < ?"
            " ORDER BY number DESC LIMIT 1",
            (below,),
        ).fetchone()
        return BlockRef(row[0], Digest(row[1]), row[2]) if row else None

    def _claim(self, path: Path) -> None:
        chain, deployment = self._chain, self._chain.deployment
        mine = (deployment.chain_id, deployment.addresses["Rounds"], self._from_block)
        row = self._db.execute("SELECT chain_id, rounds, from_block, genesis FROM meta").fetchone()
        if row is None:
            self._db.execute("INSERT INTO meta VALUES (?, ?, ?, ?)", (*mine, chain.genesis))
            return
        held, genesis = (row[0], row[1], row[2]), row["genesis"]
        is_another_chain = len({genesis, chain.genesis} - {b""}) > 1
        if held != mine or is_another_chain:
            self._db.close()
            raise ConfigError(
                f"{path} holds the events of {_named(*held, genesis)}, "
                f"not those of {_named(*mine, chain.genesis)}",
                next_step="use a folder of its own for each network: another --home (ATOLL_HOME), "
                "or a service's data_dir",
            )


def _named(chain_id: int, rounds: str, from_block: int, genesis: bytes) -> str:
    began = genesis.hex() or "unknown"
    return f"{rounds} on chain {chain_id} (block 0 is {began}) from block {from_block}"
