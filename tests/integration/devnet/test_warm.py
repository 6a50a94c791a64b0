"""A member's process: warm at once, a session of its own, its output in its log."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.devnet.member import LOGS_TO_STDERR

from atoll.service.worker import Worker
from atoll_devnet.processes.process import ProcessFailed
from atoll_devnet.processes.warm import FORKS, MemberProcess, warm_context

Make = Callable[..., MemberProcess]
SAID = f"torch is loaded: {FORKS}\n"


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """A pipe that a member writes to once it runs."""
    os.mkfifo(tmp_path / "started")
    return tmp_path / "started"


@pytest.fixture
def make(started: Path) -> Iterator[Make]:
    members: list[MemberProcess] = []

    def new(*arguments: str) -> MemberProcess:
        log = started.with_name("log")
        members.append(
            MemberProcess("a member", "tests.unit.devnet.member", [str(started), *arguments], log)
        )
        return members[-1]

    yield new
    for member in members:
        member.kill()


def test_a_member_starts_warm_is_killed_and_starts_again(make: Make, started: Path) -> None:
    member = make()
    assert not member.is_running
    for times in (1, 2):
        member.start()
        started.read_text()
        assert member.is_running
        (process,) = multiprocessing.active_children()
        assert process.pid is not None
        assert os.getpgid(process.pid) == process.pid
        assert member.log_file.read_text() == SAID * times
        member.kill()
        assert not member.is_running


def test_a_member_ends_when_asked_to(make: Make, started: Path) -> None:
    member = make()
    member.start()
    started.read_text()
    member.request_stop()
    for process in multiprocessing.active_children():
        process.join()
    assert not member.is_running
    member.stop()


def test_why_a_member_ended_by_itself_is_in_its_log(make: Make, started: Path) -> None:
    member = make("no such luck")
    member.start()
    started.read_text()
    for process in multiprocessing.active_children():
        process.join()
    assert not member.is_running
    assert "RuntimeError: no such luck" in member.log_file.read_text()
    with pytest.raises(ProcessFailed, match="a member ended with code 1: RuntimeError: no such"):
        member.check()


def test_who_runs_was_killed_or_told_to_stop_is_not_complained_of(
    make: Make, started: Path
) -> None:
    member = make()
    member.check()
    for end in (member.kill, member.stop):
        member.start()
        started.read_text()
        member.check()
        end()
        member.check()


def test_a_warm_worker_logs_to_standard_error() -> None:
    worker = Worker(context=warm_context())
    try:
        assert asyncio.run(worker.run(LOGS_TO_STDERR()))
    finally:
        worker.kill()
