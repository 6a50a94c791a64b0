"""`atoll job continue` run again goes on with the job that it wrote, and replaces no file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.dashboard.jobs import finished
from typer.testing import CliRunner

from atoll.cli import job as jobs
from atoll.cli.job import app
from atoll.cli.network_commands import Network
from atoll.errors import ConfigError
from atoll.job.presets import preset
from atoll.job.signs import Signs
from atoll.job.spec import JobSpec

GO_ON = ("continue", "1", "--rounds", "3", "--max-spend", "1", "--yes", "--set", "inner.lr=0.01")


class Earlier:
    """A client of one job, whose newest model is another one each time."""

    def __init__(self) -> None:
        self.models = 0

    def attach(self, job: int) -> Earlier:
        return self

    async def signs(self) -> Signs:
        return Signs.of(finished().net.view)

    async def continued(self, folder: Path, rounds: int) -> JobSpec:
        self.models += 1
        return continued(f"model-{self.models}", folder, rounds)


def continued(name: str, folder: Path, rounds: int) -> JobSpec:
    folder.mkdir(exist_ok=True)
    named = {"name": name, "rounds": rounds, "init.folder": str(folder.absolute())}
    return preset("demo").but(named | {"model": None})


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the jobs that were submitted."""
    client, names = Earlier(), list[str]()

    @asynccontextmanager
    async def opened(network: Network) -> AsyncIterator[Earlier]:
        yield client

    def submit(network: Network, file: Path, payment: Any) -> None:
        names.append(JobSpec.read(file).name)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Network, "open", opened)
    monkeypatch.setattr(jobs, "submit_file", submit)
    return names


def go_on(*words: str) -> BaseException | None:
    return CliRunner().invoke(app, [*GO_ON, *words]).exception


def test_run_again_it_submits_the_file_that_is_there(submitted: list[str]) -> None:
    """A newer model would be another job, paid for once more."""
    assert go_on() is None
    assert go_on() is None
    assert submitted == ["model-1", "model-1"]
    file = Path("continued-1/job.toml")
    spec = JobSpec.read(file)
    assert (spec.rounds, spec.inner.lr) == (3, "0.01")
    file.write_text(file.read_text().replace('"model-1"', '"edited"'))
    assert go_on() is None
    assert submitted[-1] == "edited"
    assert go_on("--folder", "another") is None
    assert submitted[-1] == "model-2"


@pytest.mark.parametrize(
    "words", [("--rounds", "4"), ("--set", "inner.lr=0.02"), ("--set", "rounds=2")]
)
def test_a_file_that_says_otherwise_is_not_replaced(
    words: tuple[str, ...], submitted: list[str]
) -> None:
    go_on()
    before = Path("continued-1/job.toml").read_text()
    refused = go_on(*words)
    assert isinstance(refused, ConfigError) and "says otherwise" in str(refused)
    assert "atoll job submit continued-1/job.toml" in (refused.next_step or "")
    assert Path("continued-1/job.toml").read_text() == before
    assert submitted == ["model-1"]


@pytest.mark.parametrize("other", ["# A job, from the model of job 11. What", "# mine", b"\xff"])
def test_a_file_of_another_job_is_not_replaced(other: str | bytes, submitted: list[str]) -> None:
    Path("continued-1").mkdir()
    file = Path("continued-1/job.toml")
    file.write_bytes(other.encode() if isinstance(other, str) else other)
    before = file.read_bytes()
    refused = go_on()
    assert isinstance(refused, ConfigError) and "is no file of" in str(refused)
    assert file.read_bytes() == before and submitted == []


@pytest.mark.usefixtures("submitted")
def test_what_speaks_against_the_model_that_it_goes_on_from_is_said() -> None:
    done = CliRunner().invoke(app, GO_ON, catch_exceptions=False)
    assert "warning    rounds 0, 1 are tainted" in done.stderr
