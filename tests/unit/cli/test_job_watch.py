"""`atoll watch`: what happens on standard output, what a job waits for beside it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.dashboard.jobs import LIAR, finished, ledger_of
from tests.unit.protocol.script import Script
from typer.testing import CliRunner, Result

from atoll.cli.main import app
from atoll.cli.network_commands import Network
from atoll.errors import ConfigError
from atoll.job.job_snapshot import JobSnapshot
from atoll.job.job_update import JobUpdate
from atoll.job.ledger.history_rows import (
    RoundHistory,
    SeatHistory,
    round_history,
    seat_history,
)
from atoll.job.signs import Signs
from atoll.protocol.views import JobView

Watch = Callable[..., Result]


class _Handle(SimpleNamespace):
    """What a tracker asks of a script's job, beside what the command itself does."""

    id = 7

    def __init__(self, script: Script, **given: Any) -> None:
        super().__init__(script=script, **given)

    async def view(self) -> JobView:
        return self.script.net.view  # type: ignore[no-any-return]

    async def history(self) -> list[RoundHistory]:
        return round_history(ledger_of(self.script), [])

    async def seat_history(self) -> list[SeatHistory]:
        return seat_history(ledger_of(self.script))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Runs the command on a job that stands so, and in which one thing happened."""

    def run(script: Script, *more: str) -> Result:
        snapshot = JobSnapshot.of(script.net.view)

        async def status() -> JobSnapshot:
            return snapshot

        async def signs() -> Signs:
            return Signs.of(script.net.view)

        async def follow() -> AsyncIterator[JobUpdate]:
            event, block = script.net.log[-1]
            yield JobUpdate(type(event).__name__, "it happened", block, event, snapshot)

        @asynccontextmanager
        async def opened(self: Network) -> AsyncIterator[Any]:
            handle = _Handle(script, status=status, follow=follow, signs=signs)
            yield SimpleNamespace(attach=lambda job: handle)

        monkeypatch.setattr(Network, "open", opened)
        return CliRunner().invoke(app, ["watch", "7", *more], catch_exceptions=False)

    return run


def test_what_a_job_that_waits_lacks_is_said_first(watch: Watch) -> None:
    done = watch(Script.ready(seats=2, slots=3))
    assert done.stdout == "it happened\n"
    first, *_ = done.stderr.splitlines()
    assert first.startswith(
        "job 7 waits for members: 2 of 3 seats are held, 3 of 3 verifiers are ready. "
    )
    assert "`atoll job cancel 7`" in first


def test_of_a_job_that_runs_nothing_is_waited_for(watch: Watch) -> None:
    script = Script.ready()
    script.net.advance()
    assert "waits" not in watch(script).stderr


def test_what_speaks_against_the_models_is_said_at_the_end(watch: Watch) -> None:
    assert "warning" not in watch(Script.ready()).stderr
    lines = watch(finished()).stderr.splitlines()
    assert lines[0].startswith(f"warning    rounds 0, 1 are tainted: what seat {LIAR} sent")
    assert lines[-1].startswith("job 7 has ended")


def test_a_tracker_that_is_not_installed_ends_it_before_anything_is_told(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="wandb is not installed") as refused:
        watch(Script.ready(), "--log", "wandb")
    assert refused.value.next_step == "pip install 'atoll[wandb]'"
    assert watch(Script.ready(), "--log", "paper").exit_code == 2


def test_a_tracker_is_told_what_the_terminal_is(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[int] = []
    tracker = SimpleNamespace(log=lambda values, step: logged.append(step), close=lambda: None)
    monkeypatch.setattr("atoll.job.tracking.open_tracker", lambda *_: tracker)
    done = watch(finished(), "--log", "trackio")
    assert (done.exit_code, logged) == (0, [1, 2])
    assert done.stdout == "it happened\n"
