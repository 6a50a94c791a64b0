"""A statement takes effect whole, or raises and leaves what was there."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE

from atoll.chain.database import Database
from atoll.errors import DiskFull, StorageError

SCHEMA = "CREATE TABLE IF NOT EXISTS notes (text TEXT NOT NULL UNIQUE)"


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "notes.sqlite", SCHEMA)


def notes(database: Database) -> list[str]:
    return [row["text"] for row in database.execute("SELECT text FROM notes ORDER BY text")]


def test_a_transaction_that_fails_leaves_nothing(database: Database) -> None:
    database.execute("INSERT INTO notes VALUES ('kept')")
    with pytest.raises(sqlite3.IntegrityError), database.transaction():
        database.execute("INSERT INTO notes VALUES ('new')")
        database.execute("INSERT INTO notes VALUES ('kept')")
    assert notes(database) == ["kept"]


def test_a_full_disk_is_named_and_nothing_is_lost(database: Database) -> None:
    """SQLite's own limit on pages fails in the same place, with the same code, as a full disk."""
    database.execute("INSERT INTO notes VALUES ('kept')")
    database.execute("PRAGMA max_page_count = 8")
    with pytest.raises(DiskFull, match="no room on the disk") as caught, database.transaction():
        database.execute("INSERT INTO notes VALUES ('small')")
        database.execute("INSERT INTO notes VALUES (?)", ("x" * 100_000,))
    assert caught.value.next_step is not None
    assert notes(database) == ["kept"]
    database.execute("PRAGMA max_page_count = 1000")
    database.execute("INSERT INTO notes VALUES ('room again')")
    assert notes(database) == ["kept", "room again"]


def test_another_file_is_not_taken_for_a_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    path.write_bytes(b"not a database at all, but long enough to have a header" * 20)
    with pytest.raises(StorageError, match="not a database"):
        Database(path, SCHEMA)


def _note_at_once(paths: list[Path], started: Barrier) -> None:
    for path in paths:
        started.wait()
        Database(path, SCHEMA).execute("INSERT INTO notes VALUES (?)", (str(os.getpid()),))


def test_several_processes_make_a_file_at_once(tmp_path: Path) -> None:
    several, count = get_context("spawn"), 4
    paths = [tmp_path / f"{i}.sqlite" for i in range(20)]
    started = several.Barrier(count, timeout=PATIENCE)
    processes = [several.Process(target=_note_at_once, args=(paths, started)) for _ in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * count
    assert [len(notes(Database(path, SCHEMA))) for path in paths] == [count] * len(paths)


def test_a_second_object_leaves_the_locks_of_the_first(database: Database) -> None:
    """A process loses every lock it has on a file as soon as it closes that file once (POSIX)."""
    database.execute("INSERT INTO notes VALUES ('here')")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert not pool.submit(_could_lock, database.path).result()
        Database(database.path, SCHEMA).close()
        assert not pool.submit(_could_lock, database.path).result()
        database.close()
        assert pool.submit(_could_lock, database.path).result()


def _could_lock(path: Path) -> bool:
    """Whether nobody has a lock on the file."""
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize("value", [1 << 63, "\ud800"])
def test_a_value_that_no_file_takes_is_a_storage_error(database: Database, value: object) -> None:
    with pytest.raises(StorageError):
        database.execute("INSERT INTO notes VALUES (?)", (value,))
    assert notes(database) == []
