"""What must be kept, and why.

A pin is (CID, reason): a reason is a word that the role chooses, such as `job/7/round/3`, and ends
as a whole when what was owed is over. A pin covers everything reachable from its CID; the blocks
need not have arrived yet. Pins live in SQLite, so a crash leaves each one made or not made.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from atoll.content.blocks import disk_errors
from atoll.content.cid import Cid
from atoll.errors import StorageError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS pins (
    serial INTEGER PRIMARY KEY AUTOINCREMENT,
    cid BLOB NOT NULL,
    reason TEXT NOT NULL,
    UNIQUE (cid, reason)
)
"""
_BUSY_S = 30.0  # another process writes; each write is a few rows


@dataclass(frozen=True, slots=True)
class Pin:
    """A promise to keep `cid` and everything below it; `serial` grows with each new pin."""

    serial: int
    cid: Cid
    reason: str


class Pins:
    """The pins of one store; safe for several threads and processes.

    Args:
        path: the database.
        sync: whether a pin reaches the disk before it counts as made.
    """

    def __init__(self, path: Path, *, sync: bool) -> None:
        self._path = path
        self._synchronous = "FULL" if sync else "NORMAL"
        # No log (WAL): processes that turn it on at once lock each other out, and SQLite waits for
        # none of them then. Connections are as short as their one write, so none waits long.
        with self._database() as database:
            database.execute(_SCHEMA)

    def add(self, cid: Cid, reason: str) -> None:
        """Pins; a second pin of the same reason changes nothing."""
        with self._database() as database:
            database.execute(
                "INSERT OR IGNORE INTO pins (cid, reason) VALUES (?, ?)",
                (cid.to_v1().to_bytes(), reason),
            )

    def remove(self, reason: str, cid: Cid | None = None) -> int:
        """Ends a reason, or one CID's part of it; returns how many pins went."""
        query, values = "DELETE FROM pins WHERE reason = ?", [reason]
        with self._database() as database:
            if cid is None:
                return database.execute(query, values).rowcount
            return database.execute(
                query + " AND cid = ?", (reason, cid.to_v1().to_bytes())
            ).rowcount

    def list(self, after: int = 0) -> list[Pin]:
        """Every pin whose serial exceeds `after`, oldest first."""
        with self._database() as database:
            rows = database.execute(
                "SELECT serial, cid, reason FROM pins WHERE serial > ? ORDER BY serial", (after,)
            ).fetchall()
        return [Pin(serial, Cid.from_bytes(cid), reason) for serial, cid, reason in rows]

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=_BUSY_S)) as database, database:
                database.execute(f"PRAGMA synchronous = {self._synchronous}")
                yield database
        except sqlite3.Error as error:
            with disk_errors(self._path):
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                    raise OSError(errno.ENOSPC, "no room") from error
            raise StorageError(f"the pins in {self._path} cannot be used: {error}") from error
