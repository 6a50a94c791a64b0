"""Who sends holds the home; who watches holds nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.job import sending
from atoll.job.sending import Sender
from atoll.service.lock import FolderHeld, hold_folder, holder_of


class Queue:
    """What is opened, and whether it is at work."""

    def __init__(self) -> None:
        self.is_open, self.works = True, False

    async def run(self) -> None:
        self.works = True
        try:
            await asyncio.Event().wait()
        finally:
            self.works = False

    def close(self) -> None:
        assert not self.works
        self.is_open = False


class Home:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[Queue] = []
        self.sender = Sender(path, self._open)

    def _open(self) -> Any:
        assert holder_of(self.path) is not None
        self.opened.append(Queue())
        return cast(Any, self.opened[-1])


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def test_the_home_is_held_while_something_is_sent_and_no_longer(home: Home) -> None:
    assert holder_of(home.path) is None
    for opened in (1, 2):
        async with home.sender.queue() as queue:
            assert holder_of(home.path) is not None
            assert queue is cast(Any, home.opened[-1])
        assert holder_of(home.path) is None
        assert [queue.is_open for queue in home.opened] == [False] * opened


async def test_tasks_of_one_client_share_it(home: Home) -> None:
    inside, leave = asyncio.Semaphore(0), asyncio.Event()

    async def send() -> None:
        async with home.sender.queue():
            inside.release()
            await leave.wait()

    tasks = [asyncio.create_task(send()) for _ in range(3)]
    for _ in tasks:
        await inside.acquire()
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    assert [queue.is_open for queue in home.opened] == [True]
    leave.set()
    await asyncio.gather(*tasks[1:])
    assert (holder_of(home.path), home.opened[0].is_open) == (None, False)


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
async def test_whatever_ends_a_transaction_lets_go_of_the_home(
    home: Home, error: type[BaseException]
) -> None:
    with pytest.raises(error):
        async with home.sender.queue():
            raise error
    assert (holder_of(home.path), home.opened[0].is_open) == (None, False)
    async with home.sender.queue():
        pass


async def test_a_file_that_cannot_be_opened_lets_go_of_the_home(tmp_path: Path) -> None:
    def fail() -> Any:
        raise ValueError

    sender = Sender(tmp_path, fail)
    with pytest.raises(ValueError):
        async with sender.queue():
            pass
    assert holder_of(tmp_path) is None


async def test_another_client_s_transaction_is_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, done = Home(home.path), list[str]()
    monkeypatch.setattr(sending, "PAUSE_S", 0.0)

    async def second() -> None:
        async with other.sender.queue():
            done.append("second")

    async with home.sender.queue():
        waits = asyncio.create_task(second())
        for _ in range(50):
            await asyncio.sleep(0)
        assert other.opened == []
        done.append("first")
    await waits
    assert done == ["first", "second"]


async def test_one_that_does_not_end_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "PATIENCE_S", 0.0)
    with hold_folder(home.path), pytest.raises(FolderHeld, match="another client sends") as refused:
        async with home.sender.queue():
            pass
    assert f"process {os.getpid()} runs in" in str(refused.value)
    assert refused.value.exit_code == 6
    assert "end it" in (refused.value.next_step or "")
    async with home.sender.queue():
        pass
