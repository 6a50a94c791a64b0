"""What an experiment tracker is told of a job, and by which library."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from tests.unit.dashboard.jobs import finished, ledger_of
from tests.unit.protocol.script import Script

from atoll.errors import ConfigError
from atoll.job import trackers
from atoll.job.figures import RoundFigures
from atoll.job.followed import FollowedJob
from atoll.job.job_snapshot import JobSnapshot
from atoll.job.job_update import JobUpdate
from atoll.job.ledger.history_rows import (
    RoundHistory,
    SeatHistory,
    round_history,
    seat_history,
)
from atoll.job.trackers import TrackerName, open_tracker
from atoll.job.tracking import tracking
from atoll.protocol.losses import loss_bytes
from atoll.protocol.views import JobView

NEEDS = {
    TrackerName.TRACKIO: ["trackio"],
    TrackerName.WANDB: ["wandb"],
    TrackerName.TENSORBOARD: ["torch", "tensorboard"],
}


class Steps:
    """A tracker that keeps what it is told."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, Mapping[str, float]]] = []
        self.is_closed = False

    def log(self, values: Mapping[str, float], step: int) -> None:
        assert not self.is_closed
        self.logged.append((step, values))

    def close(self) -> None:
        self.is_closed = True

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.logged]


class Followed:
    """A job whose losses become known as a test says."""

    id = 7

    def __init__(self, script: Script, losses: list[float | None]) -> None:
        self.ledger, self.losses, self.looks = ledger_of(script), losses, 0

    async def view(self) -> JobView:
        return self.ledger.view

    async def history(self) -> list[RoundHistory]:
        self.looks += 1
        bits = [None if loss is None else loss_bytes(loss) for loss in self.losses]
        return round_history(self.ledger, [RoundFigures(i, item) for i, item in enumerate(bits)])

    async def seat_history(self) -> list[SeatHistory]:
        return seat_history(self.ledger)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    kept = Steps()
    monkeypatch.setattr("atoll.job.tracking.open_tracker", lambda *_: kept)
    return kept


def settled(script: Script, rounds: int) -> JobUpdate:
    snapshot = replace(JobSnapshot.of(script.net.view), settled_rounds=rounds)
    return JobUpdate("Settled", "it is settled", snapshot.block, None, snapshot)


async def test_each_round_is_logged_once_when_its_loss_is_known(steps: Steps) -> None:
    script = finished()
    job = Followed(script, [4.0, 3.0, None])
    async with tracking(cast(FollowedJob, job), TrackerName.WANDB) as track:
        await track(settled(script, 1))
        assert (steps.steps, job.looks) == ([], 0)
        await track(RoundFigures(1, None, loss_bytes(3.0)))
        assert steps.steps == [0, 1]
        await track(settled(script, 2))
        assert steps.steps == [0, 1]
        job.losses[2] = 2.5
        await track(RoundFigures(2, loss_bytes(2.5)))
        assert steps.steps == [0, 1, 2]
        assert not steps.is_closed
    assert (steps.steps, steps.is_closed) == ([0, 1, 2], True)
    losses = [values["round/loss"] for _, values in steps.logged]
    assert losses == [4.0, 3.0, 2.5]


async def test_of_an_old_job_one_look_logs_all_and_the_end_what_has_no_loss(steps: Steps) -> None:
    script = finished()
    job = Followed(script, [])
    async with tracking(cast(FollowedJob, job), TrackerName.TRACKIO) as track:
        for count in (1, 2):
            await track(settled(script, count))
        # A committee would have certified the loss of the first with the second.
        assert (steps.steps, job.looks) == ([1], 1)
    assert steps.steps == [1, 2]
    assert "round/loss" not in steps.logged[0][1]


async def test_rounds_and_seats_have_groups_of_their_own(steps: Steps) -> None:
    script, terms = finished(), finished().net.terms
    job = Followed(script, [4.0, 3.0, 2.5])
    async with tracking(cast(FollowedJob, job), TrackerName.TENSORBOARD) as track:
        await track(RoundFigures(2, loss_bytes(2.5)))
    _, first, second = (values for _, values in steps.logged)
    assert {name.partition("/")[0] for name in first} == {"round", *(f"seat_{i}" for i in range(4))}
    assert first["seat_0/segments"] == terms.segments
    assert "seat_2/seconds" not in second  # it did not commit
    rows = await job.history()
    assert second["round/total_cost"] == rows[-1].total_cost


async def test_an_interrupted_watch_closes_the_run_and_logs_no_guess(steps: Steps) -> None:
    job = Followed(finished(), [])
    with pytest.raises(KeyboardInterrupt):
        async with tracking(cast(FollowedJob, job), TrackerName.WANDB):
            raise KeyboardInterrupt
    assert (steps.steps, steps.is_closed) == ([], True)


async def test_without_a_tracker_nothing_is_looked_at() -> None:
    job = Followed(finished(), [4.0, 3.0, 2.5])
    async with tracking(cast(FollowedJob, job), None) as track:
        await track(RoundFigures(2, loss_bytes(2.5)))
    assert job.looks == 0


class Library(ModuleType):
    """`init`, `log` and `finish` as trackio and wandb have them; and they print."""

    def __init__(self) -> None:
        super().__init__("library")
        self.calls: list[Any] = []

    def init(self, **given: Any) -> Library:
        print("* started")  # noqa: T201 - as trackio does
        self.calls.append(given)
        return self

    def log(self, values: Mapping[str, float], step: int) -> None:
        print("logged")  # noqa: T201
        self.calls.append((dict(values), step))

    def finish(self) -> None:
        print("* finished")  # noqa: T201
        self.calls.append("finish")


@pytest.mark.parametrize("name", [TrackerName.TRACKIO, TrackerName.WANDB])
def test_a_run_has_a_project_a_name_and_the_jobs_terms(
    name: TrackerName, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library = Library()
    monkeypatch.setitem(sys.modules, name.value, library)
    run = open_tracker(name, "job-7", {"rounds": 2})
    run.log({"round/loss": 3.0}, 1)
    run.close()
    begun = {"project": "atoll", "name": "job-7", "config": {"rounds": 2}}
    assert library.calls == [begun, ({"round/loss": 3.0}, 1), "finish"]
    out, err = capsys.readouterr()
    assert (out, err) == ("", "* started\nlogged\n* finished\n")


@pytest.mark.parametrize("name", list(TrackerName))
def test_what_is_installed_takes_a_round_and_what_is_not_is_named(
    name: TrackerName, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the real library in this process where it is there."""
    monkeypatch.chdir(tmp_path)
    for variable in ("TRACKIO_DIR", "WANDB_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / "written"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "written").mkdir()
    if any(find_spec(module) is None for module in NEEDS[name]):
        with pytest.raises(ConfigError, match=f"logging to {name.value} is not possible") as lacks:
            open_tracker(name, "job-7", {})
        assert lacks.value.next_step == f"pip install 'atoll[{name.value}]'"
        return
    run = open_tracker(name, "job-7", {"rounds": 1})
    run.log({"round/loss": 4.0}, 0)
    run.log({"round/loss": 3.0, "seat_0/tokens": 12}, 1)
    run.close()
    assert any(file.is_file() and file.stat().st_size for file in tmp_path.rglob("*"))


def test_a_library_that_misses_a_part_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="wandb is not installed"):
        open_tracker(TrackerName.WANDB, "job-7", {})


def test_every_tracker_has_an_extra_of_its_name() -> None:
    root = Path(trackers.__file__).parents[3]
    text = (root / "pyproject.toml").read_text()
    for name in TrackerName:
        assert f"\n{name.value} = [" in text
