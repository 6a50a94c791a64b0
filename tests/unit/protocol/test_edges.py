"""Bounds of terms and manifests from both sides, and sums that a single event would not tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from libipld import decode_dag_cbor
from pydantic import ValidationError
from tests.support.identities import accounts
from tests.support.manifests import make_manifest, make_terms
from tests.unit.protocol.script import Script

from atoll.errors import ManifestError
from atoll.protocol import events as ev
from atoll.protocol import manifest as documents
from atoll.protocol import pay, terms
from atoll.protocol.audit_rates import most_duties, rate_in
from atoll.protocol.codecs import FP32_EXPONENT
from atoll.protocol.hashing import dither_key, keccak256
from atoll.protocol.manifest import Manifest
from atoll.protocol.method_spec import CodecSpec
from atoll.protocol.model_spec import MAX_ROTARY, LoraSpec
from atoll.protocol.rounds import apply
from atoll.protocol.terms import check_terms
from atoll.protocol.types import Digest, HolderId, MissedDuty, Role, RoundIndex, Terms, Wei

ONE_SEAT = {"seats": 1, "min_providers": 1, "f": 0}
MANY = {"seats": terms.MAX_SEATS, "min_providers": 1, "f": 0}
EDGES: dict[str, tuple[Terms, dict[str, int]]] = {
    "one round": (make_terms(rounds=1), {"rounds": 0}),
    "the most rounds": (make_terms(rounds=terms.MAX_ROUNDS), {"rounds": terms.MAX_ROUNDS + 1}),
    "one seat": (make_terms(**ONE_SEAT), {"seats": 0}),
    "the most seats": (make_terms(**MANY), {"seats": terms.MAX_SEATS + 1}),
    "nobody has to come": (make_terms(min_providers=1), {"min_providers": 0}),
    "everybody has to come": (make_terms(min_providers=4), {"min_providers": 5}),
    "one slot": (make_terms(slots=1, min_verifiers=1), {"slots": 0}),
    "the most slots": (make_terms(slots=terms.MAX_SLOTS), {"slots": terms.MAX_SLOTS + 1}),
    "one verifier": (make_terms(min_verifiers=1), {"min_verifiers": 0}),
    "all verifiers": (make_terms(min_verifiers=5), {"min_verifiers": 6}),
    "the lowest rate": (make_terms(audit_rate=15), {"audit_rate": 16}),
    "the lowest of the last round": (make_terms(last_rate=15), {"last_rate": 16}),
    "the most steps": (make_terms(audit_rate=10, rate_steps=5), {"rate_steps": 6}),
    "no step from always": (make_terms(audit_rate=0), {"rate_steps": 1}),
    "the most that is borne": (make_terms(f=1), {"f": 2}),
    "one step a segment": (make_terms(segment_steps=1), {"segment_steps": 0}),
    "one segment": (make_terms(segment_steps=40), {"segment_steps": 80}),
    "segments are whole": (make_terms(segment_steps=8), {"segment_steps": 7}),
    "a window of two games": (make_terms(window_seconds=300), {"window_seconds": 299}),
    "the least bond": (make_terms(provider_bond=80), {"provider_bond": 79}),
    "a verifier's least": (make_terms(verifier_bond=80), {"verifier_bond": 79}),
    "the largest bond": (make_terms(provider_bond=2**128 - 1), {"provider_bond": 2**128}),
    "a verifier's largest": (make_terms(verifier_bond=2**128 - 1), {"verifier_bond": 2**128}),
    "a second to be ready": (make_terms(ready_seconds=1), {"ready_seconds": 0}),
    "a second a move": (make_terms(move_seconds=1), {"move_seconds": 0}),
    "a second to claim": (make_terms(claim_seconds=1), {"claim_seconds": 0}),
}


@pytest.mark.parametrize("name", EDGES)
def test_terms_hold_up_to_their_bound_and_not_beyond(name: str) -> None:
    held, change = EDGES[name]
    check_terms(held)
    (field,) = change
    with pytest.raises(ManifestError, match=field.replace("segment_steps", "segment_steps|steps")):
        check_terms(replace(held, **change))


@pytest.mark.parametrize("program", [bytes(31), bytes(33), "0" * 32, None])
def test_a_program_is_a_hash(program: Any) -> None:
    with pytest.raises(ManifestError, match="program is"):
        check_terms(replace(make_terms(), program=program))


def test_windows_of_a_round_together_have_a_bound() -> None:
    held = make_terms(train_seconds=1)
    rest = sum(getattr(held, name) for name in terms.WINDOWS) - 1
    check_terms(replace(held, train_seconds=terms.LONGEST_SECONDS - rest))
    with pytest.raises(ManifestError, match="windows of"):
        check_terms(replace(held, train_seconds=terms.LONGEST_SECONDS - rest + 1))


def test_rotary_tables_have_a_bound() -> None:
    model = make_manifest().model
    longest = model.model_dump() | {"seq": 1 << 17, "head_dim": MAX_ROTARY >> 17}
    assert type(model).model_validate(longest).seq == 1 << 17
    with pytest.raises(ValidationError, match="rotary cosines"):
        type(model).model_validate(longest | {"head_dim": longest["head_dim"] + 2})


def test_exponents_may_lie_on_their_bounds() -> None:
    codec = make_manifest().codec
    start = codec.exponents.model_dump()
    low, high = min(start.values()), max(start.values())
    told = codec.moment_exponents.model_dump()
    low, high = min(low, *told.values()), max(high, *told.values())
    CodecSpec.model_validate(codec.model_dump() | {"min_exponent": low, "max_exponent": high})
    for change in ({"min_exponent": low + 1}, {"max_exponent": high - 1}):
        plain = codec.model_dump() | {"min_exponent": low, "max_exponent": high} | change
        with pytest.raises(ValidationError, match="outside the bounds"):
            CodecSpec.model_validate(plain)


def reference(**changes: Any) -> dict[str, Any]:
    """A codec that sends numbers as they are."""
    exponent = FP32_EXPONENT
    start = dict.fromkeys(("embedding", "matrix", "vector"), exponent)
    bounds = {"min_exponent": exponent, "max_exponent": exponent}
    return {"kind": "fp32", "exponents": start, "moment_exponents": start, **bounds, **changes}


def test_numbers_as_they_are_leave_nothing_out_and_have_a_mean() -> None:
    mean = {"robust": {"rule": "mean", "f": 0}, "terms.f": 0}
    manifest = make_manifest({"codec": reference(), **mean})
    assert manifest.codec.kind == "fp32"
    with pytest.raises(ValidationError, match="codec fp32 does not go with rule"):
        make_manifest({"codec": reference()})
    with pytest.raises(ValidationError, match="leaves nothing out"):
        make_manifest({"codec": reference(feedback="0.5"), **mean})


def test_adapters_have_a_rank_a_scale_and_targets() -> None:
    plain = {"rank": 1 << 15, "alpha": "16", "targets": ["q"]}
    assert LoraSpec.model_validate(plain).scale == 16 / 2**15
    for change in ({"rank": (1 << 15) + 1}, {"rank": 0}, {"targets": []}):
        with pytest.raises(ValidationError):
            LoraSpec.model_validate(plain | change)


def test_a_manifest_is_no_longer_than_a_gateway_gives_out(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_manifest().to_bytes()
    plain = decode_dag_cbor(data)
    monkeypatch.setattr(documents, "MAX_MANIFEST_BYTES", len(data))
    assert Manifest.model_validate(plain).to_bytes() == data
    monkeypatch.setattr(documents, "MAX_MANIFEST_BYTES", len(data) - 1)
    with pytest.raises(ValidationError, match="more than"):
        Manifest.model_validate(plain)


def test_a_pieces_dither_is_of_its_seat_section_and_position() -> None:
    seed = Digest(b"\x09" * 32)
    position = bytes.fromhex("0102" + "03" + "04050607")
    assert dither_key(seed, 0x0102, 3, 0x04050607) == keccak256(seed + position)


def test_what_was_claimed_and_burnt_adds_up() -> None:
    script = Script.ready(make_terms(rounds=2))
    view, account = script.net.view, script.account(0)
    for to, amount, burnt in ((1, 5, 2), (2, 7, 3)):
        event = ev.Claimed(
            view.job_id, account, Role.PROVIDER, HolderId(1), RoundIndex(to), amount, burnt
        )
        view = apply(view, event, view.block)
    assert (view.paid[account], view.burnt) == (12, script.net.view.burnt + 5)
    assert view.providers[HolderId(1)].claimed_to == 2


def test_credits_and_what_is_funded_and_burnt_add_up() -> None:
    script = Script.ready(make_terms(rounds=2))
    view, account = script.net.view, script.account(0)
    job, funded = view.job_id, view.funded
    for event in (
        ev.Credited(job, account, 5),
        ev.Credited(job, account, 7),
        ev.CreditClaimed(job, account, 4),
        ev.CreditClaimed(job, account, 6),
        ev.JobFunded(job, account, 3),
        ev.JobFunded(job, account, 8),
        ev.Burnt(job, RoundIndex(1), 20),
        ev.Burnt(job, RoundIndex(2), 30),
    ):
        view = apply(view, event, view.block)
    assert (view.credits[account], view.paid[account]) == (2, 10)
    assert (view.funded, view.burnt, view.burnt_to) == (funded + 11, 50, 2)


def test_a_stranger_that_claims_no_credit_leaves_nothing_in_the_view() -> None:
    """Anybody may, for anybody: of each account there would be one entry more to copy."""
    view = Script.ready(make_terms(rounds=2)).net.view
    before = (dict(view.paid), dict(view.credits))
    for stranger in accounts("stranger", 3):
        view = apply(view, ev.CreditClaimed(view.job_id, stranger, 0), view.block)
    assert (view.paid, view.credits) == before


def test_a_bond_has_nothing_below_zero_and_a_slash_takes_from_the_first_round_on() -> None:
    """What a bond lacks was taken of the stake behind it."""
    script = Script.ready()
    view, account, bond = script.net.view, script.account(0), script.net.terms.provider_bond
    where = (view.job_id, account, Role.PROVIDER, HolderId(1), RoundIndex(0), MissedDuty.SEAT)
    about = (view.job_id, account, account, Role.PROVIDER, HolderId(1))
    for penalty, left in ((1, bond - 1), (bond - 2, 2), (bond, 0)):
        found = apply(view, ev.Missed(*where, penalty), view.block)
        assert found.providers[HolderId(1)].bond == left
    for slashed, left in ((bond - 1, 1), (bond, 0), (bond + 1, 0)):
        first = apply(view, ev.HolderSlashed(*about, RoundIndex(7), slashed), view.block)
        held = first.providers[HolderId(1)]
        assert (held.bond, held.lost_from, held.is_slashed) == (left, 7, True)


def test_what_was_refunded_adds_up() -> None:
    script = Script.ready(make_terms(rounds=2))
    view, account = script.net.view, script.account(0)
    for amount in (5, 7):
        event = ev.Refunded(view.job_id, account, Wei(amount))
        view = apply(view, event, view.block)
    assert view.refunded == 12


def test_a_round_needs_twice_what_it_bears_and_one_more() -> None:
    def needed(**terms: int) -> tuple[int, int]:
        there = Script.ready(make_terms(**terms)).net.view.gathered()
        return there.enough_held, there.enough_ready

    assert needed(f=1, min_providers=1, min_verifiers=2) == (3, 2)
    assert needed(f=1, min_providers=4, min_verifiers=3) == (4, 3)
    assert needed(f=0, min_providers=1, min_verifiers=2) == (1, 2)


def test_who_has_no_slot_in_a_round_is_paid_nothing_for_it() -> None:
    script = Script.ready(make_terms(rounds=2))
    script.honest_round()
    view = script.net.view
    (settled_round,) = view.settled
    stranger = replace(view.verifiers[HolderId(1)], id=HolderId(99))
    assert pay.verifier_pay(view.require_terms(), settled_round, stranger) == Wei(0)
    other = replace(view.providers[HolderId(1)], id=HolderId(99))
    assert pay.round_pay(view.require_terms(), settled_round, other) == Wei(0)


def test_everybody_is_audited_where_nobody_is_borne() -> None:
    held = make_terms(audit_rate=10, last_rate=2)
    assert (rate_in(held, is_last=False), rate_in(held, is_last=True)) == (10, 2)
    nobody = replace(held, f=0)
    assert (rate_in(nobody, is_last=False), rate_in(nobody, is_last=True)) == (0, 0)
    assert most_duties(nobody) == nobody.rounds * nobody.seats
