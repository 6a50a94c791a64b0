"""The global model after some rounds follows from the manifest alone, whatever computes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.support.engines import engine_of
from tests.support.jobs import PLAIN
from tests.support.merging import all_standing, bearing_none
from tests.unit.train.factories import Job, small_model

from atoll.aggregation.merge_round import merge
from atoll.numerics import ops
from atoll.protocol.types import Digest, RoundIndex, SeatIndex
from atoll.train import probe
from atoll.train.round import train_round

SEATS, ROUNDS = 3, 2
COMPUTATIONS = [("auto", "auto", 1), ("fp32", "auto", 2), ("fp64", "eager", 1)]


def exact_job(job: Job) -> Job:
    spec = PLAIN.but(
        {
            "rounds": ROUNDS,
            "inner.steps": 2,
            "inner.segment": 1,
            "inner.batch": 2,
            "inner.micro_batch": 1,
            "model": small_model(),
            "members.seats": SEATS,
        }
    )
    numerics = probe.numerics_spec()
    return job.of(bearing_none(spec.resolve(job.manifest.data, None, numerics, now=0)))


def global_digests(job: Job) -> list[Digest]:
    """The global model's digest after each round of all seats, each round from the one before."""
    model, digests = job.model, []
    for number in range(ROUNDS):
        updates = {}
        for seat in range(SEATS):
            task = replace(
                job.task,
                round_id=replace(job.task.round_id, round=RoundIndex(number)),
                seat=SeatIndex(seat),
                data_seed=Digest(bytes([number]) * 32),
                global_state_cid=job.store.add_bytes(model.to_bytes()).to_bytes(),
            )
            updates[seat] = train_round(task, job.store).update
        record, seed = all_standing(updates, job.manifest), Digest(bytes([number]) * 32)
        merged = merge(model, updates, record=record, data_seed=seed, manifest=job.manifest)
        assert merged.merged
        model = merged.global_state
        digests.append(model.digest())
    return digests


def test_the_global_model_is_the_same_on_any_route_and_thread_count(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = exact_job(job)
    found = []
    for route, kernels, threads in COMPUTATIONS:
        chosen = engine_of(route, kernels)
        monkeypatch.setattr(ops, "default_engine", lambda chosen=chosen: chosen)
        torch.set_num_threads(threads)
        try:
            found.append(global_digests(ready))
        finally:
            torch.set_num_threads(1)
    assert found[1:] == found[:-1]
    assert len(set(found[0])) == ROUNDS
