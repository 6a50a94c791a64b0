"""Every method that a job can have, for three rounds; and every method's updates, broken."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.support.jobs import PLAIN
from tests.support.merging import all_standing
from tests.unit.train.factories import DATA_SEED, KEY, Job, make_job, small_model, with_method

from atoll.aggregation.merge_round import merge
from atoll.errors import MalformedUpdate, ManifestError
from atoll.job.methods import DENSE_CODECS, METHODS, method_of, with_codec
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.initial_state import open_round
from atoll.numerics.sections import UpdateLayout
from atoll.numerics.update_proof import close_round
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Digest, RoundIndex, SeatIndex
from atoll.train.replay import RevealedRound, replay_seat
from atoll.train.round import train_round

SEATS = 3
PUBLIC = [name for name, method in METHODS.items() if not method.codec.is_stateful]
"""What runs in rounds that open from public data."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("methods"))


def manifest_for(data: Job, method: str) -> Manifest:
    job = PLAIN.but(
        {
            "method.name": method,
            "rounds": 3,
            "inner.steps": 4,
            "inner.segment": 2,
            "inner.batch": 2,
            "model": small_model(),
            "members.seats": SEATS,
        }
    )
    return job.resolve(data.manifest.data, None, data.manifest.numerics, now=0)


def one_round(job: Job, round: int) -> Job:
    """All seats train, are replayed, and merged in two orders; the job with the next model."""
    cid = job.store.add_bytes(job.model.to_bytes()).to_bytes()
    seed, manifest = Digest(bytes([round]) * 32), job.manifest
    round_id = replace(job.task.round_id, round=RoundIndex(round))
    updates = {}
    for seat in range(SEATS):
        task = replace(
            job.task, round_id=round_id, seat=SeatIndex(seat), data_seed=seed, global_state_cid=cid
        )
        trained = train_round(task, job.store)
        claimed = RevealedRound(
            trained.checkpoint_commitments(KEY), trained.update_root, job.model.digest()
        )
        assert replay_seat(task, claimed, job.store).mismatch_at is None
        updates[seat] = trained.update
    record = all_standing(updates, manifest)
    merged = merge(job.model, updates, record=record, data_seed=seed, manifest=manifest)
    turned = dict(reversed(updates.items()))
    backwards = merge(job.model, turned, record=record, data_seed=seed, manifest=manifest)
    assert merged.global_state.digest() == backwards.global_state.digest()
    return replace(job, model=merged.global_state)


@pytest.mark.parametrize("method", PUBLIC)
def test_a_method_trains_replays_links_and_merges(method: str, data: Job) -> None:
    manifest = manifest_for(data, method)
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
    job = data.of(manifest)
    for round in range(manifest.terms.rounds):
        before, job = job.model, one_round(job, round)
        assert job.model.params_root() != before.params_root()
        assert job.model.moments.is_warm == manifest.shares_moments
    assert set(job.model.outer) == set(manifest.outer.properties.slots)
    assert all(torch.isfinite(p).all() for p in job.model.params.values())


@pytest.mark.parametrize("method", METHODS)
def test_a_methods_updates_are_refused_when_broken(method: str, data: Job) -> None:
    """Hostile bytes are a typed error whatever the codec: truncated, padded, of another codec."""
    job = data.of(with_method(data.manifest, method))
    layout = UpdateLayout.of(job.manifest, job.model.shapes, 0)
    initial_state = open_round(job.manifest, job.model, None)
    last = replace(
        initial_state, params={name: p * 0.98 for name, p in initial_state.params.items()}
    )
    good, _ = close_round(job.manifest, job.model, last, DitherKey(DATA_SEED, 0))
    assert len(good) == layout.encoded_length
    for bad in (b"", good[:-1], good + b"\0", b"X" + good[1:], good[:5] + b"\x09" + good[6:]):
        with pytest.raises(MalformedUpdate):
            layout.open(bad, job.model, DitherKey(DATA_SEED, 1))
        record = all_standing([0, 1], job.manifest)
        merged = merge(
            job.model, {0: good, 1: bad}, record=record, data_seed=DATA_SEED, manifest=job.manifest
        )
        assert merged.inputs.mergeable == (0,)


def test_a_job_of_one_round_says_so_in_the_terms(data: Job) -> None:
    lo_fi = manifest_for(data, "lo_fi")
    assert (lo_fi.terms.steps, lo_fi.segments, lo_fi.terms.rounds) == (4, 2, 1)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ManifestError, match="no method") as caught:
        method_of("sgd")
    assert "sparseloco" in (caught.value.next_step or "")
    with pytest.raises(ManifestError):
        method_of("")


@pytest.mark.parametrize("name", DENSE_CODECS)
def test_another_codec_keeps_the_methods_fragments(name: str) -> None:
    streaming = method_of("streaming")
    codec = with_codec(streaming, name).codec
    assert (codec.kind, codec.fragments, codec.mixing) == (name, 2, "0.5")
    assert with_codec(method_of("sparseloco"), name).rule != "contributor_mean"


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(ManifestError, match="no dense codec") as caught:
        with_codec(method_of("fedavg"), "sparse")
    assert "two_bit" in (caught.value.next_step or "")
