"""The SQLite files that services keep: opened alike, in transactions, with errors in our words.

Rule of this file: a statement either took effect whole or raised; what an earlier statement wrote
stays.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from atoll.errors import DiskFull, StorageError

Parameters = Sequence[Any]


def open_read_only(path: Path) -> sqlite3.Connection:
    """A file that somebody else may have open, to look at. Raises sqlite3.Error."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


class Database:
    """One file; every statement outside `transaction` is a transaction of its own.

    Args:
        path: the file; its folder must exist.
        schema: statements that may run again.
        synchronous: FULL is durable when a statement returns; NORMAL may lose the last ones with
            the machine's power, never with the process.

    Raises:
        StorageError: the file cannot be opened, or is not a database.
    """

    def __init__(
        self, path: Path, schema: str, synchronous: Literal["FULL", "NORMAL"] = "FULL"
    ) -> None:
        self.path = path
        with self._told():
            _touch(path)
            # Tasks of one service run on several threads, one at a time.
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.row_factory = sqlite3.Row
            try:
                with _alone(path.parent):
                    self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute(f"PRAGMA synchronous={synchronous}")
                self._db.execute("PRAGMA foreign_keys=ON")
                self._db.executescript(schema)
            except BaseException:  # whatever it is: an object half made is closed by nobody
                self._db.close()
                raise

    def close(self) -> None:
        """Lets go of the file; what was written stays."""
        self._db.close()

    def execute(self, statement: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        """Runs a statement.

        Raises:
            DiskFull: no room; the statement had no effect.
            StorageError: the file cannot be used.
            sqlite3.IntegrityError: a constraint of the schema forbids it.
        """
        with self._told():
            return self._db.execute(statement, parameters)

    def rows(self, statement: str, parameters: Parameters = ()) -> list[sqlite3.Row]:
        """Every row of a statement. Raises as `execute`, also of what a damaged page holds."""
        with self._told():
            return self._db.execute(statement, parameters).fetchall()

    def executemany(self, statement: str, parameters: Iterable[Parameters]) -> sqlite3.Cursor:
        """Runs a statement once for each row of parameters. Raises as `execute`."""
        with self._told():
            return self._db.executemany(statement, parameters)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the statements inside take effect, or none. Raises as `execute`."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite ends some failed ones by itself
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        # The last three are of damaged pages, and of values that no file takes: text that is none,
        # sizes and numbers that are too large.
        except (sqlite3.Error, OSError, UnicodeError, MemoryError, OverflowError) as error:
            is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            if is_full or getattr(error, "errno", None) == errno.ENOSPC:
                raise DiskFull(
                    f"no room on the disk for {self.path}",
                    next_step="make room there, then start again: nothing was lost",
                ) from error
            raise StorageError(
                f"cannot use {self.path}: {error}",
                next_step="check that its folder is writable and on a disk with room",
            ) from error


def _touch(path: Path) -> None:
    """Makes the file, for its owner only; SQLite makes its other files like it.

    One that exists is not opened: to close it would end every lock that this process has on it
    (fcntl(2)), those of another object of this class included.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time turns a log on: SQLite says "locked" at once to the second one."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
