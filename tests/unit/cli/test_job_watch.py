"""`atoll job watch`: what happens on standard output, what a job waits for beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.dashboard.jobs import LIAR, finished
from tests.unit.protocol.script import Script
from typer.testing import CliRunner, Result

from atoll.cli.main import app
from atoll.cli.network_commands import Network
from atoll.job.job_snapshot import JobSnapshot
from atoll.job.job_update import JobUpdate
from atoll.job.signs import Signs

Watch = Callable[[Script], Result]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Runs the command on a job that stands so, and in which one thing happened."""

    def run(script: Script) -> Result:
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
            handle = SimpleNamespace(status=status, follow=follow, signs=signs)
            yield SimpleNamespace(attach=lambda job: handle)

        monkeypatch.setattr(Network, "open", opened)
        return CliRunner().invoke(app, ["job", "watch", "7"], catch_exceptions=False)

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
