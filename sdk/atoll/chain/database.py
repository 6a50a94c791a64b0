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
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from atoll.errors import DiskFull, StorageError
from atoll.files import write_once

Parameters = Sequence[Any]
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR_SHORT_READ}


def open_read_only(path: Path) -> sqlite3.Connection:
    """A file that somebody else may have open, to look at. Raises sqlite3.Error."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def make_database(path: Path, schema: str, rows: Iterable[tuple[str, Parameters]]) -> None:
    """Makes a file that is not there with what it begins with, its owner's alone: whole, or not at
    all. Where somebody else has made it meanwhile, that one stays.

    Args:
        rows: statements with their parameters, behind the schema.

    Raises:
        DiskFull, StorageError: it cannot be written.
    """
    with told(path), closing(sqlite3.connect(":memory:")) as memory:
        memory.executescript(schema)
        for statement, parameters in rows:
            memory.execute(statement, parameters)
        memory.commit()
        with suppress(FileExistsError):
            write_once(path, memory.serialize())


def has_log(path: Path) -> bool:
    """Whether the log of a file is there, which SQLite would read into another one of its name."""
    return path.with_name(f"{path.name}-wal").exists()


def is_damage(error: StorageError) -> bool:
    """Whether a file itself is what cannot be used, and not its folder or the disk."""
    found = getattr(error.__cause__, "sqlite_errorcode", None)
    return found is not None and found in _DAMAGE


class Database:
    """One file; every statement outside `transaction` is a transaction of its own.

    Args:
        path: the file; its folder must exist.
        schema: statements that may run again; empty where the file was made whole.
        synchronous: FULL is durable when a statement returns; NORMAL may lose the last ones with
            the machine's power, never with the process.

    Raises:
        StorageError: the file cannot be opened, or is not a database.
    """

    def __init__(
        self, path: Path, schema: str, synchronous: Literal["FULL", "NORMAL"] = "FULL"
    ) -> None:
        self.path = path
        with told(self.path):
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
        with told(self.path):
            return self._db.execute(statement, parameters)

    def rows(self, statement: str, parameters: Parameters = ()) -> list[sqlite3.Row]:
        """Every row of a statement. Raises as `execute`, also of what a damaged page holds."""
        with told(self.path):
            return self._db.execute(statement, parameters).fetchall()

    def executemany(self, statement: str, parameters: Iterable[Parameters]) -> sqlite3.Cursor:
        """Runs a statement once for each row of parameters. Raises as `execute`."""
        with told(self.path):
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
def told(path: Path) -> Iterator[None]:
    """What SQLite and the file system say of a file, in our words."""
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
                f"no room on the disk for {path}",
                next_step="make room there, then start again: nothing was lost",
            ) from error
        raise StorageError(
            f"cannot use {path}: {error}",
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
