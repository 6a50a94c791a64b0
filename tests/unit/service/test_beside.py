"""Work beside other work: it ends with it, and whoever waits for its end can be ended too."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from atoll.errors import ChainError
from atoll.service.background_tasks import background_tasks, end, ended_by


async def for_ever(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("ended")


async def slow_to_end(ending: asyncio.Event, may_end: asyncio.Event) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ending.set()
        await may_end.wait()


async def test_what_goes_on_beside_ends_with_the_context() -> None:
    ended: list[str] = []
    async with background_tasks([for_ever(ended), for_ever(ended)]):
        await asyncio.sleep(0)
        assert ended == []
    assert ended == ["ended", "ended"]


async def test_what_ended_one_of_them_is_raised() -> None:
    async def fails() -> None:
        raise ChainError("nobody answers")

    ended: list[str] = []
    with pytest.raises(ChainError, match="nobody answers"):
        async with background_tasks([fails(), for_ever(ended)]):
            await asyncio.sleep(0)
    assert ended == ["ended"]


async def test_a_context_ends_at_once_where_its_work_fails() -> None:
    async def fails() -> None:
        raise ChainError("nobody answers")

    with pytest.raises(ChainError, match="nobody answers"):
        async with ended_by(fails()):
            await asyncio.Event().wait()
    await asyncio.sleep(0)  # nobody is cancelled any more


async def test_a_context_goes_on_when_its_work_is_done_and_ends_what_is_not() -> None:
    async def works() -> None:
        return None

    ended: list[str] = []
    async with ended_by(works()):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    async with ended_by(for_ever(ended)):
        await asyncio.sleep(0)
    with pytest.raises(KeyError):
        async with ended_by(for_ever(ended)):
            await asyncio.sleep(0)
            raise KeyError
    assert ended == ["ended", "ended"]


async def test_whoever_cancels_a_context_finds_it_cancelled() -> None:
    ended: list[str] = []

    async def body() -> None:
        async with ended_by(for_ever(ended)):
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["ended"]


async def test_nothing_ends_at_once() -> None:
    await end([])


async def test_who_waits_for_an_end_can_be_cancelled_meanwhile() -> None:
    ending, may_end = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(slow_to_end(ending, may_end))
    await asyncio.sleep(0)
    waiter = asyncio.create_task(end([task]))
    await ending.wait()
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    may_end.set()
    await asyncio.wait([task])
    assert task.cancelled()


def test_ctrl_c_while_a_context_closes_is_not_lost() -> None:
    """As a submitter's client closes, after it has said which job it is."""

    async def work() -> str:
        ending, may_end = asyncio.Event(), asyncio.Event()
        async with background_tasks([slow_to_end(ending, may_end), interrupt(ending, may_end)]):
            await asyncio.sleep(0)
        return "closed, and went on"

    async def interrupt(ending: asyncio.Event, may_end: asyncio.Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await ending.wait()
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)
            may_end.set()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work())
