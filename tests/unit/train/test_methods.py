"""Every method, for three rounds, on the path that the chain holds providers and verifiers to."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.jobs import PLAIN
from tests.merging import all_standing
from tests.unit.train.factories import DATA_SEED, DITHER, Job, make_job, small_model

from atoll.bits.codec.layout import Layout
from atoll.bits.codec.registry import seat_codec
from atoll.bits.layout import OUTER_SLOTS
from atoll.bits.opening import opening_digest
from atoll.errors import MalformedUpdate, ManifestError
from atoll.job.methods import DENSE_CODECS, METHODS, method_of, with_codec
from atoll.law.manifest import Manifest
from atoll.law.words import ZERO_DIGEST, Digest, RoundIndex, SeatIndex
from atoll.merge.round import merge
from atoll.train.replay import SegmentReplay, replay_segment, served
from atoll.train.round import TrainedRound, train_round

SEATS = 3


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


def replays(job: Job, trained: TrainedRound, accepted: Digest) -> list[SegmentReplay]:
    """Every segment from what was committed; `accepted` is the seat's root on the chain."""
    roots = job.opening_roots(accepted)
    found = []
    for segment, leaf in enumerate(trained.document.leaves):
        task = replace(
            job.replay_task(trained, segment),
            opening_digest=opening_digest(trained.document, segment, *roots),
        )
        opening, closing = map(job.blob, trained.document.states[segment : segment + 2])
        found.append(replay_segment(task, served(task, opening), leaf, job.store, closing))
    return found


class Run:
    """A job's seats and its verifier, without the chain between them."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.round = 0
        self.roots = dict.fromkeys(range(SEATS), ZERO_DIGEST)
        self.carried: dict[int, bytes | None] = dict.fromkeys(range(SEATS))

    def seat(self, seat: int) -> Job:
        """The seat's work in this round."""
        job = self.job
        task = replace(
            job.task,
            slot=replace(job.task.slot, round=RoundIndex(self.round)),
            seat=SeatIndex(seat),
            data_seed=Digest(bytes([self.round]) * 32),
            global_state_cid=job.store.add_bytes(job.model.to_bytes()).to_bytes(),
            opening_optimiser=self.carried[seat],
        )
        return replace(job, task=task)

    def verify(self, seat: int, trained: TrainedRound) -> None:
        """Replays everything from what was committed, then the link."""
        job = self.seat(seat)
        roots = job.opening_roots(self.roots[seat])
        trained.document.check_opening(*roots)
        assert all(replay.matches for replay in replays(job, trained, self.roots[seat]))
        assert job.link(trained, trained.update)
        assert not job.link(trained, trained.update, Digest(b"\x01" * 32))
        flipped = bytearray(trained.update)
        flipped[-1] ^= 1
        assert not job.link(trained, bytes(flipped))

    def one_round(self) -> None:
        done = {seat: train_round(self.seat(seat).task, self.job.store) for seat in range(SEATS)}
        for seat, trained in done.items():
            self.verify(seat, trained)
        updates = {seat: trained.update for seat, trained in done.items()}
        manifest, seed = self.job.manifest, self.job.task.data_seed
        facts = all_standing(updates, manifest)
        merged = merge(self.job.model, updates, facts=facts, data_seed=seed, manifest=manifest)
        turned = dict(reversed(updates.items()))
        backwards = merge(self.job.model, turned, facts=facts, data_seed=seed, manifest=manifest)
        assert merged.merged
        assert merged.global_state.digest() == backwards.global_state.digest()
        self.job = replace(self.job, model=merged.global_state)
        self.round += 1
        self.roots = {seat: trained.optimiser_root for seat, trained in done.items()}
        self.carried = {seat: trained.carried_cid for seat, trained in done.items()}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_replays_links_and_merges(method: str, data: Job) -> None:
    manifest = manifest_for(data, method)
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
    run = Run(data.of(manifest))
    first = run.job.model
    run.one_round()
    assert run.job.model.params_root() != first.params_root()
    assert set(run.job.model.outer) == set(OUTER_SLOTS[manifest.outer.kind])
    for _ in range(1, manifest.terms.rounds):
        before = run.job.model
        run.one_round()
        assert run.job.model.params_root() != before.params_root()
    assert all(torch.isfinite(p).all() for p in run.job.model.params.values())


@pytest.mark.parametrize("method", METHODS)
def test_a_methods_updates_are_refused_when_broken(method: str, data: Job) -> None:
    """Hostile bytes are a typed error whatever the codec: truncated, padded, of another codec."""
    job = data.of(manifest_for(data, method))
    part, codec = job.model.sent_part(job.manifest.codec), seat_codec(job.manifest.codec, DITHER)
    layout = Layout.of_tensors(part.params)
    good = codec.encode({name: p / 50 for name, p in part.params.items()}, part.exponents)
    assert len(good) == codec.encoded_length(layout)
    for bad in (b"", good[:-1], good + b"\0", b"X" + good[1:], good[:5] + b"\x09" + good[6:]):
        with pytest.raises(MalformedUpdate):
            codec.decode_flat(bad, layout, part.exponents)
        facts = all_standing([0, 1], job.manifest)
        merged = merge(
            job.model, {0: good, 1: bad}, facts=facts, data_seed=DATA_SEED, manifest=job.manifest
        )
        assert merged.inputs.available == (0,)


def test_methods_that_are_one_step_or_one_round_say_so_in_the_terms(data: Job) -> None:
    demo, lo_fi = manifest_for(data, "demo"), manifest_for(data, "lo_fi")
    assert (demo.terms.steps, demo.segments, demo.terms.rounds) == (1, 1, 3)
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
