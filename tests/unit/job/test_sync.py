"""The client whose calls wait: the same names, in a script and where an event loop runs."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.dashboard.jobs import finished
from tests.unit.dashboard.scripted import ScriptedClient

import atoll.sync
from atoll.chain.deployment import Deployment
from atoll.errors import ChainError, ConfigError
from atoll.job.client import Client
from atoll.job.handle import JobHandle
from atoll.job.loop_thread import LoopThread, run
from atoll.protocol.types import JobId

INSIDE = {"allow", "transact", "sending", "fetcher_of", "check_reach", "stop_bringing"}
"""Of the client: what its handles use, and no submitter calls."""


@pytest.fixture
def job() -> Any:
    """A script's job, asked by a thread's loop."""
    script = finished()
    client = ScriptedClient(script)
    with LoopThread() as thread:
        handle = JobHandle(cast(Client, client), JobId(script.net.job))
        yield atoll.sync.Job(handle, thread)


def methods(of: type, kinds: tuple[Callable[[Any], bool], ...]) -> set[str]:
    members = inspect.getmembers(of)
    return {name for name, item in members if name[0] != "_" and any(kind(item) for kind in kinds)}


def test_a_job_has_every_name_of_the_handle() -> None:
    names = {name for name in dir(JobHandle) if name[0] != "_"}
    assert names - {"client"} == {name for name in dir(atoll.sync.Job) if name[0] != "_"}


def test_the_client_has_every_call_that_a_submitter_makes() -> None:
    waits = methods(Client, (inspect.iscoroutinefunction, inspect.isasyncgenfunction))
    names = {name for name in dir(atoll.sync.Client) if name[0] != "_"}
    assert waits - INSIDE <= names
    assert names - {"open"} <= set(dir(Client))


@pytest.mark.parametrize("of", [atoll.sync.Job, atoll.sync.Client])
def test_nothing_of_it_has_to_be_awaited(of: type) -> None:
    assert methods(of, (inspect.iscoroutinefunction, inspect.isasyncgenfunction)) == set()


def test_a_call_keeps_its_words_and_parameters() -> None:
    for name in ("result", "status", "history", "watch"):
        mine, theirs = getattr(atoll.sync.Job, name), getattr(JobHandle, name)
        assert mine.__doc__ == theirs.__doc__
        assert inspect.signature(mine) == inspect.signature(theirs)


def test_a_call_waits_for_what_the_handle_says(job: atoll.sync.Job) -> None:
    assert (job.view().job_id, repr(job)) == (job.id, f"Job({job.id})")
    assert [len(job.ledger().times), len(job.view().settled)] == [2, 2]


async def test_it_waits_where_an_event_loop_runs(job: atoll.sync.Job) -> None:
    assert asyncio.get_running_loop().is_running()
    assert job.view().job_id == job.id


def test_an_error_is_the_handles(job: atoll.sync.Job) -> None:
    other = atoll.sync.Job(JobHandle(job._asked.client, JobId(99)), job._thread)
    with pytest.raises(ChainError, match="no job 99"):
        other.view()


def test_what_is_followed_comes_one_by_one() -> None:
    class Counted:
        async def watch(self) -> AsyncIterator[int]:
            for number in range(3):
                yield number

    each = atoll.sync._iterates(cast(Any, Counted.watch))
    with LoopThread() as thread:
        asked = SimpleNamespace(_asked=Counted(), _thread=thread)
        items = each(asked)
        assert next(items) == 0
        assert list(items) == [1, 2]


def test_an_iteration_that_is_left_ends_what_it_followed() -> None:
    ended = threading.Event()

    async def watch(_: object) -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    with LoopThread() as thread:
        for _ in atoll.sync._iterates(watch)(SimpleNamespace(_asked=None, _thread=thread)):
            break
        assert ended.wait(60)


def test_an_interrupted_wait_has_ended_what_it_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C does: it comes while the caller waits for the future."""
    begun, cleaned = threading.Event(), []

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    def interrupted(_: object) -> None:
        begun.wait()
        raise KeyboardInterrupt

    with LoopThread() as thread:
        with monkeypatch.context() as patch:
            patch.setattr("concurrent.futures.Future.result", interrupted)
            with pytest.raises(KeyboardInterrupt):
                thread.wait_for(work)
        assert cleaned == ["up"]
        assert thread.call(lambda: "it goes on") == "it goes on"


async def test_a_coroutine_runs_where_an_event_loop_runs_and_where_none_does() -> None:
    async def where() -> int:
        await asyncio.sleep(0)
        return threading.get_ident()

    assert run(where) != threading.get_ident()
    there = await asyncio.to_thread(lambda: (run(where), threading.get_ident()))
    assert there[0] == there[1]


def test_a_client_that_is_not_open_says_so() -> None:
    client = atoll.sync.Client("http://127.0.0.1:1", Deployment(31337, 0, {}))
    for call in (client.jobs, client.serve, lambda: client.attach(7)):
        with pytest.raises(ConfigError, match="the client is not open"):
            call()
    client.close()


def test_it_opens_once_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    async def enter(self: Client) -> Client:
        calls.append("opened")
        return self

    async def close(self: Client) -> None:
        calls.append("closed")

    monkeypatch.setattr(Client, "__aenter__", enter)
    monkeypatch.setattr(Client, "close", close)
    with atoll.sync.Client("http://127.0.0.1:1", Deployment(31337, 0, {})).open() as client:
        assert client.attach(7).id == 7
        assert calls == ["opened"]
    assert calls == ["opened", "closed"]
    with pytest.raises(ConfigError, match="not open"):
        client.jobs()


def test_what_cannot_be_opened_is_closed_and_can_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    async def enter(self: Client) -> Client:
        calls.append("tried")
        raise ChainError("no endpoint answers")

    async def close(self: Client) -> None:
        calls.append("closed")

    monkeypatch.setattr(Client, "__aenter__", enter)
    monkeypatch.setattr(Client, "close", close)
    client = atoll.sync.Client("http://127.0.0.1:1", Deployment(31337, 0, {}))
    before = threading.active_count()
    for _ in range(2):
        with pytest.raises(ChainError, match="no endpoint"):
            client.open()
    assert calls == ["tried", "closed"] * 2
    assert threading.active_count() == before
