"""Logs on disk, each with the head that its contract's log has behind it.

Rule of this file: heads follow from logs alone; whoever changes logs has the later heads folded
anew in the same transaction. Blocks up to `checked` were held against the state, those behind were
not: whoever opens the file anew has the former alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from atoll.chain.database import Database
from atoll.chain.decode import RawLog
from atoll.chain.log_heads import EMPTY, NO_JOB, HeadFold, LogKey, created_job
from atoll.protocol.types import ZERO_DIGEST, Address, BlockRef, Digest

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (chain_id INTEGER NOT NULL, rounds TEXT NOT NULL,
    from_block INTEGER NOT NULL, genesis BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS read_blocks (number INTEGER PRIMARY KEY, hash BLOB NOT NULL,
    timestamp INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS read_logs (block INTEGER NOT NULL REFERENCES read_blocks (number)
    ON DELETE CASCADE, log_index INTEGER NOT NULL, address TEXT NOT NULL, topics BLOB NOT NULL,
    data BLOB NOT NULL, tx BLOB NOT NULL, job BLOB NOT NULL, head BLOB NOT NULL,
    PRIMARY KEY (block, log_index)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS logs_of ON read_logs (job, address, block, log_index);
CREATE TABLE IF NOT EXISTS checked (number INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS folds (code BLOB NOT NULL, number INTEGER NOT NULL, hash BLOB NOT NULL,
    fold BLOB NOT NULL, PRIMARY KEY (code, number));
"""
MOST_FOLDS = 2
"""Of one's own that are kept: the newest, and one before it, should a reorg take that one's block.
"""
KEPT_FOLD = """
SELECT f.number, f.fold FROM folds f
JOIN read_blocks b ON b.number = f.number AND b.hash = f.hash
WHERE f.code = ? AND f.number <= ? ORDER BY f.number DESC LIMIT 1
"""
PAGE = 256
"""Logs that are read from disk at once."""
PRUNED_AT_ONCE = 256
"""Blocks that have to have grown old before those of them that serve nothing are let go of."""
NEXT_LOGS = """
SELECT l.address, l.topics, l.data, l.log_index, l.tx, b.number, b.hash, b.timestamp
FROM read_logs l JOIN read_blocks b ON b.number = l.block
WHERE (l.block, l.log_index) > (?, ?) AND l.block <= ? {which}
ORDER BY l.block, l.log_index LIMIT ?
"""
HEAD_AT = """
SELECT head FROM read_logs WHERE job = ? AND address = ? AND block <= ?
ORDER BY block DESC, log_index DESC LIMIT 1
"""
FAR = 1 << 62


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which logs are read: those of these jobs, and those that mention an account.

    Attributes:
        jobs: None for all; `NO_JOB` for what belongs to none.
        mentions: accounts; whatever names one of them is among them, whatever its job.
    """

    jobs: frozenset[int] | None = None
    mentions: frozenset[Address] = frozenset()

    @classmethod
    def of_job(cls, job: int) -> LogFilter:
        """All that a job's view and ledger follow from: its own events, and those of no job."""
        return cls(frozenset({NO_JOB, job}))

    def condition(self) -> tuple[str, list[bytes]]:
        """In SQL, with its values."""
        if self.jobs is None:
            return "", []
        values = [job.to_bytes(32, "big") for job in sorted(self.jobs)]
        which = f"l.job IN ({', '.join('?' * len(values))})"
        for account in sorted(self.mentions):
            which += " OR instr(l.topics, ?) > 0 OR instr(l.data, ?) > 0"
            values += [bytes.fromhex(account[2:])] * 2
        return f"AND ({which})", values


EVERY_LOG = LogFilter()


class KeptFold(NamedTuple):
    """What somebody made of all logs up to a height, as that one's own bytes."""

    number: int
    fold: bytes


class LogStore:
    """One file of logs.

    Args:
        path: SQLite file; one process at a time.
        behind: events that take another contract's head in, and whose.

    Attributes:
        jobs: every job that a log names.
        checked: the height up to which logs are as the state says; -1 before any.
    """

    def __init__(self, path: Path, behind: Mapping[bytes, Address]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # What a power cut may take from it, the chain can say again.
        self.db = Database(path, SCHEMA, synchronous="NORMAL")
        self._behind = behind
        row = self.db.execute("SELECT number FROM checked").fetchone()
        self.checked = -1 if row is None else int(row["number"])
        self.jobs: set[int] = set()
        self._pruned = 0

    def open(self) -> None:
        """Drops logs that nobody has checked."""
        if self.has_unchecked():
            self.drop_after(self.checked)
        for row in self.db.rows("SELECT DISTINCT job FROM read_logs"):
            self.jobs.add(int.from_bytes(row["job"], "big"))
        for page in self.pages(-1, FAR, LogFilter(frozenset({NO_JOB}))):
            self.jobs |= {job for raw in page if (job := created_job(raw)) is not None}

    def has_unchecked(self) -> bool:
        """Whether there are logs behind `checked`."""
        return bool(self.unchecked_jobs())

    def unchecked_jobs(self) -> set[int]:
        """Whose logs there are behind `checked`."""
        rows = self.db.rows("SELECT DISTINCT job FROM read_logs WHERE block > ?", (self.checked,))
        return {int.from_bytes(row["job"], "big") for row in rows}

    def tip(self, below: int = FAR) -> BlockRef | None:
        """The highest block that was read, of those below a height.

        Those that only a checkpoint told of have no hash here, and nothing to be held against.
        """
        row = self.db.execute(
            "SELECT number, hash, timestamp FROM read_blocks WHERE number < ? AND hash != ?"
            " ORDER BY number DESC LIMIT 1",
            (below, ZERO_DIGEST),
        ).fetchone()
        return BlockRef(row[0], Digest(row[1]), row[2]) if row else None

    def pages(self, after: int, last: int, which: LogFilter = EVERY_LOG) -> Iterator[list[RawLog]]:
        """The logs of the blocks behind `after` up to `last`, in chain order, some at once."""
        place, (condition, values) = (after, FAR), which.condition()
        query = NEXT_LOGS.format(which=condition)
        while rows := self.db.rows(query, (*place, last, *values, PAGE)):
            yield [_of_row(row) for row in rows]
            place = (rows[-1]["number"], rows[-1]["log_index"])

    def add(self, last: BlockRef, logs: Sequence[RawLog]) -> None:
        """Adds what comes behind the tip, up to a block."""
        with self.db.transaction():
            self._insert(logs)
            self._insert_blocks([last])

    def replace(self, block: int, logs: Sequence[RawLog]) -> None:
        """Has a block have these logs and no others; folds the heads behind it anew."""
        with self.db.transaction():
            later = [raw for page in self.pages(block, FAR) for raw in page]
            self.db.execute("DELETE FROM read_logs WHERE block >= ?", (block,))
            self._insert([*logs, *later])

    def count(self, last: int) -> int:
        """Logs of the blocks up to a height."""
        row = self.db.execute("SELECT count(*) FROM read_logs WHERE block <= ?", (last,))
        return int(row.fetchone()[0])

    def head(self, key: LogKey, at: int = FAR) -> bytes:
        """The head of a log as of the end of that block."""
        row = self.db.execute(HEAD_AT, (key.job.to_bytes(32, "big"), key.contract, at)).fetchone()
        return EMPTY if row is None else bytes(row["head"])

    def note_checked(self, number: int) -> None:
        """Logs up to that height are as the state says."""
        with self.db.transaction():
            self.db.execute("DELETE FROM checked")
            self.db.execute("INSERT INTO checked VALUES (?)", (number,))
        self.checked = number

    def drop_after(self, number: int) -> None:
        """Forgets the blocks behind a height."""
        self.db.execute("DELETE FROM read_blocks WHERE number > ?", (number,))
        self.db.execute("DELETE FROM folds WHERE number > ?", (number,))
        if number < self.checked:
            self.note_checked(number)

    def prune(self, below: int) -> None:
        """Old blocks without events serve no rewind that a rescan would not serve as well.

        Only those that have grown old since the last time are looked at, and not the few newest.
        """
        if below - self._pruned < PRUNED_AT_ONCE:
            return
        self.db.execute(
            "DELETE FROM read_blocks WHERE number >= ? AND number < ?"
            " AND NOT EXISTS (SELECT 1 FROM read_logs WHERE block = number)"
            " AND number NOT IN (SELECT number FROM folds)",
            (self._pruned, below),
        )
        self._pruned = below

    def keep_fold(self, code: bytes, fold: bytes) -> None:
        """Keeps what was made of the logs up to `checked`, for `kept_fold`.

        Args:
            code: of what made it; what another one made is let go of.
        """
        block = self.tip(below=self.checked + 1)
        if block is None:
            return
        with self.db.transaction():
            self.db.execute("DELETE FROM folds WHERE code != ?", (code,))
            row = (code, block.number, block.hash, fold)
            self.db.execute("INSERT OR REPLACE INTO folds VALUES (?, ?, ?, ?)", row)
            self.db.execute(
                "DELETE FROM folds WHERE number NOT IN"
                " (SELECT number FROM folds ORDER BY number DESC LIMIT ?)",
                (MOST_FOLDS,),
            )

    def kept_fold(self, code: bytes, at_most: int) -> KeptFold | None:
        """The newest of that code whose block still stands, up to a height."""
        row = self.db.execute(KEPT_FOLD, (code, at_most)).fetchone()
        return None if row is None else KeptFold(row["number"], row["fold"])

    def _insert(self, logs: Sequence[RawLog]) -> None:
        fold, rows = HeadFold(self._behind), []
        for raw in logs:
            for key in fold.needed(raw):
                if key not in fold.heads:
                    fold.heads[key] = self.head(key)
            key, head = fold.fold(raw)
            created = created_job(raw)
            self.jobs |= {key.job} if created is None else {created}
            rows.append(
                (
                    raw.block_number, raw.index, raw.address, b"".join(raw.topics), raw.data,
                    raw.transaction, key.job.to_bytes(32, "big"), head,
                )
            )  # fmt: skip
        blocks = {raw.block_number: block_of(raw) for raw in reversed(logs)}
        self._insert_blocks(blocks.values())
        self.db.executemany("INSERT INTO read_logs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _insert_blocks(self, blocks: Iterable[BlockRef]) -> None:
        self.db.executemany(
            "INSERT INTO read_blocks VALUES (?, ?, ?) ON CONFLICT (number) DO UPDATE"
            " SET hash = excluded.hash, timestamp = excluded.timestamp",
            [(block.number, block.hash, block.timestamp) for block in blocks],
        )


def block_of(raw: RawLog) -> BlockRef:
    """The block that a log is in."""
    assert raw.timestamp is not None  # see `LogReader`
    return BlockRef(raw.block_number, Digest(raw.block_hash), raw.timestamp)


def _of_row(row: sqlite3.Row) -> RawLog:
    address, topics, data, index, tx, number, hash_, timestamp = row
    words = tuple(topics[at : at + 32] for at in range(0, len(topics), 32))
    return RawLog(Address(address), words, data, number, hash_, index, tx, timestamp)
