"""What must be kept, and why.

A pin is (CID, reason): a reason is a word that the role chooses, such as `job/7/round/3`, and ends
as a whole when what was owed is over. A pin covers everything reachable from its CID; the blocks
need not have arrived yet. Pins live in SQLite, so a crash leaves each one made or not made. Beside
them stands what other places were asked to keep, until they have let go of it.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from atoll.errors import StorageError
from atoll.storage.blocks import disk_errors
from atoll.storage.cid import Cid

_SCHEMA = (
    """
CREATE TABLE IF NOT EXISTS pins (
    serial INTEGER PRIMARY KEY AUTOINCREMENT,
    cid BLOB NOT NULL,
    reason TEXT NOT NULL,
    UNIQUE (cid, reason)
)
""",
    """
CREATE TABLE IF NOT EXISTS copies (
    serial INTEGER PRIMARY KEY AUTOINCREMENT,
    cid BLOB NOT NULL,
    place TEXT NOT NULL,
    UNIQUE (cid, place)
)
""",
)
_BUSY_S = 30.0  # another process writes; each write is a few rows


@dataclass(frozen=True, slots=True)
class Pin:
    """A promise to keep `cid` and everything below it; `serial` grows with each new pin."""

    serial: int
    cid: Cid
    reason: str


@dataclass(frozen=True, slots=True)
class PinnedCopy:
    """What another place was asked to keep; `serial` grows each time that it is asked."""

    serial: int
    cid: Cid
    place: str


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
            for table in _SCHEMA:
                database.execute(table)

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

    def has(self, cid: Cid) -> bool:
        """Whether any reason keeps it."""
        with self._database() as database:
            row = (cid.to_v1().to_bytes(),)
            row_of_pin = database.execute(
                "SELECT 1 FROM pins WHERE cid = ? LIMIT 1", row
            ).fetchone()
        return row_of_pin is not None

    def note_copy(self, cid: Cid, place: str) -> None:
        """To be said before that place is asked to keep it, so that no copy is forgotten there; and
        where it does not let go, which puts it behind all others.
        """
        with self._database() as database:
            database.execute(
                "INSERT OR REPLACE INTO copies (cid, place) VALUES (?, ?)",
                (cid.to_v1().to_bytes(), place),
            )

    def spare_copies(self, place: str) -> tuple[PinnedCopy, ...]:
        """What that place keeps of what has no pin here any more."""
        with self._database() as database:
            rows = database.execute(
                "SELECT serial, cid FROM copies WHERE place = ? AND cid NOT IN"
                " (SELECT cid FROM pins) ORDER BY serial",
                (place,),
            ).fetchall()
        return tuple(PinnedCopy(serial, Cid.from_bytes(cid), place) for serial, cid in rows)

    def end_copy(self, copy: PinnedCopy) -> bool:
        """Once its place has let go of it; returns whether it was noted anew meanwhile."""
        with self._database() as database:
            database.execute("DELETE FROM copies WHERE serial = ?", (copy.serial,))
            query = "SELECT 1 FROM copies WHERE cid = ? AND place = ?"
            row = (copy.cid.to_v1().to_bytes(), copy.place)
            return database.execute(query, row).fetchone() is not None

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
