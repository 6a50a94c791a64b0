"""Rewards, counted by whoever looks: of a job that was really trained."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest
from tests.support.manifests import whole_manifest
from tests.unit.job.trained import Gateways, InProcess, TrainedJob
from tests.unit.protocol.script import Script

from atoll.job.figures import Figures, RoundFigures, known
from atoll.job.own_rewards import measure_rewards_here
from atoll.job.prepare_manifest import prepare_task
from atoll.job.presets import preset
from atoll.job.signs import merged_seats
from atoll.job.spec import JobSpec
from atoll.job.submissions import key_of
from atoll.job.toml_files import to_toml
from atoll.protocol.manifest import Manifest
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.service import tasks
from atoll.service.duties.sampled import Sampled, mean_of
from atoll.storage.local import LocalStore

SHAPE = {"width": 16, "layers": 1, "heads": 2, "kv_heads": 1, "head_dim": 8, "ffn": 24, "seq": 16}
ANYTHING = {"kind": "length", "weight": 250, "least": 0, "most": 8}


def write_rows(path: Path, answer: str) -> str:
    rows = ({"prompt": chr(97 + i) * 4, "answer": answer} for i in range(6))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def rl_spec(folder: Path) -> JobSpec:
    """Every answer is worth a quarter: it is no longer than it may be, and never right."""
    plain = preset("nano")
    assert plain.model is not None
    task = {
        "prompts": [write_rows(folder / "problems.jsonl", "no such answer")],
        "held_out": [write_rows(folder / "held-out.jsonl", "nor such")],
        "group": 4, "new_tokens": 4, "rewards": [{"weight": 750}, ANYTHING],
    }  # fmt: skip
    model = plain.model.model_copy(update=SHAPE)
    return plain.but({"model": model, "task": task, "evaluate.batches": 0})


def begun(folder: Path, spec: JobSpec) -> TrainedJob:
    store = LocalStore(folder / "store")
    made = prepare_task(spec, store)
    text = whole_manifest(
        {
            "model": SHAPE,
            "inner": {"batch": 8, "micro_batch": 8, "steps": 2, "segment": 1},
            "data": made.data.model_dump(),
            "terms": {"steps": 2, "segment_steps": 1, "tokens_per_step": 8 * 16, "seats": 4},
        },
        "small",
    )
    manifest = Manifest.model_validate(text.model_dump() | {"task": made.task.model_dump()})
    initial = tasks.make_initial_state(manifest.to_bytes(), str(store.root)).cid
    return TrainedJob(store, manifest, Script.ready(manifest.terms), initial)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> JobSpec:
    return rl_spec(tmp_path_factory.mktemp("spec"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, spec: JobSpec) -> TrainedJob:
    """Two rounds."""
    made = begun(tmp_path_factory.mktemp("trained"), spec)
    for _ in range(2):
        made.round()
    return made


@pytest.fixture
def job(trained: TrainedJob) -> TrainedJob:
    return replace(trained, gateways=Gateways())


@pytest.fixture
def figures(tmp_path: Path) -> Iterator[Figures]:
    made = Figures(tmp_path / "figures.sqlite")
    yield made
    made.close()


def counted(
    job: TrainedJob, figures: Figures, spec: JobSpec | None = None, gone: set[int] | None = None
) -> list[RoundFigures]:
    """As a stranger sees it, or as who submitted the spec does."""
    handle = job.handle()
    written = None if spec is None else SimpleNamespace(spec=to_toml(spec))
    handle.client.figures = figures  # type: ignore[misc]
    handle.client.submissions = SimpleNamespace(of_job=lambda _: written)  # type: ignore[misc]
    asyncio.run(measure_rewards_here(handle, job.manifest, InProcess(), gone))  # type: ignore[arg-type]
    return known(figures, job.script.net.view)


def counted_seats(
    figures: Figures, view: JobView, settled: SettledRound
) -> dict[int, Sampled | None]:
    """Of the seats that were merged."""
    roots = {seat: settled.reveals[seat].reveal.update_root for seat in merged_seats(view, settled)}
    return {seat: figures.sampled(view.spec_digest, root) for seat, root in roots.items()}


def test_each_rounds_rewards_are_the_mean_of_its_seats(job: TrainedJob, figures: Figures) -> None:
    first, *rounds = counted(job, figures)
    assert (first.is_known, first.sampled) == (False, None)
    view = job.script.net.view
    for settled, item in zip(view.settled, rounds, strict=True):
        seats = counted_seats(figures, view, settled)
        assert len(seats) == settled.verdict.merged > 1
        assert item.sampled == mean_of([seat for seat in seats.values() if seat is not None])
        assert item.sampled is not None
        assert item.sampled.reward == 0.25
        assert 0 < item.sampled.length <= 4
        assert item.sampled.spread == 0  # all of a group are worth the same
        assert "a mean reward of 0.2500 in " in item.text()
        assert "held-out" not in item.text()
    job.gateways.gone = set(job.updates.values())  # what is kept is not asked for again
    assert counted(job, figures)[1:] == rounds


def test_a_seat_whose_update_nobody_serves_is_left_out(job: TrainedJob, figures: Figures) -> None:
    view = job.script.net.view
    first = view.settled[0]
    withheld = merged_seats(view, first)[-1]
    job.gateways.gone, gone = {job.updates[0, withheld]}, set[int]()
    rounds = counted(job, figures, gone=gone)
    seats = counted_seats(figures, view, first)
    assert [seat for seat, sampled in seats.items() if sampled is None] == [withheld]
    assert gone == {0}
    assert all(item.sampled for item in rounds[1:])


def test_its_submitter_knows_what_models_answer_to_what_it_kept(
    job: TrainedJob, figures: Figures, spec: JobSpec
) -> None:
    rounds = counted(job, figures, spec)
    assert [item.held_out_reward for item in rounds] == [0.25] * 3
    assert rounds[0].text() == "held-out reward before training 0.2500"
    assert rounds[2].to_json_value()["held_out_reward"] == 0.25


def test_what_was_kept_back_is_no_part_of_the_job(spec: JobSpec, tmp_path: Path) -> None:
    without = spec.but({"task.held_out": ()})
    prepared = [prepare_task(each, LocalStore(tmp_path / "store")) for each in (spec, without)]
    assert prepared[0] == prepared[1]
    data = prepared[0].data
    assert key_of(spec, data, None) == key_of(without, data, None)


def test_seats_count_alike() -> None:
    some = [Sampled(0.25, 2.0, 0.0), Sampled(0.75, 4.0, 1.0)]
    assert mean_of(some) == Sampled(fmean((0.25, 0.75)), 3.0, 0.5)
    assert mean_of([]) is None
