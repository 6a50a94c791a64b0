"""The last clean model of a job that was really trained, written where a seat was found false."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.dashboard.jobs import items_of
from tests.unit.job.test_signs import lose
from tests.unit.job.trained import Gateways, InProcess, TrainedJob
from tests.unit.protocol.script import PROVIDERS
from typer.testing import CliRunner, Result

from atoll.cli.job import app
from atoll.errors import ConfigError
from atoll.job import delivery as delivering
from atoll.job.client import Client
from atoll.job.figures import Figures, model_of
from atoll.job.handle import JobHandle
from atoll.protocol.losses import loss_bytes
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import JobId
from atoll.protocol.views import JobView
from atoll.train.export import export_model
from atoll.train.stored_states import read_global_state
from atoll.train.tokenizer import open_belongings

LATE = 3
"""The seat that comes in a later round, and lies."""


@pytest.fixture(autouse=True)
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "Worker", InProcess)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedJob:
    """Three rounds; somebody takes seat 3 from the last one on."""
    made = TrainedJob.begin(tmp_path_factory.mktemp("trained"), rounds=3)
    made.script.net.leave_seat(PROVIDERS[LATE])
    made.round()
    made.script.net.join(PROVIDERS[LATE + 1], LATE)
    made.round()
    made.round()
    assert [LATE in settled_round.seats for settled_round in made.script.net.view.settled] == [
        False,
        False,
        True,
    ]
    return made


@pytest.fixture
def job(trained: TrainedJob) -> TrainedJob:
    """Who is slashed in it is slashed for one test; all its windows are over then."""
    return replace(trained, script=deepcopy(trained.script), gateways=Gateways())


@dataclass(frozen=True, slots=True)
class Handle(JobHandle):
    """Whose manifest needs no gateway."""

    known: Manifest

    async def manifest(self) -> Manifest:
        return self.known


@pytest.fixture
def figures(tmp_path: Path) -> Iterator[Figures]:
    kept = Figures(tmp_path / "figures.sqlite")
    yield kept
    kept.close()


def handle_of(job: TrainedJob, figures: Figures) -> Handle:
    net = job.script.net

    async def view(_job: int) -> JobView:
        return net.view

    client = SimpleNamespace(
        store=job.store,
        figures=figures,
        follower=SimpleNamespace(now=net.now, view=view),
        session=SimpleNamespace(follower=SimpleNamespace(history=lambda *_: items_of(job.script))),
        fetcher_of=lambda _job: job.gateways,
        submissions=SimpleNamespace(of_job=lambda _job: None),
        config=SimpleNamespace(poll_seconds=0),
    )
    return Handle(cast(Client, client), JobId(net.job), job.manifest)


def pass_windows(job: TrainedJob) -> None:
    net = job.script.net
    net.wait_until(net.settled[-1].ends["window"])


def run(handle: Handle, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Result:
    """The command, on this job."""

    @asynccontextmanager
    async def opened(_network: object) -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace(attach=lambda job: handle, follower=handle.client.follower)

    monkeypatch.setattr("atoll.cli.network_commands.Network.open", opened)
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def card(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "card.json").read_text())
    return told


async def test_the_model_before_who_was_found_false_came_is_written(
    job: TrainedJob, figures: Figures, tmp_path: Path
) -> None:
    lose(job.script, LATE, 2)
    pass_windows(job)
    handle = handle_of(job, figures)
    assert await handle.clean(tmp_path / "clean") == 2
    certified = job.script.net.view.settled[1].verdict.state
    told = card(tmp_path / "clean")
    assert (told["rounds_merged"], told["model_digest"]) == (2, certified.hex())
    assert told["signs"]["tainted"] == [] and told["signs"]["clean"] is None
    await handle.checkpoint(tmp_path / "second", 1)
    await handle.checkpoint(tmp_path / "last", 2)
    assert weights(tmp_path / "clean") == weights(tmp_path / "second")
    assert weights(tmp_path / "clean") != weights(tmp_path / "last")
    last = card(tmp_path / "last")["signs"]
    assert last["tainted"] == [{"round": 2, "seats": [LATE]}]
    assert last["clean"] == {"before": 2, "digest": certified.hex()}
    text = (tmp_path / "last" / "README.md").read_text()
    assert "What speaks against it" in text and certified.hex() in text
    assert "What speaks against it" not in (tmp_path / "clean" / "README.md").read_text()


async def test_where_the_first_round_is_tainted_it_is_the_model_that_the_job_began_with(
    job: TrainedJob, figures: Figures, tmp_path: Path
) -> None:
    lose(job.script, 1, 1)
    pass_windows(job)
    assert await handle_of(job, figures).clean(tmp_path / "clean") == 0
    assert card(tmp_path / "clean")["rounds"] == []
    first = read_global_state(job.manifest, job.openings[0], job.store).params
    belongings = open_belongings(job.store, job.manifest.data.tokenizer_cid)
    export_model(dict(first), job.manifest.model, belongings, tmp_path / "first")
    assert weights(tmp_path / "clean") == weights(tmp_path / "first")


async def test_where_nothing_is_tainted_the_result_is_clean(
    job: TrainedJob, figures: Figures, tmp_path: Path
) -> None:
    pass_windows(job)
    assert await handle_of(job, figures).clean(tmp_path / "clean") is None
    assert not (tmp_path / "clean").exists()


async def test_what_may_still_be_tainted_is_not_called_clean(
    job: TrainedJob, figures: Figures, tmp_path: Path
) -> None:
    lose(job.script, LATE, 2)
    with pytest.raises(ConfigError, match="has no result yet"):
        await handle_of(job, figures).clean(tmp_path / "clean")


def test_the_command_writes_the_clean_model_and_says_which(
    job: TrainedJob, figures: Figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(job.script, LATE, 2)
    pass_windows(job)
    handle = handle_of(job, figures)
    done = run(handle, monkeypatch, "result", 1, tmp_path / "clean", "--clean", "--json")
    told = json.loads(done.stdout)
    assert (told["clean_rounds"], "delivery" in told) == (2, False)
    assert "the model after round 1, the last clean one" in done.stderr
    assert card(tmp_path / "clean")["rounds_merged"] == 2


def test_a_result_that_holds_false_work_warns_and_names_the_option(
    job: TrainedJob, figures: Figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last round is merged once more without it; the others cannot be."""
    lose(job.script, 1, 1)
    pass_windows(job)
    done = run(handle_of(job, figures), monkeypatch, "result", 1, tmp_path / "model")
    assert "merged once more without seat 1" in done.stderr
    assert "warning    rounds 0, 1 are tainted: what seat 1 sent was merged" in done.stderr
    assert f"`atoll job result {job.script.net.job} DIR --clean`" in done.stderr
    told = card(tmp_path / "model")
    assert [item["round"] for item in told["signs"]["tainted"]] == [0, 1]


def test_a_result_out_of_which_all_of_it_was_merged_warns_of_nothing(
    job: TrainedJob, figures: Figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(job.script, LATE, 2)
    pass_windows(job)
    done = run(handle_of(job, figures), monkeypatch, "result", 1, tmp_path / "model")
    assert f"merged once more without seat {LATE}" in done.stderr
    assert "tainted" not in done.stderr
    assert card(tmp_path / "model")["signs"]["tainted"] == []


def test_status_says_what_speaks_against_the_models(
    job: TrainedJob, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = job.script.net.view
    assert "warning" not in run(handle_of(job, figures), monkeypatch, "status", 1).stdout
    lose(job.script, LATE, 2)
    for merged, loss in enumerate((5.0, 5.1, 5.2, 5.3)):
        model = model_of(view, merged)
        figures.note_loss(view.spec_digest, merged, model, loss_bytes(loss))
    text = run(handle_of(job, figures), monkeypatch, "status", 1).stdout
    assert f"warning    round 2 is tainted: what seat {LATE} sent was merged" in text
    assert "warning    the held-out loss rose 3 times running, in rounds 0 to 2" in text
    assert "held-out loss after round 2 5.300000 (+0.100000); it rose 3 times running" in text
    told = json.loads(run(handle_of(job, figures), monkeypatch, "status", 1, "--json").stdout)
    assert told["signs"]["tainted"] == [{"round": 2, "seats": [LATE]}]
    assert told["signs"]["rose"] == [{"from": 0, "to": 2}]


def test_a_checkpoint_says_what_speaks_against_it(
    job: TrainedJob, figures: Figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(job.script, LATE, 2)
    handle = handle_of(job, figures)
    told = [
        run(handle, monkeypatch, "checkpoint", 1, tmp_path / str(r), "--round", r).stderr
        for r in range(1, 3)
    ]
    assert "warning" not in told[0]
    assert "warning    round 2 is tainted" in told[1]
