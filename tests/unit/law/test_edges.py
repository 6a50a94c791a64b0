"""What happens at the edge of a rule: one step before it, on it, one step after."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dag_cbor
import pytest
from multiformats import CID
from tests.unit.law.factories import (
    JOB,
    ScriptedJob,
    address,
    make_manifest,
    make_trace,
)

from atoll.errors import MalformedTrace, ManifestError
from atoll.law import events as ev
from atoll.law.canonical import decode
from atoll.law.evidence import breaks_circuit
from atoll.law.manifest import Manifest
from atoll.law.merkle import merkle_proof
from atoll.law.trace import TraceDocument
from atoll.law.words import Bitmap, JobStatus, Phase

LINK = dag_cbor.encode(CID("base32", 1, "raw", ("sha2-256", bytes(32))))


def started() -> ScriptedJob:
    job = ScriptedJob(make_manifest())
    job.open()
    return job


def times(job: ScriptedJob) -> tuple[Phase, bool, bool]:
    """The phase, and whether it has a deadline and a beacon to wait for."""
    state = job.view.state
    return state.phase, state.deadline != 0, state.beacon_block != 0


def test_each_phase_waits_for_its_deadline_or_for_its_beacon() -> None:
    job = started()
    seen = [times(job)]
    job.train()
    seen.append(times(job))
    for seat in range(4):
        job.commit(seat)
    job.start_reveal()
    seen.append(times(job))
    for seat in range(4):
        job.reveal(seat)
    job.arm()
    seen.append(times(job))
    job.draw()
    seen.append(times(job))
    for verifier in range(3):
        job.ballot(verifier, range(4))
    job.resolve()
    seen.append(times(job))
    job.attest()
    job.settle()
    seen.append(times(job))
    job.close(JobStatus.CANCELLED, "Cancelled")
    seen.append(times(job))
    assert seen == [
        (Phase.SEEDING, False, True),
        (Phase.TRAIN, True, False),
        (Phase.REVEAL, True, False),
        (Phase.DRAW, False, True),
        (Phase.REPORT, True, False),
        (Phase.ATTEST, True, False),
        (Phase.WAITING, False, False),
        (Phase.CLOSED, False, False),
    ]
    assert min(job.view.state.deadline, job.view.state.beacon_block) == 0


def test_a_settled_round_begins_the_next_from_its_first_attempts() -> None:
    job = started()
    job.honest_round()
    state = job.view.state
    assert (state.round, state.attempt, state.train_attempt) == (1, 0, 0)


def test_a_poke_is_due_at_the_deadline_and_after_the_beacon() -> None:
    job = started()
    beacon = job.view.state.beacon_block
    assert [job.view.is_poke_due(0, at) for at in (beacon, beacon + 1)] == [False, True]
    job.train()
    end = job.view.state.deadline
    assert [job.view.is_poke_due(at, 0) for at in (end - 1, end)] == [False, True]
    expiry = job.terms.expiry
    job.close(JobStatus.CANCELLED, "Cancelled")
    assert not job.view.is_poke_due(expiry, 0)


def test_a_round_is_final_at_the_end_of_its_dispute() -> None:
    job = started()
    assert not job.view.finalisable(1 << 40)
    job.honest_round()
    end = job.view.settled[0].dispute_until
    assert [job.view.finalisable(at) for at in (end - 1, end)] == [False, True]


def test_a_stranger_can_claim_nothing() -> None:
    job = started()
    job.honest_round()
    job.finalise()
    assert job.view.claimable(address("stranger")) == 0
    assert job.view.claimable(address("provider 0")) > 0


def test_who_sits_down_or_leaves_the_queue_waits_no_more() -> None:
    job = started()
    for name in ("first", "second", "third"):
        job.emit(ev.ProviderQueued(JOB, address(name)))
    job.emit(ev.ProviderUnqueued(JOB, address("second")))
    assert job.view.waiting == (address("first"), address("third"))


def test_gateways_of_those_who_left_are_still_asked() -> None:
    """What they served may still be needed, and they may still have it."""
    job = started()
    for provider in range(4):
        job.emit(ev.GatewayAnnounced(address(f"provider {provider}"), f"http://p{provider}"))
    job.emit(ev.GatewayAnnounced(address("stranger"), "http://stranger"))
    job.honest_round()
    before = job.view.gateway_urls()
    job.view = replace(
        job.view,
        seats={},
        verifiers={},
        work=replace(job.view.work, seats={}, verifiers={}),
    )
    assert set(job.view.gateway_urls()) == set(before) == {f"http://p{p}" for p in range(4)}


@pytest.mark.parametrize(
    ("caught", "revealed", "broken"),
    [(2, 3, False), (3, 3, True), (3, 5, True), (3, 6, False), (4, 7, True), (4, 8, False)],
)
def test_a_circuit_breaks_at_three_and_more_than_half(
    caught: int, revealed: int, broken: bool
) -> None:
    masks = Bitmap((1 << revealed) - 1), Bitmap((1 << caught) - 1)
    assert breaks_circuit(*masks) is broken


@pytest.mark.parametrize("around", [b"", b"\x81", b"\x81\x81", b"\xa1\x61a", b"\xa1\x61a\x81"])
def test_a_link_anywhere_is_not_canonical(around: bytes) -> None:
    """It would be a second spelling of a CID, which is bytes here."""
    with pytest.raises(ValueError, match="not the canonical encoding"):
        decode(around + LINK, 100)


@pytest.mark.parametrize("opening", [b"\x81", b"\xa1\x61a", b"\xc1"])
def test_containers_nest_to_a_depth_of_32(opening: bytes) -> None:
    with pytest.raises(ValueError, match="deeper than 32"):
        decode(opening * 33 + b"\x00", 100)
    if opening != b"\xc1":  # a tag of DAG-CBOR holds a link alone
        assert decode(opening * 32 + b"\x00", 100) is not None


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"\x1c", "not definite"),
        (b"\x5f", "not definite"),
        (b"\x81", "ends inside"),
        (b"\xa1\x61a", "ends inside"),
    ],
)
def test_a_head_that_says_no_length_is_refused(head: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decode(head, 100)
    assert decode(b"\x1b" + b"\xff" * 8, 100) == 2**64 - 1


@pytest.mark.parametrize("index", [-1, 5])
def test_there_is_no_proof_of_a_leaf_outside_of_the_tree(index: int) -> None:
    leaves = [bytes([at]) * 32 for at in range(5)]
    with pytest.raises((ValueError, IndexError)):
        merkle_proof(leaves, index)


@pytest.mark.parametrize(("field", "bits"), [("first_step", 32), ("last_step", 32)])
def test_a_leafs_numbers_fit_their_words(field: str, bits: int) -> None:
    document, _ = make_trace(make_manifest())
    plain: Any = dag_cbor.decode(document.to_bytes())
    for value, taken in (((1 << bits) - 1, True), (1 << bits, False)):
        plain["leaves"][0][field] = value
        data = dag_cbor.encode(plain)
        if taken:
            assert TraceDocument.from_bytes(data).to_bytes() == data
        else:
            with pytest.raises(MalformedTrace):
                TraceDocument.from_bytes(data)


def test_a_trace_has_at_most_64_leaves() -> None:
    document, _ = make_trace(make_manifest())
    plain: Any = dag_cbor.decode(document.to_bytes())
    leaf, state, roots = plain["leaves"][0], plain["states"][0], plain["state_roots"][0]
    for count, taken in ((64, True), (65, False)):
        plain |= {
            "leaves": [leaf] * count,
            "states": [state] * (count + 1),
            "state_roots": [roots] * (count + 1),
        }
        data = dag_cbor.encode(plain)
        if taken:
            assert len(TraceDocument.from_bytes(data).leaves) == 64
        else:
            with pytest.raises(MalformedTrace, match="65 leaves, at most 64"):
                TraceDocument.from_bytes(data)


def refused(manifest: Manifest, path: tuple[str, ...], value: object) -> bool:
    plain: Any = dag_cbor.decode(manifest.to_bytes())
    target = plain
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    try:
        Manifest.from_bytes(dag_cbor.encode(plain))
    except ManifestError:
        return True
    return False


def test_fragments_are_at_most_the_layers() -> None:
    manifest = make_manifest({"method.name": "streaming"})
    layers = manifest.model.layers
    assert not refused(manifest, ("codec", "fragments"), layers)
    assert refused(manifest, ("codec", "fragments"), layers + 1)


def test_a_delayed_outer_step_has_a_period_of_two_rounds_or_more() -> None:
    outer: dict[str, object] = {"kind": "delayed_nesterov", "beta2": "0", "eps": "0"}
    manifest = make_manifest()
    base = manifest.outer.model_dump() | outer | {"momentum": "0.9"}
    assert refused(manifest, ("outer",), base | {"period": 1})
    assert not refused(manifest, ("outer",), base | {"period": 2})


def test_heads_are_of_an_even_size() -> None:
    manifest = make_manifest()
    model = manifest.model.model_dump() | {"width": 24, "kv_heads": 1}
    assert not refused(manifest, ("model",), model | {"head_dim": 4})
    assert refused(manifest, ("model",), model | {"head_dim": 3})


def test_a_job_opens_with_its_least_members() -> None:
    manifest = make_manifest({"members.max_verifiers": 3, "members.auditors": 1})
    for providers, verifiers, opens in ((2, 2, True), (1, 2, False), (2, 1, False)):
        view = ScriptedJob(manifest, providers, verifiers).view
        waiting = {v: replace(m, ready=False) for v, m in view.verifiers.items()}
        ready = {v: replace(m, ready=True) for v, m in view.verifiers.items()}
        assert replace(view, verifiers=ready).is_poke_due(0, 0) is opens
        assert not replace(view, verifiers=waiting).is_poke_due(0, 0)
