"""Rounds of an epoch: a seat goes on with its own state, and its auditor runs all of them again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.merging import all_standing, bearing_none
from tests.unit.train.factories import KEY, Job, make_job, with_method

from atoll.bits.step import state_roots
from atoll.law.hashing import sha256
from atoll.law.words import Digest, RoundIndex
from atoll.merge.round import merge
from atoll.train.judged import EarlierRound
from atoll.train.replay import Claimed, replay_seat
from atoll.train.round import TrainedRound, TrainTask, opening_of, train_round

ROUNDS = 3


@dataclass(frozen=True)
class Epoch:
    """One seat's rounds of a streaming job, each merged alone."""

    job: Job
    tasks: list[TrainTask]
    trained: list[TrainedRound]
    models: list[Digest]

    def claimed(self, round: int, trained: list[TrainedRound] | None = None) -> Claimed:
        """What the seat revealed of a round and of those before it."""
        done = zip(trained or self.trained, self.models, strict=True)
        said = [Claimed(one.leaves(KEY), one.update_root, model) for one, model in done]
        return replace(said[round], earlier=tuple(said[:round]))


def streaming(job: Job) -> Job:
    manifest = bearing_none(with_method(job.manifest, "streaming"))
    codec = manifest.codec.model_copy(update={"overlap": manifest.inner.segment})
    return job.of(manifest.model_copy(update={"codec": codec}))


def trained_epoch(job: Job, rounds: int = ROUNDS) -> Epoch:
    tasks, trained, models, model = [], [], [], job.model
    for number in range(rounds):
        earlier = tuple(
            EarlierRound(RoundIndex(at), one.data_seed, one.global_state_cid)
            for at, one in enumerate(tasks)
        )
        task = replace(
            job.task,
            slot=replace(job.task.slot, round=RoundIndex(number)),
            data_seed=sha256(bytes([number])),
            global_state_cid=job.store.add_bytes(model.to_bytes()).to_bytes(),
            earlier=earlier,
        )
        done = train_round(task, job.store)
        tasks.append(task)
        trained.append(done)
        models.append(model.digest())
        facts = all_standing([task.seat], job.manifest)
        model = merge(
            model,
            {task.seat: done.update},
            facts=facts,
            data_seed=task.data_seed,
            manifest=job.manifest,
        ).global_state
    return Epoch(job, tasks, trained, models)


@pytest.fixture(scope="module")
def epoch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Epoch]:
    folder: Path = tmp_path_factory.mktemp("epoch")
    yield trained_epoch(streaming(make_job(folder)))


def test_a_round_goes_on_with_the_state_of_the_one_before(epoch: Epoch) -> None:
    for number, task in enumerate(epoch.tasks[1:], 1):
        opening = opening_of(task, epoch.job.store)
        assert opening.batches == epoch.job.manifest.inner.steps
        public = opening_of(replace(task, earlier=()), epoch.job.store)
        assert public.batches == 0
        alone = train_round(replace(task, earlier=()), epoch.job.store)
        assert alone.states != epoch.trained[number].states


def test_who_kept_its_last_state_runs_nothing_again(
    epoch: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, tasks = epoch.job, epoch.tasks
    train_round(tasks[0], job.store, keeps=True)
    expected = state_roots(opening_of(tasks[1], job.store))

    def none(*_: object) -> None:
        raise AssertionError("a round of the epoch is run again")

    with monkeypatch.context() as patch:
        patch.setattr("atoll.train.round.run_alone", none)
        assert state_roots(opening_of(tasks[1], job.store)) == expected
        with pytest.raises(AssertionError):  # it is another round's
            opening_of(tasks[2], job.store)
    assert state_roots(opening_of(tasks[1], job.store)) == expected


@pytest.mark.parametrize("round", range(ROUNDS))
def test_an_honest_round_is_fine_with_all_before_it(epoch: Epoch, round: int) -> None:
    found = replay_seat(epoch.tasks[round], epoch.claimed(round), epoch.job.store)
    assert (found.differs_at, found.earlier) == (None, None)
    assert found.words == epoch.trained[round].words


@pytest.mark.parametrize(("round", "segment"), [(0, 1), (1, 0), (1, 4)])
def test_what_differs_in_a_round_that_nobody_drew_is_found_in_a_later_one(
    epoch: Epoch, round: int, segment: int
) -> None:
    """Segment 4 of four is the link: states as they are, another update."""
    false, done = Digest(bytes(range(32))), list(epoch.trained)
    states = list(done[round].states)
    if segment < len(states):
        states[segment] = false
        done[round] = replace(done[round], states=tuple(states))
    else:
        done[round] = replace(done[round], update=done[round].update[:-1] + b"\x55")
    last = ROUNDS - 1
    found = replay_seat(epoch.tasks[last], epoch.claimed(last, done), epoch.job.store)
    assert (found.earlier, found.differs_at) == (round, segment)
    own = epoch.trained[round]
    right = own.states[segment] if segment < len(states) else own.update_root
    assert found.own == right
    account = epoch.job.task.seat
    duty = found.duty(account, "0x" + "11" * 20)  # type: ignore[arg-type]  # an address
    assert (duty.at, duty.word) == (0, right)
