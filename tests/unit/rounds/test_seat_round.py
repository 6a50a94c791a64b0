"""A seat's round is the same for whoever runs it, and a replay says what of it is not as told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from tests.support.small_job import SmallJob

from atoll.numerics.initial_state import open_round
from atoll.numerics.segment import Course, SegmentRun, run_segment
from atoll.numerics.state import SeatState
from atoll.numerics.step import state_roots
from atoll.protocol.audit_reports import VALID, valid_digest
from atoll.protocol.checkpoint_commitments import CheckpointCommitment, CheckpointCommitments
from atoll.protocol.types import ZERO_DIGEST, Address, Digest, SeatIndex
from atoll.train import replay
from atoll.train.replay import RevealedRound, replay_seat
from atoll.train.resume import round_start_of
from atoll.train.round import TrainedRound, train_round
from atoll.train.stored_states import read_global_state

KEY = Digest(b"\x09" * 32)
ME = Address("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")


@pytest.fixture
def claimed(trained: TrainedRound) -> Iterator[RevealedRound]:
    yield RevealedRound(trained.checkpoint_commitments(KEY), trained.update_root)


def test_a_round_is_run_again_to_the_same_bits(job: SmallJob, trained: TrainedRound) -> None:
    again = train_round(job.task, job.store)
    assert (again.states, again.work_tags, again.update) == (
        trained.states,
        trained.work_tags,
        trained.update,
    )
    assert again.checkpoint_commitments(KEY).work_tags(KEY) == again.work_tags


def test_it_opens_with_what_everybody_s_round_opens_with(job: SmallJob) -> None:
    task = job.task
    model = read_global_state(job.manifest, task.global_state_cid, job.store)
    initial_state = round_start_of(task, job.store)
    expected = open_round(job.manifest, model, None)
    assert state_roots(initial_state) == state_roots(expected)


def test_seats_do_different_work(job: SmallJob, trained: TrainedRound) -> None:
    other = train_round(job.of_seat(1), job.store)
    assert other.states[0] != trained.states[0]


def test_a_step_that_is_not_finite_ends_the_round_at_the_segment_before(job: SmallJob) -> None:
    done = train_round(job.task, job.store, run=_broken_in(2))
    whole = train_round(job.task, job.store)
    assert (done.segments, done.diverged, whole.diverged) == (2, True, False)
    assert done.states == whole.states[:2]
    assert done.update  # what two segments made is sent
    nothing = train_round(job.task, job.store, run=_broken_in(0))
    assert (nothing.segments, nothing.update, nothing.update_root) == (0, b"", ZERO_DIGEST)
    assert nothing.diverged


def test_moments_that_are_not_finite_are_no_update_and_the_segments_stand(job: SmallJob) -> None:
    """A forged opening may lead there: the seat's steps are as right as anybody's."""

    def run(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        done = run_segment(states.pop(), segment, course)
        if segment < 3:
            return done
        m = {name: torch.full_like(value, torch.inf) for name, value in done.state.m.items()}
        return replace(done, state=replace(done.state, m=m))

    done = train_round(job.task, job.store, run=run)
    assert (done.segments, done.update, done.update_root) == (4, b"", ZERO_DIGEST)


def test_honest_work_is_valid(job: SmallJob, trained: TrainedRound, claimed: RevealedRound) -> None:
    found = replay_seat(job.task, claimed, job.store)
    assert found.mismatch_at is None
    entry = found.entry(SeatIndex(2), ME)
    assert (entry.at, entry.digest) == (VALID, valid_digest(ME, trained.work_tags))


def test_a_partial_round_is_replayed_as_far_as_it_went(job: SmallJob) -> None:
    done = train_round(job.task, job.store, run=_broken_in(3))
    found = replay_seat(
        job.task, RevealedRound(done.checkpoint_commitments(KEY), done.update_root), job.store
    )
    assert found.mismatch_at is None
    assert found.work_tags == done.work_tags


@pytest.mark.parametrize("segment", [0, 1, 3])
def test_the_first_wrong_state_is_named(
    job: SmallJob, claimed: RevealedRound, segment: int
) -> None:
    items = list(claimed.checkpoint_commitments.items)
    items[segment] = CheckpointCommitment(Digest(b"\x01" * 32), items[segment].blinded_tag)
    found = replay_seat(
        job.task,
        replace(claimed, checkpoint_commitments=CheckpointCommitments(tuple(items))),
        job.store,
    )
    assert found.mismatch_at == segment
    assert found.own == claimed.checkpoint_commitments.items[segment].state
    assert len(found.work_tags) == segment


def test_a_segment_that_is_not_finite_is_nobodys_whatever_is_revealed_of_it(
    job: SmallJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = _broken_in(2)
    monkeypatch.setattr(replay, "run_by_reference", broken)
    done = train_round(job.task, job.store, run=broken)
    said = [ZERO_DIGEST, Digest(b"\x01" * 32)]
    checkpoint_commitments = CheckpointCommitments.of(
        [*done.states, *said], [*done.work_tags, *said], KEY
    )
    found = replay_seat(
        job.task, RevealedRound(checkpoint_commitments, done.update_root), job.store, run=broken
    )
    assert (found.mismatch_at, found.own, found.work_tags) == (2, ZERO_DIGEST, done.work_tags)


def test_another_update_is_named_as_the_update_proof(job: SmallJob, claimed: RevealedRound) -> None:
    found = replay_seat(job.task, replace(claimed, update_root=Digest(b"\x01" * 32)), job.store)
    assert found.mismatch_at == 4
    assert found.own == claimed.update_root


def test_work_tags_are_no_input_of_a_replay(job: SmallJob, claimed: RevealedRound) -> None:
    """An auditor does not know the key: wrong work_tags show when it is shown."""
    items = [
        CheckpointCommitment(checkpoint_commitment.state, Digest(b"\x02" * 32))
        for checkpoint_commitment in claimed.checkpoint_commitments.items
    ]
    found = replay_seat(
        job.task,
        replace(claimed, checkpoint_commitments=CheckpointCommitments(tuple(items))),
        job.store,
    )
    assert found.mismatch_at is None


def _broken_in(segment: int):  # type: ignore[no-untyped-def]  # a runner
    def run(states: list[SeatState], number: int, course: Course) -> SegmentRun:
        done = run_segment(states.pop(), number, course)
        return replace(done, is_finite=number != segment)

    return run


def test_a_round_that_is_ended_early_is_that_of_its_whole_segments(job: SmallJob) -> None:
    asked: list[int] = []

    def one_is_enough(segments: int) -> bool:
        asked.append(segments)
        return True

    ended = train_round(job.task, job.store, is_enough=one_is_enough)
    short = train_round(replace(job.task, segments=1), job.store)
    assert asked == [1]  # whoever has no time at all does one
    assert (ended.states, ended.work_tags, ended.update) == (
        short.states,
        short.work_tags,
        short.update,
    )
    claimed = RevealedRound(ended.checkpoint_commitments(KEY), ended.update_root)
    assert replay_seat(job.task, claimed, job.store).mismatch_at is None
