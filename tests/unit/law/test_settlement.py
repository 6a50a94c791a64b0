"""Pay, claims and verdicts from evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.law.factories import (
    DOMAIN,
    JOB,
    JOBS,
    ScriptedJob,
    address,
    cid,
    digest,
    make_manifest,
    make_reveal,
)

from atoll.errors import ManifestError, ProtocolError
from atoll.law.hashing import tokens_root
from atoll.law.merkle import claims_tree
from atoll.law.settlement import (
    RoundEvidence,
    build_verdict,
    compute_settlement,
    diverged_seats,
    is_diverging,
)
from atoll.law.words import Bitmap, SeatIndex, VerifierIndex

TERMS = make_manifest().terms
EVIDENCE = RoundEvidence(
    accepted=Bitmap(0b1011),
    dutiful=Bitmap(0b101),
    steps={SeatIndex(s): 40 for s in range(3)} | {SeatIndex(3): 12},
    providers={SeatIndex(s): address(f"p{s}") for s in range(4)},
    verifiers={VerifierIndex(v): address(f"v{v}") for v in range(3)},
)


def test_accepted_seats_are_paid_their_steps_and_dutiful_verifiers_their_fee() -> None:
    settlement = compute_settlement(TERMS, EVIDENCE, {})
    full, part = 40 * TERMS.tokens_per_step, 12 * TERMS.tokens_per_step
    assert settlement.tokens == (full, full, 0, part)
    assert settlement.pay == {
        address("p0"): full * TERMS.price_per_token,
        address("p1"): full * TERMS.price_per_token,
        address("p3"): part * TERMS.price_per_token,
        address("v0"): TERMS.verifier_fee,
        address("v2"): TERMS.verifier_fee,
    }


def test_claims_add_up_over_rounds_and_keep_those_who_earned_before() -> None:
    before = {address("old"): 5, address("p0"): 7}
    settlement = compute_settlement(TERMS, EVIDENCE, before)
    assert settlement.claims[address("old")] == 5
    assert settlement.claims[address("p0")] == 7 + settlement.pay[address("p0")]
    assert settlement.cumulative_total == 12 + sum(settlement.pay.values())


def test_one_account_in_two_roles_has_one_claim() -> None:
    both = replace(EVIDENCE, verifiers={VerifierIndex(v): address("p0") for v in range(3)})
    settlement = compute_settlement(TERMS, both, {})
    tokens = 40 * TERMS.tokens_per_step * TERMS.price_per_token
    assert settlement.claims[address("p0")] == tokens + 2 * TERMS.verifier_fee


def test_a_quarter_of_the_revealed_seats_diverging_halts_the_job() -> None:
    steps = dict(EVIDENCE.steps)
    assert diverged_seats(steps, TERMS) == 0b1000
    assert is_diverging(Bitmap(0b1111), Bitmap(0b1111), steps, TERMS)
    assert not is_diverging(Bitmap(0b11111), Bitmap(0b1111), steps, TERMS)
    assert not is_diverging(Bitmap(0b1111), Bitmap(0b0111), steps, TERMS)
    assert not is_diverging(Bitmap(0b1), Bitmap(0b1), {SeatIndex(0): 40}, TERMS)


def test_a_verdict_holds_what_the_evidence_gives() -> None:
    job = attesting()
    verdict = build_verdict(job.view, job.manifest, digest("merged"), cid("merged"))
    settlement = compute_settlement(TERMS, EVIDENCE, {})
    assert verdict.tokens_total == 4 * 40 * TERMS.tokens_per_step
    assert verdict.tokens_root == tokens_root([40 * TERMS.tokens_per_step] * 4)
    assert verdict.evidence_root == job.view.state.evidence_root
    assert verdict.cut_block_hash == digest(f"block {job.view.state.cut_block}")
    assert verdict.cumulative_total > settlement.pay[address("p0")]
    providers = {address(f"provider {s}"): 40 * TERMS.tokens_per_step * 10**12 for s in range(4)}
    verifiers = {address(f"verifier {v}"): TERMS.verifier_fee for v in range(3)}
    tree = claims_tree(DOMAIN.chain_id, JOBS, JOB, providers | verifiers)
    assert verdict.claims_root == tree.root


def attesting() -> ScriptedJob:
    job = ScriptedJob(make_manifest())
    job.open()
    job.until_audit()
    for v in range(3):
        job.ballot(v, range(4))
    job.resolve()
    return job


def test_there_is_no_verdict_before_the_evidence_is_cut() -> None:
    job = ScriptedJob(make_manifest())
    job.open()
    with pytest.raises(ProtocolError, match="SEEDING"):
        build_verdict(job.view, job.manifest, digest("merged"), cid("merged"))


def test_there_is_no_verdict_under_another_manifest() -> None:
    job = attesting()
    with pytest.raises(ManifestError):
        build_verdict(job.view, make_manifest({"rounds": 5}), digest("merged"), cid("merged"))


def test_a_seat_that_diverged_is_paid_for_the_steps_it_did() -> None:
    job = ScriptedJob(make_manifest())
    job.honest_round(reveals={1: make_reveal("short", steps=12)})
    settled = job.view.settled[0]
    assert settled.tokens[1] == 12 * TERMS.tokens_per_step
    assert settled.is_consistent
