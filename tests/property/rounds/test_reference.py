"""What this machine computes wrongly costs no bond of ours, and accuses nobody."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from tests.support.small_job import SmallJob
from torch import Tensor

from atoll.errors import MachineFault
from atoll.numerics import schedule
from atoll.numerics.gradients import BatchGradients, batch_gradients
from atoll.numerics.kernels.engine import default_engine
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.graphs import Graphs
from atoll.numerics.ops import Ops
from atoll.numerics.segment import Course, SegmentRun, run_segment
from atoll.numerics.state import SeatState
from atoll.protocol.checkpoint_commitments import CheckpointCommitment, CheckpointCommitments
from atoll.protocol.types import Digest
from atoll.train import replay, second_run
from atoll.train.replay import Disagreement, RevealedRound, replay_seat
from atoll.train.resume import checkpoints_of
from atoll.train.round import TrainedRound, train_round
from atoll.train.second_run import SelfCheck
from atoll.train.stored_states import read_global_state

KEY = Digest(b"\x09" * 32)
STEPS, SEGMENT = 8, 2


class WrongKernels:
    """Right but for one: AdamW's first number is the next one up, in one call of so many."""

    def __init__(self, calls: set[int] | None = None) -> None:
        self._right: Any = default_engine().kernels
        self._calls, self.called = calls, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._right, name)

    def adamw(self, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        p, m, v = self._right.adamw(*args)
        if self._calls is None or self.called in self._calls:
            first = p.view(-1)[:1]
            first.copy_(torch.nextafter(first, torch.tensor(torch.inf)))
        self.called += 1
        return p, m, v


@pytest.fixture
def claimed(trained: TrainedRound) -> Iterator[RevealedRound]:
    yield RevealedRound(trained.checkpoint_commitments(KEY), trained.update_root)


def use(monkeypatch: pytest.MonkeyPatch, kernels: Any) -> None:
    def operations() -> Ops:
        return ExactOps(replace(default_engine(), kernels=kernels))

    monkeypatch.setattr(schedule, "operations", operations)


def drawing(*draws: int) -> Any:
    """A draw that gives these, and the ranges that it was asked for."""
    waiting, asked = list(draws), []

    def draw(below: int) -> int:
        asked.append(below)
        return waiting.pop(0)

    draw.asked = asked  # type: ignore[attr-defined]
    return draw


def test_a_machine_without_fault_trains_as_it_would(job: SmallJob, trained: TrainedRound) -> None:
    for check in (SelfCheck(4), SelfCheck(4, doubts=True)):
        done = train_round(job.task, job.store, run=check)
        assert (done.states, done.work_tags, done.update) == (
            trained.states,
            trained.work_tags,
            trained.update,
        )


def test_a_second_run_has_the_room_of_what_the_first_one_captured(
    job: SmallJob, trained: TrainedRound, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go: list[bool] = []
    made: list[weakref.ref[Tensor]] = []
    monkeypatch.setattr(Graphs, "let_go", lambda: let_go.append(True))

    def gradients(*args: Any) -> BatchGradients:
        if not let_go:
            activations = torch.ones(3)
            made.append(weakref.ref(activations))
            raise torch.OutOfMemoryError("CUDA out of memory")
        assert made[0]() is None  # there is room for it again
        return batch_gradients(*args)

    monkeypatch.setattr(second_run, "gradients_of", gradients)
    check = SelfCheck(4, draw=drawing(0, 5))
    assert train_round(job.task, job.store, run=check).update == trained.update
    assert len(let_go) == 1


@pytest.mark.parametrize(("draws", "first"), [((0, 5), 0), ((1, 7), 1), ((1, 0), 0)])
def test_a_wrong_kernel_is_found_before_anything_is_committed(
    job: SmallJob, monkeypatch: pytest.MonkeyPatch, draws: tuple[int, int], first: int
) -> None:
    use(monkeypatch, WrongKernels())
    with pytest.raises(MachineFault, match=f"step {first} has other bits") as found:
        train_round(job.task, job.store, run=SelfCheck(4, draw=drawing(*draws)))
    assert "memtest" in str(found.value.next_step)


def test_what_is_wrong_in_one_step_is_found_by_its_draw_or_by_doubt(
    job: SmallJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = len(read_global_state(job.manifest, job.task.global_state_cid, job.store).params)
    for check, finds in (
        (SelfCheck(4, draw=drawing(0, 3)), True),
        (SelfCheck(4, draw=drawing(0, 4)), False),
        (SelfCheck(4, doubts=True, draw=drawing(0, 4)), True),
    ):
        use(monkeypatch, WrongKernels({3 * tensors}))
        if finds:
            with pytest.raises(MachineFault, match="step 3"):
                train_round(job.task, job.store, run=check)
        else:
            train_round(job.task, job.store, run=check)


def test_the_drawn_step_is_among_the_steps_that_are_run(job: SmallJob) -> None:
    """Of a round that is taken up again at segment 2, and of one that is cut short there."""
    draw = drawing(0, 0, 0, 7, 0, 0)
    resumed, course_of = SelfCheck(4, draw=draw), {}

    def run(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        course_of[segment] = (states[0], course)
        return run_segment(states.pop(), segment, course)

    train_round(job.task, job.store, run=run)
    state, course = course_of[2]
    resumed([resumed([state], 2, course).state], 3, course)
    assert draw.asked == [2, 4]

    cut = SelfCheck(4, draw=draw)

    def broken(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        if segment == 2 and len(draw.asked) == 4:
            states[0] = _wild(states[0])
        return cut(states, segment, course)

    assert train_round(job.task, job.store, run=broken).segments == 2
    assert draw.asked == [2, 4, 2, 8, 2, 4]


def _wild(state: SeatState) -> SeatState:
    """So far off that no step of it is finite."""
    return replace(state, params={name: p * 1e30 for name, p in state.params.items()})


def test_a_round_that_ends_early_was_checked(
    job: SmallJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is too slow commits to the segments that it has: no fewer than one of them."""
    use(monkeypatch, WrongKernels())
    with pytest.raises(MachineFault, match="step 1"):
        check = SelfCheck(4, draw=drawing(1, 7))
        train_round(job.task, job.store, run=check, is_enough=lambda segments: segments == 1)


@pytest.mark.parametrize("segment", [0, 2])
def test_an_auditor_s_own_fault_accuses_nobody(
    job: SmallJob, claimed: RevealedRound, monkeypatch: pytest.MonkeyPatch, segment: int
) -> None:
    tensors = len(read_global_state(job.manifest, job.task.global_state_cid, job.store).params)
    use(monkeypatch, WrongKernels({segment * SEGMENT * tensors}))
    with pytest.raises(MachineFault, match=f"two replays differ about segment {segment}"):
        replay_seat(job.task, claimed, job.store)


def test_a_kernel_that_is_always_wrong_accuses_nobody(
    job: SmallJob, claimed: RevealedRound, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, WrongKernels())
    with pytest.raises(MachineFault, match="two replays differ about segment 0"):
        replay_seat(job.task, claimed, job.store)


def test_nor_does_one_that_is_wrong_where_a_seat_lied(
    job: SmallJob, claimed: RevealedRound, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A digest of *mismatch* has our digest in it: a wrong one would lose the game about it."""
    use(monkeypatch, WrongKernels())
    items = list(claimed.checkpoint_commitments.items)
    items[0] = CheckpointCommitment(Digest(b"\x01" * 32), items[0].blinded_tag)
    with pytest.raises(MachineFault):
        replay_seat(
            job.task,
            replace(claimed, checkpoint_commitments=CheckpointCommitments(tuple(items))),
            job.store,
        )


def test_what_differs_is_run_again_from_before_it_and_no_earlier(
    job: SmallJob, claimed: RevealedRound, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: list[int] = []

    def told(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        run.append(segment)
        return run_segment(states.pop(), segment, course)

    monkeypatch.setattr(replay, "checkpoints_of", partial(checkpoints_of, share=0))
    items = list(claimed.checkpoint_commitments.items)
    items[3] = CheckpointCommitment(Digest(b"\x01" * 32), items[3].blinded_tag)
    found = replay_seat(
        job.task,
        replace(claimed, checkpoint_commitments=CheckpointCommitments(tuple(items))),
        job.store,
        run=told,
    )
    assert found.mismatch_at == 3
    assert found.own == claimed.checkpoint_commitments.items[3].state
    assert run == [0, 1, 2, 3]  # and 3 once more, by the reference


def test_another_model_than_the_certified_one_is_our_trouble(
    job: SmallJob, claimed: RevealedRound
) -> None:
    """It would be as if every provider had lied."""
    own = read_global_state(job.manifest, job.task.global_state_cid, job.store).digest()
    assert replay_seat(job.task, replace(claimed, model=own), job.store).mismatch_at is None
    other = replace(claimed, model=Digest(b"\x01" * 32))
    with pytest.raises(Disagreement, match="certificate says 0101"):
        replay_seat(job.task, other, job.store)
