"""Signals end what a command has begun, in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from atoll_devnet.cli import app
from atoll_devnet.processes.ending import SIGNALS, run_until_told


@pytest.fixture(autouse=True)
def _not_under_nohup() -> Iterator[None]:
    """Under nohup these tests, too, would ignore SIGHUP, and wait for it for ever."""
    before = signal.getsignal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def told(number: signal.Signals, ended: list[str]) -> Callable[..., Awaitable[Any]]:
    """Work that is told to end while it waits, and for ever."""

    async def work(*_: object) -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # what ends it may wait, too
            ended.append(number.name)

    return work


@pytest.mark.parametrize("number", [*SIGNALS, signal.SIGINT])
def test_what_was_begun_is_ended_before_the_command(number: signal.Signals) -> None:
    before, ended = signal.getsignal(number), list[str]()
    with pytest.raises(KeyboardInterrupt):
        run_until_told(told(number, ended)())  # type: ignore[arg-type]
    assert ended == [number.name]
    assert signal.getsignal(number) is before


def test_what_ends_by_itself_has_a_result() -> None:
    async def work() -> int:
        return 7

    assert run_until_told(work()) == 7


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def work() -> bool:
        os.kill(os.getpid(), signal.SIGHUP)
        return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

    try:
        assert run_until_told(work())
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("demo", "atoll_devnet.run.runner.run"),
        ("run", "atoll_devnet.run.runner.run"),
        ("up", "atoll_devnet.run.standing.stand"),
    ],
)
def test_commands_that_start_a_network_end_it(
    command: str, runs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(runs, told(signal.SIGTERM, ended))
    done = CliRunner().invoke(app, [command])
    assert ended == ["SIGTERM"]
    assert done.exit_code == 130
