"""A reset period of a small streaming job, trained by one seat alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.support.merging import all_standing, bearing_none
from tests.unit.train.factories import KEY, Job, with_method

from atoll.aggregation.merge_round import merge
from atoll.numerics.state import GlobalState
from atoll.protocol.hashing import sha256
from atoll.protocol.types import Digest, RoundIndex
from atoll.train.earlier import EarlierRound
from atoll.train.replay import RevealedRound
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import TrainTask

ROUNDS = 3


@dataclass(frozen=True)
class ResetPeriod:
    """One seat's rounds of a streaming job, each merged alone."""

    job: Job
    tasks: list[TrainTask]
    trained: list[TrainedRound]
    states: list[GlobalState]

    @property
    def models(self) -> list[Digest]:
        """Digests of what the rounds opened from."""
        return [state.digest() for state in self.states]

    def model_of(self, round: int) -> GlobalState:
        """What a round opened from."""
        return self.states[round]

    def claimed(self, round: int, trained: list[TrainedRound] | None = None) -> RevealedRound:
        """What the seat revealed of a round and of those before it."""
        done = zip(trained or self.trained, self.models, strict=True)
        said = [
            RevealedRound(one.checkpoint_commitments(KEY), one.update_root, model)
            for one, model in done
        ]
        return replace(said[round], earlier=tuple(said[:round]))


def streaming(job: Job) -> Job:
    manifest = bearing_none(with_method(job.manifest, "streaming"))
    codec = manifest.codec.model_copy(update={"overlap": manifest.inner.segment})
    terms = replace(manifest.terms, f=0)
    return job.of(manifest.model_copy(update={"codec": codec, "terms": terms}))


def fed_back(job: Job) -> Job:
    """Two bits, and what they leave out is sent a round later: every first step takes it in."""
    manifest = bearing_none(with_method(job.manifest, "streaming"))
    alone = {"kind": "two_bit", "feedback": "0.9", "fragments": 1, "overlap": 0, "mixing": "0"}
    codec = manifest.codec.model_copy(update=alone)
    terms = replace(manifest.terms, f=0)
    return job.of(manifest.model_copy(update={"codec": codec, "terms": terms}))


def trained_reset_period(job: Job, rounds: int = ROUNDS) -> ResetPeriod:
    tasks, trained, models, model = [], [], [], job.model
    for number in range(rounds):
        earlier = tuple(
            EarlierRound(RoundIndex(at), one.data_seed, one.global_state_cid)
            for at, one in enumerate(tasks)
        )
        task = replace(
            job.task,
            round_id=replace(job.task.round_id, round=RoundIndex(number)),
            data_seed=sha256(bytes([number])),
            global_state_cid=job.store.add_bytes(model.to_bytes()).to_bytes(),
            earlier=earlier,
        )
        done = train_round(task, job.store)
        tasks.append(task)
        trained.append(done)
        models.append(model)
        record = all_standing([task.seat], job.manifest)
        model = merge(
            model,
            {task.seat: done.update},
            record=record,
            data_seed=task.data_seed,
            manifest=job.manifest,
        ).global_state
    return ResetPeriod(job, tasks, trained, models)
