"""A release beside this one does the work of its jobs, in an environment that a command made."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.patience import PATIENCE
from tests.support.releases import LAST, Release, add_last, atoll, last_wheel
from tests.support.small_job import small_manifest

from atoll.errors import ConfigError, NumericsMismatch
from atoll.protocol.manifest import Manifest
from atoll.service.duties.evaluation import EVALUATE_STATE
from atoll.service.duties.material import CHECK_DATA, CHECK_MACHINE, FIND_PROGRAM
from atoll.service.duties.round_start import INSPECT_STATE, MAKE_INITIAL_STATE
from atoll.service.elsewhere import Peer, PeerDied, handed_over
from atoll.service.environments import FOLDER_VARIABLE, environments
from atoll.service.task import Task, TaskCall
from atoll.service.wire import WORD, NotOnTheWire
from atoll.service.worker import Worker
from atoll.storage.local import LocalStore
from atoll.train.code import code_digest

R = TypeVar("R")
STRANGE: Task[[bytes], None] = Task("of-this-test.v1", __name__)
"""Work that no release knows."""


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return add_last(tmp_path_factory.mktemp("added"))


@pytest.fixture
def beside(last: Release, monkeypatch: pytest.MonkeyPatch) -> Release:
    monkeypatch.setenv(FOLDER_VARIABLE, str(last.folder))
    return last


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    return LocalStore(tmp_path_factory.mktemp("store") / "store")


@pytest.fixture(scope="module")
def manifest(store: LocalStore) -> Manifest:
    """A job of this release."""
    return small_manifest(store)


def with_numerics(manifest: Manifest, **changes: bytes) -> Manifest:
    numerics = manifest.numerics.model_copy(update=changes)
    return manifest.model_copy(update={"numerics": numerics})


@pytest.fixture
def theirs(manifest: Manifest, beside: Release) -> Manifest:
    """The same job of the last release."""
    return with_numerics(manifest, code_digest=beside.digest)


async def both(worker: Worker, one: TaskCall[R], other: TaskCall[R]) -> None:
    """A piece of work comes to the same by either release."""
    done = [await worker.run(one), await worker.run(other)]
    assert done[0] == done[1] and type(done[0]) is type(done[1])


async def test_work_of_both_releases_is_done_by_one_worker(
    manifest: Manifest, theirs: Manifest, store: LocalStore
) -> None:
    worker = Worker()
    here, there = manifest.to_bytes(), theirs.to_bytes()
    try:
        where = str(store.root)
        await both(worker, CHECK_MACHINE(here), CHECK_MACHINE(there))
        await both(worker, CHECK_DATA(here, where), CHECK_DATA(there, where))
        made = await worker.run(MAKE_INITIAL_STATE(there, where))
        assert made == await worker.run(MAKE_INITIAL_STATE(here, where))
        for task in (INSPECT_STATE, EVALUATE_STATE):
            await both(worker, task(here, made.cid, where), task(there, made.cid, where))
    finally:
        worker.kill()


async def test_what_the_other_release_raises_is_raised_here(
    theirs: Manifest, store: LocalStore
) -> None:
    worker = Worker()
    try:
        with pytest.raises(NumericsMismatch, match="the probe gives") as caught:
            wrong = with_numerics(theirs, probe_digest=bytes(32))
            await worker.run(CHECK_MACHINE(wrong.to_bytes()))
        assert "MKL" in str(caught.value.next_step)
        with pytest.raises(NotOnTheWire, match="other releases do not know"):
            await worker.run(STRANGE(theirs.to_bytes()))
    finally:
        worker.kill()


async def test_a_job_of_no_release_that_is_here_is_refused_with_what_to_do(
    manifest: Manifest, beside: Release
) -> None:
    worker = Worker()
    try:
        with pytest.raises(NumericsMismatch, match="`atoll release add NUMBER` installs it"):
            await worker.run(
                CHECK_MACHINE(with_numerics(manifest, code_digest=bytes(32)).to_bytes())
            )
    finally:
        worker.kill()


def said_of(release: Release) -> Path:
    return release.folder / release.number / "release.json"


async def test_a_release_with_another_word_is_not_spoken_to(
    theirs: Manifest, beside: Release
) -> None:
    file = said_of(beside)
    before = file.read_bytes()
    try:
        file.write_bytes(before.replace(WORD.encode(), b"atoll-worker.v0"))
        with pytest.raises(NumericsMismatch, match=r"speaks atoll-worker\.v0"):
            handed_over(CHECK_MACHINE(theirs.to_bytes()))
        file.write_bytes(before.replace(beside.number.encode(), b"0.0.8"))
        work = handed_over(CHECK_MACHINE(theirs.to_bytes()))
        assert work is not None
        with pytest.raises(ConfigError, match="was changed since it was added"):
            work()
        file.write_bytes(b"{")
        with pytest.raises(ConfigError, match="cannot be read"):
            handed_over(CHECK_MACHINE(theirs.to_bytes()))
    finally:
        file.write_bytes(before)


def test_what_others_can_write_is_not_run(theirs: Manifest, beside: Release) -> None:
    beside.folder.chmod(0o777)
    try:
        with pytest.raises(ConfigError, match="written by others"):
            handed_over(CHECK_MACHINE(theirs.to_bytes()))
    finally:
        beside.folder.chmod(0o700)


def test_a_release_that_is_gone_leaves_no_work_to_our_code(
    theirs: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its jobs were joined while it was there: a round of other code costs the bond."""
    work, where = theirs.to_bytes(), str(tmp_path)
    (tmp_path / "file").write_text("no folder")
    calls: list[TaskCall[Any]] = [
        CHECK_DATA(work, where), MAKE_INITIAL_STATE(work, where), FIND_PROGRAM(work, where),
        INSPECT_STATE(work, b"", where), EVALUATE_STATE(work, b"", where),
    ]  # fmt: skip
    for folder in ("nowhere", "file"):
        monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / folder))
        for call in calls:
            with pytest.raises(NumericsMismatch, match="installs it beside this one"):
                handed_over(call)


def test_one_unreadable_release_stops_no_other(theirs: Manifest, beside: Release) -> None:
    other = beside.folder / "0.0.1" / "release.json"
    other.parent.mkdir()
    try:
        other.write_bytes(b"{")
        assert handed_over(CHECK_MACHINE(theirs.to_bytes())) is not None
    finally:
        other.unlink()
        other.parent.rmdir()


def test_an_answer_that_nobody_took_is_nobodys_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where memory ran out while it was read."""

    def fails(_: Peer) -> bytes:
        raise MemoryError

    peer = Peer((sys.executable, "-c", GREETS))
    monkeypatch.setattr(Peer, "_line", fails)
    with pytest.raises(MemoryError):
        peer.call(CHECK_MACHINE(b""))
    assert not peer.is_running


def test_our_own_jobs_are_done_here(manifest: Manifest, beside: Release) -> None:
    assert handed_over(CHECK_MACHINE(manifest.to_bytes())) is None
    assert handed_over(CHECK_MACHINE(b"no manifest")) is None
    assert handed_over(TaskCall(CHECK_MACHINE, (), {})) is None


def children(pid: int) -> set[int]:
    """Processes below one."""
    found = set[int]()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
        if parent == pid:
            found.add(int(status.parent.name))
    return found


def servant(worker: Worker) -> int:
    """The process of the other release that a worker has."""
    assert worker._pool is not None
    (own,) = worker._pool._processes
    (other,) = (pid for pid in children(own) if b"serve" in command_of(pid))
    return other


def test_the_other_releases_worker_ends_with_ours(theirs: Manifest) -> None:
    worker = Worker()
    asyncio.run(worker.run(CHECK_MACHINE(theirs.to_bytes())))
    other = servant(worker)
    worker.kill()
    ends = time.monotonic() + PATIENCE
    while b"serve" in command_of(other):
        assert time.monotonic() < ends
        time.sleep(0.02)


async def test_where_it_died_another_one_is_started(theirs: Manifest) -> None:
    worker = Worker()
    try:
        await worker.run(CHECK_MACHINE(theirs.to_bytes()))
        first = servant(worker)
        os.kill(first, signal.SIGKILL)
        with suppress(PeerDied):  # as the work was handed over, it may not have been seen to end
            await worker.run(CHECK_MACHINE(theirs.to_bytes()))
        await worker.run(CHECK_MACHINE(theirs.to_bytes()))
        assert servant(worker) != first
    finally:
        worker.kill()


GREETS = f"""
import sys
print('{{"word":"{WORD}","release":"1","digests":[]}}', flush=True)
sys.stdin.readline()
"""


def test_one_that_dies_at_work_is_told() -> None:
    peer = Peer((sys.executable, "-c", GREETS))
    assert peer.hello.release == "1"
    with pytest.raises(PeerDied, match="ended"):
        peer.call(CHECK_MACHINE(b""))
    assert not peer.is_running


@pytest.mark.parametrize(
    "command",
    [
        ("/nowhere/python",),
        (sys.executable, "-c", ""),
        (sys.executable, "-c", "print('Python 2')"),
        (sys.executable, "-c", "print('{}')"),
    ],
)
def test_what_is_no_worker_is_told(command: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="starts no worker of atoll"):
        Peer(command)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_release_is_added_listed_and_removed(last: Release, tmp_path: Path) -> None:
    wheel, releases = str(last_wheel(tmp_path)), tmp_path / "releases"
    add = ("release", "add", LAST, "--wheel", wheel, "--share-packages")
    wrong = ("release", "add", "0.0.8", "--wheel", wheel, "--share-packages")
    done = atoll(*wrong, releases=releases)
    assert done.returncode == 2 and f"is release {LAST}, not 0.0.8" in done.stderr
    assert not (releases / "0.0.8").exists()
    (releases / LAST / "bin").mkdir(parents=True)  # as if its making had been cut short
    listed = json.loads(atoll("release", "list", "--json", releases=releases).stdout)
    assert listed == []
    assert atoll(*add, releases=releases).returncode == 0
    again = atoll(*add, releases=releases)
    assert again.returncode == 2 and f"atoll release remove {LAST}" in again.stderr
    (one,) = json.loads(atoll("release", "list", "--json", releases=releases).stdout)
    assert (one["release"], one["digests"]) == (LAST, [last.digest.hex()])
    assert last.digest != code_digest()
    assert atoll("release", "remove", LAST, releases=releases).returncode == 0
    gone = atoll("release", "remove", LAST, releases=releases)
    assert gone.returncode == 2 and "is not there" in gone.stderr
    assert not (releases / LAST).exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("add", "../x"), "no number of a release"),
        (("add", "0.3.0", "--wheel", "/nowhere.whl"), "is no file"),
        (("remove", ".."), "no number of a release"),
    ],
)
def test_what_cannot_be_added_is_said(
    words: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    done = atoll("release", *words, releases=tmp_path)
    assert done.returncode == 2 and complaint in done.stderr
    assert not any(tmp_path.iterdir())


def test_where_pip_finds_nothing_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    done = atoll("release", "add", "0.3.0", releases=tmp_path)
    assert done.returncode == 2 and "pip could not install release 0.3.0" in done.stderr
    assert environments() == [] and not any(tmp_path.iterdir())
