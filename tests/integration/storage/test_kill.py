"""kill -9 at random moments: no partial block is ever visible, and the work resumes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from atoll.storage import Gateway, LocalStore

MIB = 1 << 20
KILLS = 50


class Worker:
    """Runs operations in processes of their own and kills them on request."""

    def __init__(self) -> None:
        script = str(Path(__file__).with_name("kill_worker.py"))
        self._process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, kill_after_s: float | None, operation: str, *arguments: str | Path) -> int:
        """The operation's exit code; -9 if the kill came first."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        command = json.dumps([kill_after_s, operation, *map(str, arguments)])
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def worker() -> Iterator[Worker]:
    started = Worker()
    yield started
    started.close()


class Moments:
    """Random moments to kill at, spread over however long the operation takes just now."""

    def __init__(self) -> None:
        self._chance = random.Random(9)
        self._span_s = 0.2
        self.killed = 0

    def next(self) -> float:
        return self._chance.uniform(0, self._span_s)

    def note(self, code: int) -> None:
        assert code in (0, -9)
        self.killed += code == -9
        self._span_s *= 1.2 if code == -9 else 0.6


def check(root: Path) -> None:
    found = LocalStore(root, sync=False).verify()
    assert (found.damaged, found.missing) == ((), ())


def test_add(worker: Worker, tmp_path: Path) -> None:
    root, file, moments = tmp_path / "store", tmp_path / "file", Moments()
    while moments.killed < KILLS:
        file.write_bytes(os.urandom(2 * MIB))
        moments.note(worker.run(moments.next(), "add", root, file))
        check(root)
        if moments.killed % 10 == 9:
            assert worker.run(None, "add", root, file) == 0
            store = LocalStore(root, sync=False)
            assert store.read_bytes(store.add_file(file), 2 * MIB) == file.read_bytes()
            shutil.rmtree(root)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[LocalStore, str]]:
    store = LocalStore(tmp_path / "theirs", sync=False)
    gateway = Gateway(store)
    await gateway.start()
    yield store, gateway.url
    await gateway.stop()


async def test_get(worker: Worker, served: tuple[LocalStore, str], tmp_path: Path) -> None:
    theirs, url = served
    root, out, moments = tmp_path / "ours", tmp_path / "out", Moments()
    while moments.killed < KILLS:
        data = os.urandom(2 * MIB)
        command = ("get", root, str(theirs.add_bytes(data)), url, out)
        moments.note(await asyncio.to_thread(worker.run, moments.next(), *command))
        check(root)
        assert not out.exists() or out.read_bytes() == data
        if moments.killed % 10 == 9:
            assert await asyncio.to_thread(worker.run, None, *command) == 0
            assert out.read_bytes() == data
            shutil.rmtree(root)
        out.unlink(missing_ok=True)


def test_pin(worker: Worker, tmp_path: Path) -> None:
    store, moments = LocalStore(tmp_path, sync=False), Moments()
    cid = store.add_bytes(b"owed")
    store.pin(cid, "kept")
    while moments.killed < KILLS:
        prefix = f"run/{moments.killed}"
        moments.note(worker.run(moments.next(), "pin", tmp_path, str(cid), prefix))
        reasons = {pin.reason for pin in store.pins()}
        assert "kept" in reasons
        ours = [reason for reason in reasons if reason.startswith(prefix + "/")]
        assert len(ours) <= 2
        for reason in ours:
            store.unpin(reason)
    check(tmp_path)


def test_gc(worker: Worker, tmp_path: Path) -> None:
    store, moments = LocalStore(tmp_path, sync=False), Moments()
    kept = os.urandom(2 * MIB)
    cid = store.add_bytes(kept)
    store.pin(cid, "owed")
    while moments.killed < KILLS:
        for _ in range(100):
            store.add_block(os.urandom(1000))
        moments.note(worker.run(moments.next(), "gc", tmp_path))
        check(tmp_path)
    assert worker.run(None, "gc", tmp_path) == 0
    assert store.usage().blocks == 3
    assert store.read_bytes(cid, 2 * MIB) == kept
