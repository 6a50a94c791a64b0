"""What cheats say of a round and send of it: each departs in what its name says, and in no more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.small_job import SmallJob, small_job

from atoll.errors import MalformedUpdate
from atoll.numerics.pieces import root_of_update
from atoll.numerics.sections import StoredUpdate, UpdateLayout
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.types import Digest, RoundIndex, SeatIndex
from atoll.train.replay import RevealedRound, SeatReplay, replay_seat
from atoll.train.round import TrainedRound, train_round
from atoll.train.stored_states import read_global_state
from atoll_devnet.cheats import training

Cheat = Callable[..., TrainedRound]
KEY = Digest(b"\x0a" * 32)
SEGMENTS = 4


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> SmallJob:
    return small_job(tmp_path_factory.mktemp("cheats"))


@pytest.fixture(scope="module")
def honest(job: SmallJob) -> TrainedRound:
    return train_round(job.task, job.store)


def cheated(job: SmallJob, cheat: Cheat, extra: tuple[bytes, ...] = ()) -> TrainedRound:
    return cheat(job.task, str(job.store.root), extra)


def sections(job: SmallJob, update: bytes) -> tuple[list[int], list[int], list[int]]:
    """Of a canonical update. Raises MalformedUpdate of any other."""
    model = read_global_state(job.manifest, job.task.global_state_cid, job.store)
    layout = UpdateLayout.of(job.manifest, model.shapes, 0)
    found: StoredUpdate = layout.open(update, model, job.task.dither)
    assert found.first is not None
    assert found.factored is not None
    parts = (found.delta, found.first, found.factored)
    return tuple(part[0 : len(part)].tolist() for part in parts)  # type: ignore[return-value]


def replayed(job: SmallJob, done: TrainedRound) -> SeatReplay:
    """What an auditor finds of what was revealed."""
    claimed = RevealedRound(
        CheckpointCommitments.of(done.states, done.work_tags, KEY), done.update_root
    )
    return replay_seat(job.task, claimed, job.store)


def test_an_auditor_finds_nothing_in_an_honest_round(job: SmallJob, honest: TrainedRound) -> None:
    assert replayed(job, honest).mismatch_at is None


# --- what is trained ---


@pytest.mark.parametrize(
    ("cheat", "at"),
    [
        (training.lazy, 0),
        (training.hollow, 1),
        (training.poison_segment, 0),
        (training.wrong_data, 0),
        (training.copied, 0),
    ],
)
def test_who_did_not_train_says_so_at_a_segment(job: SmallJob, cheat: Cheat, at: int) -> None:
    found = cheated(job, cheat)
    assert len(found.states) == len(found.work_tags) == SEGMENTS
    assert replayed(job, found).mismatch_at == at
    sections(job, found.update)  # its bytes are an update's


def test_hollow_sends_as_much_as_all_segments_would_bring(
    job: SmallJob, honest: TrainedRound
) -> None:
    found = cheated(job, training.hollow)
    assert found.states[0] == honest.states[0]
    assert len(set(found.states)) == SEGMENTS
    first = train_round(replace(job.task, segments=1), job.store)
    check_multiple(sections(job, found.update)[0], sections(job, first.update)[0], SEGMENTS)


def test_partial_says_what_it_did(job: SmallJob, honest: TrainedRound) -> None:
    found = cheated(job, training.partial)
    assert found.states == honest.states[:1]
    assert replayed(job, found).mismatch_at is None  # it is paid by the segment, and not merged


def test_alternate_does_a_part_of_every_second_round(job: SmallJob, honest: TrainedRound) -> None:
    found = cheated(job, training.alternate)
    assert found.states == honest.states[:1]
    assert replayed(job, found).mismatch_at is None  # true as far as it goes, as those of `partial`
    odd = replace(
        job, task=replace(job.task, round_id=replace(job.task.round_id, round=RoundIndex(1)))
    )
    assert cheated(odd, training.alternate).states == train_round(odd.task, job.store).states
    assert len(cheated(odd, training.alternate).states) == SEGMENTS


def test_wrong_work_tags_are_no_auditors_to_see_under_their_mask(
    job: SmallJob, honest: TrainedRound
) -> None:
    found = cheated(job, training.wrong_work_tags)
    assert (found.states, found.update) == (honest.states, honest.update)
    assert not set(found.work_tags) & set(honest.work_tags)
    seen = replayed(job, found)
    assert seen.mismatch_at is None
    assert seen.work_tags == honest.work_tags  # which is what its key will be held against


def test_a_copy_names_the_rounds_grids(job: SmallJob, honest: TrainedRound) -> None:
    """Of another seat's update only the headers are made its own; they are the same here."""
    extra = (job.store.add_bytes(honest.update).to_bytes(),)
    found = cheated(job, training.copied, extra)
    assert found.update == honest.update
    assert found.states != honest.states


def test_a_stale_models_round_is_another(job: SmallJob, tmp_path: Path) -> None:
    """Of round 1, which opens with what round 0 merged and is trained from the initial model."""
    round_id = replace(job.task.round_id, round=type(job.task.round_id.round)(1))
    moved = read_global_state(job.manifest, job.task.global_state_cid, job.store)
    params = {name: p + 0.01 for name, p in moved.params.items()}
    cid = job.store.add_pieces(replace(moved, params=params, round=1).pieces()).to_bytes()
    task = replace(job.task, round_id=round_id, global_state_cid=cid)
    stale = training.stale_model(task, str(job.store.root), ())
    claimed = RevealedRound(
        CheckpointCommitments.of(stale.states, stale.work_tags, KEY), stale.update_root
    )
    assert replay_seat(task, claimed, job.store).mismatch_at == 0


# --- what is sent ---


@pytest.mark.parametrize(
    "cheat",
    [
        training.sign_flip,
        training.flip5,
        training.scale,
        training.noise,
        training.omniscient,
        training.forged_moments,
        training.forged_second_moments,
    ],
)
def test_only_the_link_shows_what_was_sent(
    job: SmallJob, honest: TrainedRound, cheat: Cheat
) -> None:
    found = cheated(job, cheat)
    assert (found.states, found.work_tags) == (honest.states, honest.work_tags)
    assert replayed(job, found).mismatch_at == SEGMENTS
    of_change, *of_moments = sections(job, found.update)
    true_change, *true_moments = sections(job, honest.update)
    is_moments = cheat in {training.forged_moments, training.forged_second_moments}
    assert (of_change == true_change) == is_moments
    assert (of_moments == true_moments) != is_moments


def test_a_flipped_sign_is_the_change_turned_round(job: SmallJob, honest: TrainedRound) -> None:
    flipped, *_ = sections(job, cheated(job, training.sign_flip).update)
    assert flipped == [-value for value in sections(job, honest.update)[0]]


@pytest.mark.parametrize(("cheat", "times"), [(training.flip5, -5), (training.scale, 10)])
def test_an_update_is_so_many_times_the_honest_one(
    job: SmallJob, honest: TrainedRound, cheat: Cheat, times: int
) -> None:
    sent, true = (
        sections(job, update)[0] for update in (cheated(job, cheat).update, honest.update)
    )
    check_multiple(sent, true, times)


def check_multiple(sent: list[int], once: list[int], times: int) -> None:
    """But for rounding, wherever the grid, which ends at 127, has room for it."""
    inside = [(a, b) for a, b in zip(sent, once, strict=True) if abs(b * times) < 120]
    assert sum(b != 0 for _, b in inside) > 100
    assert all(abs(a - b * times) <= abs(times) for a, b in inside)


def test_noise_is_as_large_as_what_was_learnt_and_points_elsewhere(
    job: SmallJob, honest: TrainedRound
) -> None:
    sent = np.array(sections(job, cheated(job, training.noise).update)[0], dtype=float)
    true = np.array(sections(job, honest.update)[0], dtype=float)
    assert np.linalg.norm(sent) == pytest.approx(np.linalg.norm(true), rel=0.3)
    cosine = sent @ true / (np.linalg.norm(sent) * np.linalg.norm(true))
    assert abs(cosine) < 0.1


def test_an_omniscient_update_lies_between_honest_ones_and_against_their_mean(
    job: SmallJob,
) -> None:
    everyone = [
        sections(job, train_round(job.of_seat(seat), job.store).update)[0]
        for seat in range(job.manifest.terms.seats)
    ]
    sent = np.array(sections(job, cheated(job, training.omniscient).update)[0])
    deltas = np.array(everyone)
    slack = 1  # a grid step of rounding
    assert (sent >= deltas.min(0) - slack).all()
    assert (sent <= deltas.max(0) + slack).all()
    mean = deltas.mean(0)
    assert sent @ mean < min(delta @ mean for delta in deltas)


def test_forged_moments_turn_round_and_forged_sums_shrink(
    job: SmallJob, honest: TrainedRound
) -> None:
    _, first, sums = sections(job, honest.update)
    _, turned, same_sums = sections(job, cheated(job, training.forged_moments).update)
    assert sum(a * b for a, b in zip(turned, first, strict=True)) < 0
    assert same_sums == sums
    _, same_first, shrunk = sections(job, cheated(job, training.forged_second_moments).update)
    assert same_first == first
    assert all(a < b for a, b in zip(shrunk, sums, strict=True) if b)


@pytest.mark.parametrize(
    "cheat", [training.garbage_bytes, training.garbage_shapes, training.nan_moments]
)
def test_garbage_is_not_canonical_and_its_root_is_its_own(
    job: SmallJob, honest: TrainedRound, cheat: Cheat
) -> None:
    found = cheated(job, cheat)
    assert found.states == honest.states
    assert found.update_root == root_of_update(found.update)
    with pytest.raises(MalformedUpdate):
        sections(job, found.update)
    assert replayed(job, found).mismatch_at == SEGMENTS


def test_nans_stand_where_the_sums_are_and_nowhere_else(
    job: SmallJob, honest: TrainedRound
) -> None:
    found = cheated(job, training.nan_moments)
    own, true = found.update, honest.update
    assert len(own) == len(true)
    first = next(at for at, pair in enumerate(zip(own, true, strict=True)) if pair[0] != pair[1])
    tail = np.frombuffer(own[first - first % 4 + len(own) % 4 :], dtype="<f4")
    assert all(math.isnan(value) for value in tail)


def test_what_follows_for_another_seat_is_another_update(job: SmallJob) -> None:
    """A cheat departs from its own seat's round, not from a fixed one."""
    flipped = [training.flip5(job.of_seat(seat), str(job.store.root), ()).update for seat in (0, 1)]
    assert flipped[0] != flipped[1]
    assert SeatIndex(0) != job.task.seat
