"""Any bit of what a step depends on changes the trace, and an honest replay finds it there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.train.test_state_bits import flipped
from tests.unit.train.factories import Job, make_job

from atoll.bits.segment import Course, SegmentRun, run_segment
from atoll.bits.state import SeatState
from atoll.bits.step import state_roots
from atoll.law.draws import batch_digest
from atoll.law.words import Digest
from atoll.train.round import TrainedRound, train_round

GROUPS = ("params", "m", "v", "feedback")
COUNTERS = ("count", "batches")


@dataclass(frozen=True)
class Recorded:
    """An honest round, and its segments as they were run."""

    job: Job
    trained: TrainedRound
    runs: tuple[SegmentRun, ...]
    optimiser_root: Digest

    def with_run(self, segment: int, changed: SegmentRun) -> TrainedRound:
        """The same round with one segment's result replaced; nothing is trained again."""
        runs = [*self.runs[:segment], changed, *self.runs[segment + 1 :]]
        return train_round(self.job.task, self.job.store, run=lambda _, i, __: runs[i])

    def offsets(self, segment: int) -> list[list[int]]:
        """What its steps drew."""
        task, run = self.job.task, self.runs[segment]
        steps = range(run.first_step, run.last_step + 1)
        return [task.manifest.batch_offsets(task.data_seed, task.seat, step) for step in steps]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A second round, so that moments and feedback are those of a first; Muon has every slot."""
    job = make_job(tmp_path_factory.mktemp("job"))
    job = job.with_inner(optimizer="muon", momentum="0.9")
    job = job.with_codec(kind="two_bit", feedback="0.9")
    first = train_round(job.task, job.store)
    job = replace(job, task=replace(job.task, opening_optimiser=first.carried_cid))
    runs: list[SegmentRun] = []

    def recording(state: SeatState, segment: int, course: Course) -> SegmentRun:
        runs.append(run_segment(state, segment, course))
        return runs[-1]

    trained = train_round(job.task, job.store, run=recording)
    return Recorded(job, trained, tuple(runs), first.carried.optimiser_root)


def with_state(run: SegmentRun, state: SeatState) -> SegmentRun:
    return replace(run, state=state, roots=state_roots(state))


def check(recorded: Recorded, segment: int, changed: SegmentRun, field: str) -> None:
    """Leaves before the segment stay, all from it on are others, and a replay says why."""
    cheat = recorded.with_run(segment, changed)
    assert cheat.trace_root != recorded.trained.trace_root
    pairs = zip(recorded.trained.document.leaves, cheat.document.leaves, strict=True)
    same = [honest.hash == other.hash for honest, other in pairs]
    assert same == [index < segment for index in range(len(same))]
    replay = recorded.job.replay(cheat, segment, recorded.optimiser_root)
    assert replay.differs == (field,)


def test_the_recorded_round_replays_and_every_group_holds_something(recorded: Recorded) -> None:
    for segment, run in enumerate(recorded.runs):
        replay = recorded.job.replay(recorded.trained, segment, recorded.optimiser_root)
        assert replay.matches
        assert all(any(t.any() for t in getattr(run.state, group).values()) for group in GROUPS)


@settings(max_examples=40)
@given(data=st.data())
def test_any_bit_of_any_tensor_changes_the_trace(recorded: Recorded, data: st.DataObject) -> None:
    segment = data.draw(st.integers(0, 3))
    group, state = data.draw(st.sampled_from(GROUPS)), recorded.runs[segment].state
    tensors = getattr(state, group)
    bit = data.draw(st.integers(0, sum(t.numel() for t in tensors.values()) * 32 - 1))
    changed = replace(state, **{group: flipped(tensors, bit)})
    check(recorded, segment, with_state(recorded.runs[segment], changed), "state_digest")


@settings(max_examples=20)
@given(st.integers(0, 3), st.sampled_from(COUNTERS), st.integers(0, 62))
def test_any_bit_of_any_counter_changes_the_trace(
    recorded: Recorded, segment: int, counter: str, bit: int
) -> None:
    state = recorded.runs[segment].state
    changed = replace(state, **{counter: getattr(state, counter) ^ 1 << bit})
    check(recorded, segment, with_state(recorded.runs[segment], changed), "state_digest")


@settings(max_examples=20)
@given(st.integers(0, 3), st.integers(0, 1), st.integers(0, 3), st.integers(0, 63))
def test_any_bit_of_any_batch_index_changes_the_trace(
    recorded: Recorded, segment: int, step: int, place: int, bit: int
) -> None:
    offsets = recorded.offsets(segment)
    offsets[step][place] ^= 1 << bit
    changed = replace(recorded.runs[segment], batch_digest=batch_digest(offsets))
    check(recorded, segment, changed, "batch_digest")
