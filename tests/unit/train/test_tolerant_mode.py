"""Replays of a tolerant job: other bits of an honest machine pass, other work does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.unit.train.factories import Job

from atoll.bits.batch import gather_batch
from atoll.bits.segment import Course, SegmentRun, run_segment
from atoll.bits.state import SeatState
from atoll.bits.step import inner_step, state_roots
from atoll.errors import MalformedTrace, NumericsMismatch
from atoll.law.manifest import NumericsSpec
from atoll.train import probe
from atoll.train.replay import SegmentReplay, replay_segment, served
from atoll.train.round import train_round
from atoll.train.tolerance import default_tolerance, state_parts


@pytest.fixture
def tolerant(job: Job) -> Job:
    return job.with_numerics(probe.numerics_spec("tolerant"))


def cast(state: SeatState, dtype: torch.dtype) -> SeatState:
    parts = {
        part: {name: t.to(dtype) for name, t in tensors.items()}
        for part, tensors in state_parts(state).items()
    }
    return replace(state, **parts)


def stated(done: SegmentRun, state: SeatState) -> SegmentRun:
    return replace(done, state=state, roots=state_roots(state))


def another_machine(state: SeatState, segment: int, course: Course) -> SegmentRun:
    """Honest work with other roundings: in fp64, stored in fp32."""
    done, wide = run_segment(state, segment, course), cast(state, torch.float64)
    for step in range(done.first_step, done.last_step + 1):
        batch = gather_batch(course.tokens, course.offsets(step), course.manifest.model.seq)
        wide = inner_step(wide, batch, course.global_step0 + step, course.recipe).state
    return stated(done, cast(wide, torch.float32))


def with_inner(**changes: object) -> Callable[[SeatState, int, Course], SegmentRun]:
    def run(state: SeatState, segment: int, course: Course) -> SegmentRun:
        inner = course.recipe.inner.model_copy(update=changes)
        other = replace(course, recipe=replace(course.recipe, inner=inner))
        return run_segment(state, segment, other)

    return run


def skips_a_step(state: SeatState, segment: int, course: Course) -> SegmentRun:
    """One of two steps, and counters and loss as if it had done both."""
    done = run_segment(state, segment, course)
    one = course.manifest.inner.model_copy(update={"segment": 1})
    half = replace(course, manifest=course.manifest.model_copy(update={"inner": one}))
    short = run_segment(state, done.first_step, half).state
    return stated(done, replace(short, count=done.state.count, batches=done.state.batches))


def other_data(state: SeatState, segment: int, course: Course) -> SegmentRun:
    moved = replace(course, data_seed=type(course.data_seed)(b"\x06" * 32))
    return stated(run_segment(state, segment, course), run_segment(state, segment, moved).state)


def replays(job: Job, run: Callable[..., SegmentRun]) -> list[SegmentReplay]:
    trained = train_round(job.task, job.store, run=run)
    return [job.replay(trained, segment) for segment in range(4)]


def test_an_honest_round_replays(tolerant: Job) -> None:
    assert all(r.matches and r.excess == 0.0 for r in replays(tolerant, run_segment))


def test_other_roundings_are_tolerated(tolerant: Job) -> None:
    trained = train_round(tolerant.task, tolerant.store, run=another_machine)
    for segment, leaf in enumerate(trained.document.leaves):
        replay = tolerant.replay(trained, segment)
        assert replay.state_digest != leaf.state_digest
        assert replay.matches
        assert 0.0 < replay.excess < 0.5
        assert len(replay.residual) == 512 * 4


@pytest.mark.parametrize(
    "run",
    [
        skips_a_step,
        other_data,
        with_inner(weight_decay="0"),
        with_inner(lr="0.0015"),
        with_inner(clip="0.01"),
        with_inner(beta2="0.9"),
    ],
    ids=["skipped", "data", "decay", "rate", "clip", "beta2"],
)
def test_other_work_is_out_of_tolerance_and_disproves_nothing(
    tolerant: Job, run: Callable[..., SegmentRun]
) -> None:
    for replay in replays(tolerant, run):
        assert replay.excess > 1.0
        assert not replay.matches
        assert replay.differs == ()
        assert replay.residual == b""


def test_work_words_are_not_compared(tolerant: Job) -> None:
    """They differ from machine to machine, as states do."""

    def works_otherwise(state: SeatState, segment: int, course: Course) -> SegmentRun:
        done = run_segment(state, segment, course)
        return replace(done, works=done.works[::-1])

    assert all(r.matches for r in replays(tolerant, works_otherwise))


def test_counters_are_the_same_on_every_machine(tolerant: Job) -> None:
    def miscounts(state: SeatState, segment: int, course: Course) -> SegmentRun:
        done = run_segment(state, segment, course)
        return stated(done, replace(done.state, count=done.state.count + 1))

    assert {r.differs for r in replays(tolerant, miscounts)} == {("state_digest",)}


def test_only_the_committed_closing_state_is_used(tolerant: Job) -> None:
    trained = train_round(tolerant.task, tolerant.store)
    task, leaf = tolerant.replay_task(trained, 1), trained.document.leaves[1]
    opening, closing, later = (tolerant.blob(cid) for cid in trained.document.states[1:4])
    assert replay_segment(task, served(task, opening), leaf, tolerant.store, closing).matches
    for wrong in (opening, later, closing[:-1], b""):
        with pytest.raises(MalformedTrace, match="the state served"):
            replay_segment(task, served(task, opening), leaf, tolerant.store, wrong)
    with pytest.raises(ValueError, match="closing state"):
        replay_segment(task, served(task, opening), leaf, tolerant.store)


def test_a_diverged_segment_is_compared_up_to_where_it_diverged(tolerant: Job) -> None:
    wild = tolerant.with_inner(lr="10000", weight_decay="1000", warmup_steps=0)
    trained = train_round(wild.task, wild.store)
    last = len(trained.document.leaves) - 1
    assert wild.replay(trained, last).matches
    tame = replace(tolerant, task=wild.task, manifest=wild.manifest)
    sober = replace(trained.document.leaves[last], loss_bits=0x40000000)
    opening, closing = map(tame.blob, trained.document.states[last : last + 2])
    task = wild.replay_task(trained, last)
    assert not replay_segment(task, served(task, opening), sober, wild.store, closing).matches


def test_a_machine_near_enough_may_take_part(tolerant: Job) -> None:
    probe.check_environment(tolerant.manifest)
    torch.set_num_threads(2)
    try:
        probe.check_environment(tolerant.manifest)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("part", ["params", "slots"])
def test_a_machine_too_far_off_is_refused(tolerant: Job, part: str) -> None:
    numerics = tolerant.manifest.numerics
    strict = default_tolerance().model_copy(update={part: "0.0000001"})
    narrow = NumericsSpec(**{**dict(numerics), "tolerance": strict})
    with pytest.raises(NumericsMismatch, match="from fp64") as refusal:
        probe.check_environment(tolerant.with_numerics(narrow).manifest)
    assert refusal.value.next_step


def test_other_training_code_is_refused_in_tolerant_mode_too(tolerant: Job) -> None:
    other = tolerant.manifest.numerics.model_copy(update={"code_digest": bytes(32)})
    with pytest.raises(NumericsMismatch, match="training code"):
        probe.check_environment(tolerant.with_numerics(other).manifest)
