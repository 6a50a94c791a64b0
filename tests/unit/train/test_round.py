"""A round leaves a trace that anyone can check, and can be taken up where it stopped."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.unit.train.factories import NEXT, Job, reveal_of

from atoll.bits.errors import MalformedDataset, MalformedState
from atoll.bits.layout import seat_layout
from atoll.bits.outer import outer_step
from atoll.bits.sections import UpdateLayout
from atoll.bits.segment import run_segment
from atoll.bits.state import SeatState
from atoll.bits.step import state_roots
from atoll.content.cid import Cid
from atoll.errors import MalformedTrace, NotFound, ProtocolError
from atoll.law.manifest import Manifest
from atoll.law.trace import LeafKind, TraceDocument, work_word
from atoll.law.words import ZERO_DIGEST, Attempt, Digest, SeatIndex
from atoll.train.course import open_course, open_training_tokens
from atoll.train.round import (
    RoundProgress,
    TrainedRound,
    TrainTask,
    read_seat_state,
    train_round,
)


def check(trained: TrainedRound, task: TrainTask) -> None:
    """What every verifier checks of a trace before it replays anything."""
    document = TraceDocument.from_bytes(trained.document.to_bytes())
    document.check(reveal_of(trained), task.manifest, task.slot, task.seat)
    document.check_batches(task.manifest, task.data_seed)


def diverging(job: Job) -> Job:
    """The learning rate throws the parameters beyond all bounds within a few steps."""
    return job.with_inner(lr="10000", weight_decay="1000", warmup_steps=0)


def test_the_trace_is_whole(job: Job, trained: TrainedRound) -> None:
    check(trained, job.task)
    trained.document.check_opening(job.model.params_root(), ZERO_DIGEST)
    assert (trained.steps, trained.reset, trained.diverged) == (8, True, False)
    assert len(trained.document.leaves) == 4
    assert len(trained.losses) == 8
    assert trained.losses[-1] < trained.losses[0]
    assert trained.seconds_in_steps > 0
    stored = job.blob(trained.trace_cid)
    assert TraceDocument.from_bytes(stored) == trained.document
    assert job.blob(trained.update_cid) == trained.update


def test_every_state_is_in_the_store_under_its_digest(job: Job, trained: TrainedRound) -> None:
    for i, (cid, roots) in enumerate(
        zip(trained.document.states, trained.document.state_roots, strict=True)
    ):
        state = read_seat_state(job.manifest, cid, job.store)
        assert state_roots(state) == roots
        assert (state.count, state.batches) == (2 * i, 2 * i)


def test_the_same_task_gives_the_same_bytes(job: Job, trained: TrainedRound) -> None:
    again = train_round(job.task, job.store)
    assert again.document == trained.document
    assert again.update == trained.update


@pytest.mark.parametrize(
    "changes",
    [{"data_seed": Digest(b"\x06" * 32)}, {"seat": SeatIndex(3)}, {"slot": NEXT}],
    ids=lambda changes: next(iter(changes)),
)
def test_another_task_gives_another_state(
    job: Job, trained: TrainedRound, changes: dict[str, object]
) -> None:
    other = train_round(replace(job.task, **changes), job.store)  # type: ignore[arg-type]
    assert other.document.leaves[-1].state_digest != trained.document.leaves[-1].state_digest


def test_a_leafs_work_word_is_of_every_step_and_micro_batch(
    job: Job, trained: TrainedRound
) -> None:
    course = open_course(job.manifest, job.task.data_seed, job.task.seat, 0, job.store)
    first = run_segment(SeatState.opening(job.model, None, seat_layout(job.manifest)), 0, course)
    assert [len(step.losses) for step in first.works] == [2, 2]
    assert trained.document.leaves[0].work_word == first.work_word
    for step in range(2):
        norm, losses = first.works[step]
        for other in (
            first.works[step]._replace(norm=math.nextafter(norm, 0.0)),
            first.works[step]._replace(losses=(losses[1], losses[0])),
            first.works[step]._replace(losses=losses[:1]),
        ):
            works = [other if i == step else work for i, work in enumerate(first.works)]
            assert work_word(works) != first.work_word


def test_the_update_is_the_link_on_the_rounds_grid(job: Job, trained: TrainedRound) -> None:
    last = read_seat_state(job.manifest, trained.document.states[-1], job.store)
    layout = UpdateLayout.of(job.manifest, job.model.shapes, 0)
    row = layout.open(trained.update, job.model, job.task.dither).delta
    merged = {
        name: torch.from_numpy(row[span].copy()).reshape(shape)
        for name, shape, span in layout.delta.spans()
    }
    after = outer_step(job.model.copied(), merged, 1, job.model.exponents, job.manifest.outer)
    for name, p in after.params.items():
        assert (p - last.params[name]).abs().max() <= 2.0**-12 + 1e-6


def test_moments_persist_into_the_next_round(job: Job, trained: TrainedRound) -> None:
    task = replace(job.task, slot=NEXT, opening_optimiser=trained.document.states[-1])
    second = train_round(task, job.store)
    second.document.check_opening(job.model.params_root(), trained.optimiser_root)
    assert not second.reset
    assert read_seat_state(job.manifest, second.document.states[-1], job.store).count == 16
    fresh = train_round(replace(task, opening_optimiser=None), job.store)
    assert second.document.leaves[0].state_digest != fresh.document.leaves[0].state_digest


@pytest.mark.parametrize("segments_done", [1, 3])
def test_a_round_goes_on_where_it_stopped(
    job: Job, trained: TrainedRound, segments_done: int
) -> None:
    seen: list[RoundProgress] = []
    train_round(job.task, job.store, seen.append)
    assert [p.steps for p in seen] == [2, 4, 6, 8]
    assert seen[0].loss == pytest.approx(sum(trained.losses[:2]) / 2)
    resumed = train_round(replace(job.task, begun=seen[segments_done - 1].trace), job.store)
    assert resumed.document == trained.document
    assert resumed.update == trained.update
    assert resumed.losses == trained.losses[2 * segments_done :]


def test_an_unfinished_trace_of_another_slot_is_refused(job: Job, trained: TrainedRound) -> None:
    task = replace(job.task, slot=replace(job.task.slot, attempt=Attempt(1)))
    with pytest.raises(ProtocolError, match="another slot"):
        train_round(replace(task, begun=trained.document.to_bytes()), job.store)
    with pytest.raises(MalformedTrace):
        train_round(replace(job.task, begun=b"\xa0"), job.store)


def test_a_diverging_round_ends_with_a_diverged_leaf(job: Job) -> None:
    wild = diverging(job)
    trained = train_round(wild.task, wild.store)
    assert trained.diverged
    assert 0 < trained.steps < 8
    check(trained, wild.task)
    last = trained.document.leaves[-1]
    assert (last.kind, last.last_step) == (LeafKind.DIVERGED, trained.steps)
    state = read_seat_state(wild.manifest, trained.document.states[-1], wild.store)
    assert all(torch.isfinite(p).all() for p in state.params.values())
    resumed = train_round(replace(wild.task, begun=trained.document.to_bytes()), wild.store)
    assert resumed.document == trained.document
    assert (trained.update, trained.update_cid, trained.update_root) == (b"", b"", ZERO_DIGEST)


def manifest_with(job: Job, **changes: object) -> Manifest:
    data = job.manifest.data.model_copy(update=changes)
    return job.manifest.model_copy(update={"data": data})


def test_data_that_is_not_the_manifests_is_refused(job: Job) -> None:
    for changes, message in (
        ({"train_tokens": 100}, "another root"),
        ({"train_tokens": job.manifest.data.train_tokens - 1}, "bytes, more than"),
        ({"train_tokens": job.manifest.data.train_tokens + 1}, "the manifest says"),
        ({"dtype": "uint16"}, "another root"),
        ({"root": bytes(32)}, "another root"),
        ({"nodes_cid": job.manifest.data.tokenizer_cid}, "nodes"),
        ({"cid": job.manifest.data.eval_cid}, "the manifest says"),
    ):
        task = replace(job.task, manifest=manifest_with(job, **changes))
        with pytest.raises(MalformedDataset, match=message):
            train_round(task, job.store)
    model = job.manifest.model.model_copy(update={"vocab": 100})
    with pytest.raises(MalformedDataset, match="vocabulary"):
        open_training_tokens(job.manifest.model_copy(update={"model": model}), job.store).check()


def test_a_state_that_is_missing_or_of_another_kind_is_refused(
    job: Job, trained: TrainedRound
) -> None:
    nowhere = Cid.of(b"nothing").to_bytes()
    with pytest.raises(NotFound):
        train_round(replace(job.task, global_state_cid=nowhere), job.store)
    with pytest.raises(MalformedState):
        train_round(replace(job.task, global_state_cid=trained.document.states[0]), job.store)
    with pytest.raises(MalformedState):
        train_round(replace(job.task, opening_optimiser=job.task.global_state_cid), job.store)
