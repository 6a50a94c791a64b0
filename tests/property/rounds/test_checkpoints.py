"""A provider that was killed goes on from its last checkpoint, to the same bits or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.small_job import SmallJob, damage, small_job

from atoll.errors import MachineFault
from atoll.numerics.segment import Course, SegmentRun, run_segment
from atoll.numerics.state import SeatState
from atoll.protocol.types import Digest
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.checkpoints import KEPT, Checkpoint, release
from atoll.train.resume import Keeping, checkpoints_of, round_start_of
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import TrainTask
from atoll.train.second_run import SelfCheck, fault
from atoll_node import tasks


class Killed(Exception):
    """What stands for the end of a process in tests that need no process."""


class Runner:
    """Runs segments, tells which, and dies before one of them."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.run: list[int] = []
        self._dies_at = dies_at

    def __call__(self, states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        if segment == self._dies_at:
            raise Killed
        self.run.append(segment)
        return run_segment(states.pop(), segment, course)


@pytest.fixture
def fresh(job: SmallJob) -> Iterator[SmallJob]:
    yield job
    release(job.store, job.task.round_id.job, job.task.round_id.round)


def train(job: SmallJob, run: Runner, task: TrainTask | None = None) -> TrainedRound:
    task = task or job.task
    keeping = Keeping(checkpoints_of(task, job.store, share=0))
    return train_round(task, job.store, run=run, keeping=keeping)


def killed(job: SmallJob, at: int) -> None:
    with pytest.raises(Killed):
        train(job, Runner(at))


def kept_states(job: SmallJob) -> list[bytes]:
    """Binary CIDs of the states kept, the newest first."""
    return [one.state for one in checkpoints_of(job.task, job.store).before(99)]


def assert_same(done: TrainedRound, expected: TrainedRound) -> None:
    said = (done.states, done.work_tags, done.update, done.losses)
    assert said == (expected.states, expected.work_tags, expected.update, expected.losses)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_it_goes_on_from_the_last_one(fresh: SmallJob, trained: TrainedRound, at: int) -> None:
    killed(fresh, at)
    again = Runner()
    assert_same(train(fresh, again), trained)
    assert again.run == list(range(at, 4))


def test_after_a_damaged_one_it_takes_the_one_before(
    fresh: SmallJob, trained: TrainedRound
) -> None:
    killed(fresh, 3)
    newest, _ = kept_states(fresh)
    damage(fresh.store, newest)
    again = Runner()
    assert_same(train(fresh, again), trained)
    assert again.run == [2, 3]


def test_where_all_are_damaged_it_begins_anew(fresh: SmallJob, trained: TrainedRound) -> None:
    killed(fresh, 3)
    for cid in kept_states(fresh):
        damage(fresh.store, cid)
    again = Runner()
    assert_same(train(fresh, again), trained)
    assert again.run == [0, 1, 2, 3]


def test_a_whole_state_that_is_not_its_record_s_is_noticed(
    fresh: SmallJob, trained: TrainedRound
) -> None:
    """Written from memory that was wrong by then: the store's own digests are right."""
    killed(fresh, 2)
    checkpoints = checkpoints_of(fresh.task, fresh.store, share=0)
    last = checkpoints.before(4)[0]
    task = fresh.task
    other = round_start_of(task, fresh.store)
    checkpoints.drop()
    checkpoints.write(last, other.pieces(), 0)
    again = Runner()
    assert_same(train(fresh, again), trained)
    assert again.run == [0, 1, 2, 3]


def test_one_of_all_that_is_wanted_is_not_enough(fresh: SmallJob, trained: TrainedRound) -> None:
    """At least one segment is run in every process, and so a step of it is checked."""
    killed(fresh, 3)
    again = Runner()
    done = train(fresh, again, replace(fresh.task, segments=3))
    assert done.states == trained.states[:3]
    assert again.run == [2]


@pytest.mark.parametrize("change", ["seed", "seat", "model", "round"])
def test_of_other_work_they_are_let_go_of(fresh: SmallJob, change: str) -> None:
    killed(fresh, 3)
    task = fresh.task
    others = {
        "seed": replace(task, data_seed=Digest(b"\x06" * 32)),
        "seat": fresh.of_seat(1),
        "model": replace(task, global_state_cid=Cid.of(b"another").to_bytes()),
        "round": replace(task, round_id=replace(task.round_id, round=1)),
    }
    assert checkpoints_of(others[change], fresh.store).before(99) == []
    assert kept_states(fresh) == []


def test_two_are_kept_and_older_ones_go_at_once(fresh: SmallJob) -> None:
    with fresh.store.holding():  # as a provider does while it trains
        seen = []
        for at in (1, 2, 3):
            killed(fresh, at)
            seen.append(kept_states(fresh)[0])
    assert len(kept_states(fresh)) == KEPT
    gone, *kept = (Cid.from_bytes(cid) for cid in seen)
    assert not fresh.store.has(gone)
    assert all(fresh.store.has(cid) for cid in kept)


def test_once_it_is_revealed_nothing_is_kept(fresh: SmallJob) -> None:
    killed(fresh, 3)
    states = kept_states(fresh)
    release(fresh.store, fresh.task.round_id.job, fresh.task.round_id.round)
    assert kept_states(fresh) == []
    assert not any(fresh.store.has(Cid.from_bytes(cid)) for cid in states)


def test_a_store_without_room_costs_the_checkpoints_alone(
    tmp_path: Path, trained: TrainedRound
) -> None:
    job = small_job(tmp_path)
    job.store.set_quota(job.store.usage().bytes + 4 * len(trained.update))
    assert_same(train(job, Runner()), trained)
    assert kept_states(job) == []


def test_no_more_than_a_part_of_the_time_is_spent_on_them(fresh: SmallJob) -> None:
    checkpoints = checkpoints_of(fresh.task, fresh.store, share=1e9)
    train_round(fresh.task, fresh.store, keeping=Keeping(checkpoints))
    assert [one.segments for one in checkpoints.before(99)] == [1]


def test_after_a_fault_of_the_machine_a_round_begins_anew_and_every_step_is_compared(
    fresh: SmallJob, trained: TrainedRound, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(fresh, 3)
    doubted: list[bool] = []

    def checking(segments: int, *, doubts: bool) -> SelfCheck:
        doubted.append(doubts)
        return SelfCheck(segments, doubts)

    monkeypatch.setattr(tasks, "_doubted", set())
    monkeypatch.setattr(tasks, "SelfCheck", checking)

    def at_fault(*_: object, **__: object) -> TrainedRound:
        raise fault("a step")

    with monkeypatch.context() as patch:
        patch.setattr(tasks, "train_round", at_fault)
        with pytest.raises(MachineFault, match="at fault"):
            tasks.train(fresh.task, str(fresh.store.root), ())
    assert kept_states(fresh) == []
    assert_same(tasks.train(fresh.task, str(fresh.store.root), ()), trained)
    assert doubted == [False, True]


def test_to_look_for_room_counts_as_time_that_is_spent(
    fresh: SmallJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is searched for what may go, which of a large store takes seconds."""
    looks: list[int] = []

    def has_room(_: LocalStore, size: int) -> bool:
        looks.append(size)
        return False

    monkeypatch.setattr(LocalStore, "has_room", has_room)
    checkpoints = checkpoints_of(fresh.task, fresh.store, share=1e9)
    for _ in range(3):
        checkpoints.write(Checkpoint(), [], 1)
    assert looks == [2]
