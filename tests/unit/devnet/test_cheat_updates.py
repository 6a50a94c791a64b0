"""What cheats send has the form of any update: only the link shows that it is not right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.train.factories import Job, make_job

from atoll.bits.sections import StoredUpdate, UpdateLayout
from atoll.errors import MalformedUpdate
from atoll.train.round import TrainedRound, train_round
from atoll_devnet.cheats import training

Cheat = Callable[..., TrainedRound]
OF_THE_CHANGE: dict[str, Cheat] = {
    "sign-flip": training.sign_flip,
    "scale": training.scale,
    "garbage-nan": training.garbage_nan,
}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("cheats"))


@pytest.fixture(scope="module")
def honest(job: Job) -> TrainedRound:
    return train_round(job.task, job.store)


def cheated(job: Job, cheat: Cheat) -> TrainedRound:
    return cheat(job.task, str(job.store.root), ())


def sections(job: Job, update: bytes) -> tuple[list[int], list[int], list[int]]:
    layout = UpdateLayout.of(job.manifest, job.model.shapes, 0)
    found: StoredUpdate = layout.open(update, job.model, job.task.dither)
    assert found.first is not None
    assert found.sums is not None
    parts = (found.delta, found.first, found.sums)
    return tuple(part[0 : len(part)].tolist() for part in parts)  # type: ignore[return-value]


@pytest.mark.parametrize("name", OF_THE_CHANGE)
def test_moments_are_honest_where_the_change_is_not(
    job: Job, honest: TrainedRound, name: str
) -> None:
    found = cheated(job, OF_THE_CHANGE[name])
    change, *moments = sections(job, found.update)
    true_change, *true_moments = sections(job, honest.update)
    assert change != true_change
    assert moments == true_moments
    assert found.trace_root == honest.trace_root
    assert not job.link(found, found.update)


def test_a_flipped_sign_is_the_change_turned_round(job: Job, honest: TrainedRound) -> None:
    flipped, *_ = sections(job, cheated(job, training.sign_flip).update)
    assert flipped == [-value for value in sections(job, honest.update)[0]]


def test_moments_are_forged_where_the_change_is_honest(job: Job, honest: TrainedRound) -> None:
    found = cheated(job, training.forge_moments)
    change, first, sums = sections(job, found.update)
    true_change, true_first, true_sums = sections(job, honest.update)
    assert change == true_change
    assert sum(a * b for a, b in zip(first, true_first, strict=True)) < 0
    assert all(a > b for a, b in zip(sums, true_sums, strict=True) if b)
    assert not job.link(found, found.update)


def test_a_copy_names_the_rounds_grids(job: Job, honest: TrainedRound) -> None:
    """Of another seat's update only the headers are made its own; they are the same here."""
    extra = (job.store.add_bytes(honest.update).to_bytes(),)
    found = training.copied(job.task, str(job.store.root), extra)
    assert found.update == honest.update
    assert found.trace_root != honest.trace_root


def test_garbage_is_not_canonical(job: Job) -> None:
    for cheat in (training.garbage_bytes, training.garbage_shapes):
        with pytest.raises(MalformedUpdate):
            sections(job, cheated(job, cheat).update)
