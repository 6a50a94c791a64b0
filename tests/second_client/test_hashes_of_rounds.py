"""Rounds as the second client hashes, draws and pays them, against the vectors of the contracts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.second_client import bls, curve, money, rounds
from tests.second_client.typed import typed

FOLDER = Path(__file__).parents[1] / "vectors"
VECTORS = json.loads((FOLDER / "rounds.json").read_text())
HALVES = json.loads((FOLDER / "half_rounds.json").read_text())
RATES = json.loads((FOLDER / "audit_rates.json").read_text())
Json = dict[str, Any]
ABSENT, FULL = 0xFF, 3


def unhex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


AT = VECTORS["roundId"]
ROUND_ID = (AT["chainId"], unhex(AT["rounds"]), AT["jobId"], AT["round"])


def test_a_key_is_made_from_an_accounts_secret() -> None:
    case = VECTORS["key"]
    secret = int.from_bytes(unhex(case["secret"]), "big")
    key = rounds.key_of(secret, ROUND_ID, unhex(VECTORS["commit"]["seed"]), case["seat"])
    assert key == unhex(case["key"])
    assert rounds.key_hash(key) == unhex(case["keyHash"])


def test_a_commitment_and_what_it_opens_to() -> None:
    case = VECTORS["commit"]
    told = {name: unhex(value) for name, value in case["reveal"].items()}
    seed, account, model = (unhex(case[name]) for name in ("seed", "account", "model"))
    made = rounds.commitment(ROUND_ID, seed, case["seat"], account, told, model)
    assert made == unhex(case["commitment"])
    reveals = [(case["seat"], made), (2, unhex(case["other"]))]
    for count in (1, 2):
        found = rounds.reveals_accumulator(seed, reveals[:count])
        assert found == unhex(case["accumulators"][count - 1])
    key, plain = unhex(case["key"]), [unhex(tag) for tag in case["workTags"]]
    assert rounds.work_tags_of(told["checkpointCommitments"], key) == plain
    states = [
        state for state, _ in rounds.read_checkpoint_commitments(told["checkpointCommitments"])
    ]
    assert rounds.checkpoint_commitments_of(states, plain, key) == told["checkpointCommitments"]
    assert rounds.key_hash(key) == told["keyHash"]
    assert rounds.valid_digest(unhex(case["member"]), plain) == unhex(case["valid"])


def test_seeds_committee_draws_and_votes() -> None:
    case = VECTORS["seeds"]
    reveals, block = unhex(case["reveals"]), unhex(case["blockHash"])
    assert rounds.data_seed(ROUND_ID, reveals, block) == unhex(case["dataSeed"])
    seed = rounds.audit_seed(ROUND_ID, reveals, block)
    assert seed == unhex(case["auditSeed"])
    committee_draws = [
        rounds.following_committee(seed),
        *(rounds.later_committee(seed, i) for i in (1, 2)),
    ]
    assert committee_draws == [unhex(committee_draw) for committee_draw in case["committeeDraws"]]
    said = [(vote["slot"], int(vote["has"], 16)) for vote in case["votes"][1:]]
    for count, vote in enumerate(case["votes"]):
        found = rounds.votes_accumulator(unhex(case["dataSeed"]), said[:count])
        assert found == unhex(vote["accumulator"])


def verdict() -> Json:
    plain = VECTORS["certificate"]["verdict"]
    read = {name: unhex(plain[name]) for name in ("state", "cid", "loss", "statement")}
    return read | {"excluded": int(plain["excluded"], 16), "merged": plain["merged"]}


def test_a_certificate_is_of_those_who_signed_it() -> None:
    case = VECTORS["certificate"]
    seed, votes = unhex(case["seed"]), unhex(case["votes"])
    digest = rounds.certificate_digest(ROUND_ID, seed, votes, verdict())
    assert digest == unhex(case["digest"])
    committee, certificate = [unhex(a) for a in case["committee"]], unhex(case["certificate"])
    assert rounds.signers_of(digest, committee, certificate) == case["signers"]
    for odd in (certificate[:-1], certificate + b"\0", b"\0\0\0\x1f" + certificate[4:]):
        with pytest.raises(ValueError):
            rounds.signers_of(digest, committee, odd)
    # Another v is another key's, and another digest nobody's.
    last = certificate[:-1] + bytes([55 - certificate[-1]])
    assert rounds.signers_of(digest, committee, last) == case["signers"] ^ 1 << 3
    assert rounds.signers_of(bytes(32), committee, certificate) == 0


def test_an_enrolment_is_typed_data_of_the_members_contract() -> None:
    case, job = VECTORS["enrolment"], ROUND_ID[2]
    said = (
        ("uint256", "job", job),
        ("uint16", "slot", case["slot"]),
        ("uint128", "bond", int(case["bond"])),
        ("address", "account", unhex(case["account"])),
    )
    where = (ROUND_ID[0], unhex(AT["members"]))
    assert typed("Enrolment", where, said) == unhex(case["digest"])


def test_a_sum_of_signatures_is_of_registered_keys() -> None:
    case = VECTORS["bls"]
    digest, registry = unhex(case["digest"]), unhex(case["registry"])
    keys, served = [], []
    for i, member in enumerate(case["members"]):
        account, own = unhex(member["account"]), int(member["accountSecret"], 16)
        secret = bls.secret_of(own, AT["chainId"], registry, account)
        assert secret == int(member["secret"], 16)
        keys.append(bls.key_of(secret))
        assert keys[-1] == unhex(member["key"])
        message = bls.proof_message(AT["chainId"], registry, account, keys[-1])
        assert message == unhex(member["proofMessage"])
        if i == 0:  # a pairing in Python takes its time
            assert bls.is_proof(keys[-1], message, unhex(member["proof"]))
        served.append(bls.signed(secret, digest))
        assert served[-1] == unhex(member["signature"])
    assert bls.key_sum(keys) == unhex(case["keySum"])
    certificate = unhex(case["certificate"])
    assert certificate[4:] == bls.summed([served[i] for i in (0, 1, 3)])
    assert bls.signers_of(digest, keys, certificate) == case["signers"]
    for odd in (certificate[:-1], b"\0\0\0\x0f" + certificate[4:], certificate[:4] + bytes(192)):
        with pytest.raises(ValueError):
            bls.signers_of(digest, keys, odd)


def test_who_signs_what_is_recovered() -> None:
    for secret in (1, 2, curve.N - 1, 0xA70111):
        digest = rounds.key_hash(secret.to_bytes(32, "big"))
        account = curve.address_of(curve.times(secret, curve.G))
        assert curve.recover(digest, curve.sign(secret, digest)) == account


def test_round_records_and_audit_reports() -> None:
    names = {"revealed", "available", "excluded", "ready", "committee", "drawn"}
    plain = dict(VECTORS["record"])
    expected = unhex(plain.pop("hash"))
    record = {name: int(v, 16) if name in names else unhex(v) for name, v in plain.items()}
    assert rounds.record_hash(record) == expected
    case, body = VECTORS["auditReport"], unhex(VECTORS["auditReport"]["body"])
    read = {
        body[at]: (int.from_bytes(body[at + 1 : at + 3], "big"), body[at + 3 : at + 35])
        for at in range(0, len(body), 35)
    }
    assert rounds.body_of(read) == body
    assert read[5] == (rounds.VALID, unhex(VECTORS["commit"]["valid"]))
    member = case["id"], unhex(case["account"])
    sealed = rounds.audit_report_hash(
        ROUND_ID, unhex(case["auditSeed"]), member, body, unhex(case["salt"])
    )
    assert sealed == unhex(case["auditReport"])


def test_names_of_bonds_pay_positions_and_faults() -> None:
    for case in VECTORS["names"]:
        role, id, job, round = case["role"], case["id"], ROUND_ID[2], ROUND_ID[3]
        set_ = rounds.set_of(job, role, id)
        assert set_ == int(case["set"], 16)
        assert rounds.position_of(set_, round) == int(case["position"], 16)
        assert rounds.bond_lock(job, role, id) == unhex(case["lock"])
        members = unhex(AT["members"])
        missed_duty = round, case["kind"], case["seat"]
        fault = rounds.fault_id(members, job, (role, id), missed_duty)
        assert fault == unhex(case["fault"])


@pytest.mark.parametrize("case", VECTORS["draws"], ids=lambda case: case["name"])
def test_draws(case: Json) -> None:
    seed, ready = unhex(case["seed"]), int(case["ready"], 16)
    record = {name: int(case[name], 16) for name in ("revealed", "excluded", "ready")}
    assert sum(1 << p for p in rounds.committee_of(seed, ready)) == int(case["committee"], 16)
    seeded = rounds.seeded_seats(seed, record["revealed"], case["rate"])
    assert seeded == int(case["seeded"], 16)
    drawn = rounds.drawn_seats(seed, record, case["rate"], case["left"])
    assert drawn == int(case["drawn"], 16)
    assert list(rounds.auditors_of(seed, drawn, ready).values()) == case["auditors"]


@pytest.mark.parametrize("case", VECTORS["mostDuties"])
def test_what_an_escrow_holds_for_draws(case: Json) -> None:
    names = {"audit_rate": "auditRate", "last_rate": "lastRate"}
    terms = {name: case[names.get(name, name)] for name in ("rounds", "seats", *names)}
    assert money.most_duties(terms | {"f": 1}) == case["most"]


@pytest.mark.parametrize("case", RATES["retention"])
def test_what_is_retained_and_the_steps_it_brings(case: Json) -> None:
    bond, claims = int(case["bond"]), [int(each) for each in case["claims"]]
    assert [money.stake_of(bond, n) for n in range(16)] == [int(each) for each in case["needed"]]
    before = 0
    for count, (part, steps) in enumerate(zip(case["kept"], case["steps"], strict=True), 1):
        kept = money.retained(bond, case["mostSteps"], claims[:count])
        assert kept == (before + int(part), steps)
        before += int(part)


@pytest.mark.parametrize("case", RATES["draws"])
def test_whom_a_seed_draws_of_seats_that_have_come_down(case: Json) -> None:
    steps = dict(enumerate(case["steps"]))
    seed, revealed = unhex(case["auditSeed"]), int(case["revealed"], 16)
    assert rounds.seeded_seats(seed, revealed, case["rate"], steps) == int(case["drawn"], 16)


def test_money_and_last_moments() -> None:
    case = VECTORS["money"]
    values = [unhex(v) if str(v).startswith("0x") else int(v) for v in case["terms"]]
    terms = dict(zip(money.TERMS, values, strict=True))
    assert money.terms_hash(terms) == unhex(case["termsHash"])
    assert money.budget(terms) == int(case["budget"])
    assert terms["segment_pay"] == int(case["segmentPay"])
    penalties = [
        money.penalty(terms["provider_bond"], case["penaltyBps"], n) for n in (0, 1, 2, 3, 4, 40)
    ]
    assert penalties == [int(penalty) for penalty in case["penalties"]]
    assert money.last_moment(terms) == case["lastMoment"]
    assert money.absolute_end(terms, case["longestGame"]) == case["absoluteEnd"]


@pytest.mark.parametrize("case", HALVES["cases"])
def test_short_rounds_fill_buckets_and_earn_nothing_where_nothing_is_merged(case: Json) -> None:
    whole, levels = HALVES["segments"], [0] * 4
    for r, said in enumerate(case["done"]):
        done = {seat: m for seat, m in enumerate(unhex(said)) if m != ABSENT}
        can_earn = money.earning(done, whole, case["merged"][r])
        assert case["available"][r] & can_earn == case["pay"][r]
        assert sum(m for seat, m in done.items() if can_earn >> seat & 1) == case["earned"][r]
        for seat, m in done.items():
            levels[seat] = money.filled(levels[seat], m, whole)
        missed = sum(1 << seat for seat in done if levels[seat] >= FULL)
        assert missed == case["missed"][r]
