"""Any bit of what a step depends on changes a round's leaves, and a replay finds it there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.train.test_state_bits import flipped
from tests.unit.train.factories import KEY, Job, make_job

from atoll.numerics.segment import Course, SegmentRun, run_segment
from atoll.numerics.state import SeatState
from atoll.numerics.step import state_roots
from atoll.train.replay import RevealedRound, SeatReplay, replay_seat
from atoll.train.round import TrainedRound, train_round

GROUPS = ("params", "m", "v")
COUNTERS = ("count", "batches")


@dataclass(frozen=True)
class Recorded:
    """An honest round, and its segments as they were run."""

    job: Job
    trained: TrainedRound
    runs: tuple[SegmentRun, ...]

    def with_run(self, segment: int, changed: SegmentRun) -> TrainedRound:
        """The same round with one segment's result replaced; nothing is trained again."""
        runs = [*self.runs[:segment], changed, *self.runs[segment + 1 :]]
        return train_round(self.job.task, self.job.store, run=lambda _, i, __: runs[i])

    def replay(self, cheat: TrainedRound) -> SeatReplay:
        """An auditor's whose first run is the recorded one."""
        claimed = RevealedRound(cheat.checkpoint_commitments(KEY), cheat.update_root)
        return replay_seat(
            self.job.task, claimed, self.job.store, run=lambda _, i, __: self.runs[i]
        )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Muon has every slot."""
    job = make_job(tmp_path_factory.mktemp("job")).with_inner(optimizer="muon", momentum="0.9")
    runs: list[SegmentRun] = []

    def recording(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        runs.append(run_segment(states.pop(), segment, course))
        return runs[-1]

    trained = train_round(job.task, job.store, run=recording)
    return Recorded(job, trained, tuple(runs))


def with_state(run: SegmentRun, state: SeatState) -> SegmentRun:
    return replace(run, state=state, roots=state_roots(state))


def check(recorded: Recorded, segment: int, changed: SeatState) -> None:
    """One leaf is another, and a replay names it and what it should be."""
    cheat = recorded.with_run(segment, with_state(recorded.runs[segment], changed))
    honest = recorded.trained
    assert [a == b for a, b in zip(cheat.states, honest.states, strict=True)] == [
        index != segment for index in range(4)
    ]
    found = recorded.replay(cheat)
    assert (found.mismatch_at, found.own) == (segment, honest.states[segment])


def test_the_recorded_round_replays_and_every_group_holds_something(recorded: Recorded) -> None:
    assert recorded.job.replay(recorded.trained).mismatch_at is None
    for run in recorded.runs:
        assert all(any(t.any() for t in getattr(run.state, group).values()) for group in GROUPS)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_bit_of_any_tensor_changes_its_leaf(recorded: Recorded, data: st.DataObject) -> None:
    segment = data.draw(st.integers(0, 3))
    group, state = data.draw(st.sampled_from(GROUPS)), recorded.runs[segment].state
    tensors = getattr(state, group)
    bit = data.draw(st.integers(0, sum(t.numel() for t in tensors.values()) * 32 - 1))
    check(recorded, segment, replace(state, **{group: flipped(tensors, bit)}))


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 3), st.sampled_from(COUNTERS), st.integers(0, 62))
def test_any_bit_of_any_counter_changes_its_leaf(
    recorded: Recorded, segment: int, counter: str, bit: int
) -> None:
    state = recorded.runs[segment].state
    changed = replace(state, **{counter: getattr(state, counter) ^ 1 << bit})
    check(recorded, segment, changed)
