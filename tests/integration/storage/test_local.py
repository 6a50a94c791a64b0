"""One folder of blocks, several processes."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

from tests.support.patience import PATIENCE
from tests.unit.storage.test_local import files_below

from atoll.storage import Cid, LocalStore


def _add_many(root: Path) -> list[str]:
    store = LocalStore(root, sync=False)
    return [str(store.add_bytes(bytes([i]) * 100_000)) for i in range(100)]


def test_several_processes_share_a_folder(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(_add_many, [tmp_path] * 3))
    assert results[0] == results[1] == results[2]
    store = LocalStore(tmp_path)
    for i, text in enumerate(results[0]):
        assert store.read_bytes(Cid.parse(text), 100_000) == bytes([i]) * 100_000
    assert files_below(tmp_path / "tmp") == []


def _pin_at_once(folders: list[Path], started: Barrier) -> None:
    for folder in folders:
        started.wait()
        LocalStore(folder, sync=False).pin(Cid.of(b"kept"), f"process/{os.getpid()}")


def test_several_processes_make_a_folder_at_once(tmp_path: Path) -> None:
    """SQLite does not wait for another process that turns its log on, so pins have none."""
    several, count = get_context("spawn"), 4
    folders = [tmp_path / str(i) for i in range(20)]
    started = several.Barrier(count, timeout=PATIENCE)
    processes = [
        several.Process(target=_pin_at_once, args=(folders, started)) for _ in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * count
    assert [len(LocalStore(folder).pins()) for folder in folders] == [count] * len(folders)
