"""Writes the vectors of rounds: who is merged, who is drawn, what is hashed and paid.

Rule of this file: neither torch nor numpy, so that whoever changes the law alone can run it:
`python tests/vectors/generate_rounds.py`. Inputs are fixed, or derived by SHA-256 from short names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

from coincurve import PrivateKey
from eth_utils.address import to_checksum_address
from tests.support.identities import address, cid, digest
from tests.support.manifests import make_manifest, make_terms
from tests.vectors.merge_input_cases import merge_input_cases
from tests.vectors.plain import Json, camel, plain, text

from atoll.protocol import (
    audit_rates,
    audit_reports,
    bls,
    certificates,
    clocks,
    committee_draws,
    draws,
    game_records,
    hashing,
    missed_duties,
    pay,
)
from atoll.protocol.checkpoint_commitments import (
    CheckpointCommitments,
    StateRoots,
    StepWork,
    float_bytes,
    key_hash,
    key_message,
    key_of,
    work_tag,
)
from atoll.protocol.typed_data import enrolment
from atoll.protocol.types import (
    Address,
    Bitmap,
    Domain,
    HolderId,
    JobId,
    MissedDuty,
    Reveal,
    Role,
    RoundId,
    RoundIndex,
    RoundRecord,
    SeatIndex,
    SlotIndex,
    Verdict,
    to_bitmap,
)

HERE = Path(__file__).parent


# --- rounds.json ---

CHAIN_ID = 31337
DOMAIN = Domain(CHAIN_ID, address("rounds"))
ROUND_ID = RoundId(DOMAIN, JobId(7), RoundIndex(3))
ACCOUNT, MEMBER = address("provider"), address("verifier")
SEED, AUDIT_SEED, MODEL = digest("data seed"), digest("audit seed"), digest("model")
KEY = digest("key")
TAGS = [digest(f"x {j}") for j in range(3)]
STATES = [digest(f"state {j}") for j in range(3)]
VERDICT = Verdict(
    Bitmap(0b100), 5, digest("next model"), cid("next model"), bytes(range(8)), digest("statement")
)
TERMS = make_terms(program=digest("program"), rounds=5, seats=7, f=2, slots=40)
SECRETS = [digest(f"secret {i}") for i in range(4)]
"""Of the committee: every one's account is `committee`'s at the same position."""


def struct(item: Any, *bitmaps: str) -> Json:
    """A dataclass with Solidity's names; its bitmaps as hex numbers."""
    values = {field.name: getattr(item, field.name) for field in fields(item)}
    return {
        camel(name): hex(value) if name in bitmaps else plain(value)
        for name, value in values.items()
    }


def key_case() -> Json:
    """The key of a round, from a signature that anybody with the secret makes again."""
    message = key_message(ROUND_ID, SEED, SeatIndex(5)).digest
    signature = PrivateKey(SECRETS[0]).sign_recoverable(message, hasher=None)
    return {
        "key": text(key_of(signature)),
        "keyHash": text(key_hash(key_of(signature))),
        "message": text(message),
        "seat": 5,
        "secret": text(SECRETS[0]),
    }


def commit_case() -> Json:
    checkpoint_commitments = CheckpointCommitments.of(STATES, TAGS, KEY)
    reveal = Reveal(
        digest("update root"),
        key_hash(KEY),
        digest("salt"),
        checkpoint_commitments.to_bytes(),
        cid("update"),
    )
    commitment = hashing.commitment(
        ROUND_ID, SEED, SeatIndex(5), ACCOUNT, reveal=reveal, model=MODEL
    )
    other = digest("another commitment")
    first = hashing.accumulate_reveal(SEED, SeatIndex(5), commitment)
    return {
        "account": ACCOUNT,
        "accumulators": [text(first), text(hashing.accumulate_reveal(first, SeatIndex(2), other))],
        "commitment": text(commitment),
        "valid": text(audit_reports.valid_digest(MEMBER, TAGS)),
        "key": text(KEY),
        "member": MEMBER,
        "model": text(MODEL),
        "other": text(other),
        "reveal": struct(reveal),
        "seat": 5,
        "seed": text(SEED),
        "workTags": [text(tag) for tag in TAGS],
    }


def seed_cases() -> Json:
    block = digest("block")
    data_seed = hashing.data_seed(ROUND_ID, digest("reveals"), block)
    audit_seed = hashing.audit_seed(ROUND_ID, digest("reveals"), block)
    second = committee_draws.next_committee(audit_seed, 1)
    said = [(SlotIndex(2), Bitmap(0b1011)), (SlotIndex(31), Bitmap(1 << 255))]
    return {
        "auditSeed": text(audit_seed),
        "blockHash": text(block),
        "dataSeed": text(data_seed),
        "committeeDraws": [
            text(committee_draws.following_committee(audit_seed)),
            text(second),
            text(committee_draws.next_committee(second, 2)),
        ],
        "reveals": text(digest("reveals")),
        "votes": [
            {
                "accumulator": text(hashing.accumulate_votes(data_seed, said[:count])),
                "has": hex(said[count - 1][1]) if count else hex(0),
                "slot": said[count - 1][0] if count else 0,
            }
            for count in range(3)
        ],
    }


def certificate_case() -> Json:
    """Members 0, 1 and 3 of four sign."""
    found = hashing.certificate_hash(ROUND_ID, SEED, digest("votes"), VERDICT)
    signed: dict[Address, bytes] = {}
    committee: list[Address] = []
    for i, secret in enumerate(SECRETS):
        key = PrivateKey(secret)
        point = key.public_key.format(compressed=False)[1:]
        account = Address(to_checksum_address(hashing.keccak256(point)[-20:]))
        committee.append(account)
        raw = key.sign_recoverable(found, hasher=None)
        if i != 2:
            signed[account] = raw[:64] + bytes([raw[64] + 27])
    return {
        "certificate": text(certificates.certificate_bytes(committee, signed)),
        "committee": committee,
        "digest": text(found),
        "seed": text(SEED),
        "signers": 0b1011,
        "verdict": struct(VERDICT, "excluded"),
        "votes": text(digest("votes")),
    }


def enrolment_case() -> Json:
    """What is signed for a slot, at the contract of the names' members."""
    slot, bond = 31, (1 << 128) - 1
    where = (CHAIN_ID, address("members"), ROUND_ID.job, slot)
    message = enrolment(*where, bond=bond, account=MEMBER)
    return {"account": MEMBER, "bond": str(bond), "digest": text(message.digest), "slot": slot}


def bls_case() -> Json:
    """Of the same committee, under a registry; signatures as gateways serve them."""
    found = hashing.certificate_hash(ROUND_ID, SEED, digest("votes"), VERDICT)
    registry, members, keys = address("registry"), [], {}
    signed: dict[Address, bytes] = {}
    for i, secret in enumerate(SECRETS):
        own = PrivateKey(secret)
        point = own.public_key.format(compressed=False)[1:]
        account = Address(to_checksum_address(hashing.keccak256(point)[-20:]))
        asked = bls.secret_message(CHAIN_ID, registry, account).digest
        raw = own.sign_recoverable(asked, hasher=None)
        made = bls.secret_of(key_of(raw))
        key = keys[account] = bls.key_of(made)
        message = bls.proof_message(CHAIN_ID, registry, account, key)
        proof = bls.added([bls.sign(made, message, bls.PROVE)])
        signature = bls.sign(made, found)
        members.append(
            {
                "account": account,
                "accountSecret": text(secret),
                "key": text(key),
                "proof": text(proof),
                "proofMessage": text(message),
                "secret": text(made.to_bytes(32, "big")),
                "signature": text(signature),
            }
        )
        if i != 2:
            signed[account] = signature
    made = certificates.Bls(keys).certificate([m["account"] for m in members], signed)
    return {
        "certificate": text(made),
        "digest": text(found),
        "keySum": text(bls.key_sum(keys.values())),
        "members": members,
        "registry": registry,
        "signers": 0b1011,
    }


def record_case() -> Json:
    names = ("revealed", "available", "excluded", "ready", "committee", "drawn")
    maps = (0b1111, 0b1101, 0b100, 0b11011, 0b11011, 0b110)
    digests = (digest(name) for name in ("seed", "audit", "reveals", "votes", "model"))
    record = RoundRecord(*digests, *map(Bitmap, maps), digest("certificate"))
    return struct(record, *names) | {"hash": text(hashing.record_hash(record))}


def audit_report_case() -> Json:
    duties = (
        audit_reports.AuditEntry.valid(SeatIndex(5), MEMBER, TAGS),
        audit_reports.AuditEntry(SeatIndex(200), 3, digest("own")),
    )
    body, salt, id = audit_reports.AuditReport(duties), digest("audit report's salt"), HolderId(9)
    sealed = audit_reports.audit_report_hash(
        ROUND_ID, AUDIT_SEED, id, MEMBER, body=body.hash, salt=salt
    )
    return {
        "account": MEMBER,
        "auditSeed": text(AUDIT_SEED),
        "auditReport": text(sealed),
        "body": text(body.to_bytes()),
        "bodyHash": text(body.hash),
        "id": id,
        "salt": text(salt),
    }


def name_cases() -> list[Json]:
    """Locks, sets, pay positions and faults."""
    members = RoundId(Domain(CHAIN_ID, address("members")), ROUND_ID.job, ROUND_ID.round)
    return [
        {
            "fault": text(hashing.fault_id(members, role, id, kind, seat)),
            "id": id,
            "kind": int(kind),
            "lock": text(hashing.bond_lock(ROUND_ID.job, role, id)),
            "position": text(game_records.pay_position(ROUND_ID.job, role, id, ROUND_ID.round)),
            "role": int(role),
            "seat": seat,
            "set": text(game_records.bond_set(ROUND_ID.job, role, id)),
        }
        for role, id, kind, seat in (
            (Role.PROVIDER, HolderId(1), MissedDuty.SEAT, SeatIndex(0)),
            (Role.VERIFIER, HolderId(2**32 - 1), MissedDuty.EQUIVOCATED, SeatIndex(0)),
            (Role.VERIFIER, HolderId(7), MissedDuty.DROPPED, SeatIndex(255)),
        )
    ]


def draw_cases() -> list[Json]:
    """Committees, drawn seats and the auditor of each."""
    cases = []
    for name, revealed, excluded, ready, rate, left in (
        ("four of four", 0b1111, 0, 0b111, 2, 99),
        ("one excluded", 0b1111_1111, 0b1000, 0b1101_0111, 4, 99),
        ("a large pool", (1 << 64) - 1, 0b101, (1 << 60) - 1, 9, 99),
        ("everybody", (1 << 256) - 1, 0, (1 << 256) - 1, 0, 999),
        ("few are left", (1 << 200) - 1, 1 << 199 | 1 << 77, 0b10, 5, 7),
    ):
        seed, pool, seats = digest(name), Bitmap(ready), Bitmap(revealed)
        drawn = committee_draws.draw_audits(seed, seats, Bitmap(excluded), rate=rate, left=left)
        seeded = committee_draws.draw_audits(seed, seats, Bitmap(0), rate=rate, left=256)
        auditors = committee_draws.auditors_of(seed, drawn, pool)
        cases.append(
            {
                "auditors": list(auditors.values()),
                "committee": hex(to_bitmap(committee_draws.draw_committee(seed, pool))),
                "drawn": hex(drawn),
                "excluded": hex(excluded),
                "left": left,
                "name": name,
                "rate": rate,
                "ready": hex(ready),
                "revealed": hex(revealed),
                "seed": text(seed),
                "seeded": hex(seeded),
            }
        )
    return cases


def most_cases() -> list[Json]:
    """Duties that an escrow holds fees for, where f is not 0."""
    cases = []
    for rounds, seats, usual, last in (
        (1, 1, 0, 0), (50, 8, 8, 8), (500, 64, 10, 10), (2, 4, 2, 0),
        (2**24 - 2, 256, 0, 0), (2**24 - 2, 256, 15, 1),
    ):  # fmt: skip
        rates = {"audit_rate": usual, "last_rate": last}
        terms = replace(TERMS, rounds=rounds, seats=seats, f=1, **rates)
        said = {"rounds": rounds, "seats": seats, "auditRate": usual, "lastRate": last}
        cases.append(said | {"most": audit_rates.most_duties(terms)})
    return cases


def money_case() -> Json:
    """Terms, their hash and budget, penalties by level."""
    bond = TERMS.provider_bond
    return {
        "absoluteEnd": clocks.absolute_end(TERMS, 500),
        "budget": str(pay.budget(TERMS)),
        "penalties": [
            str(missed_duties.penalty(bond, 100, level)) for level in (0, 1, 2, 3, 4, 40)
        ],
        "lastMoment": clocks.last_moment(TERMS),
        "longestGame": 500,
        "penaltyBps": 100,
        "segmentPay": str(TERMS.segment_pay),
        "terms": [plain(value) for value in astuple(TERMS)],
        "termsHash": text(hashing.terms_hash(TERMS)),
    }


def round_cases() -> Json:
    return {
        "auditReport": audit_report_case(),
        "bls": bls_case(),
        "certificate": certificate_case(),
        "enrolment": enrolment_case(),
        "commit": commit_case(),
        "draws": draw_cases(),
        "mostDuties": most_cases(),
        "record": record_case(),
        "key": key_case(),
        "money": money_case(),
        "names": name_cases(),
        "seeds": seed_cases(),
        "roundId": {
            "chainId": CHAIN_ID,
            "hash": text(hashing.round_id_hash(ROUND_ID)),
            "jobId": ROUND_ID.job,
            "members": address("members"),
            "round": ROUND_ID.round,
            "rounds": DOMAIN.rounds,
        },
    }


# --- sampling.json, trace.json, manifest.json ---


def sampling_cases() -> Json:
    """Batch offsets, keys of dropout, and plain draws."""
    return {
        "batches": [batch(0, 0, 1), batch(1, 7, 99_872), batch(255, 4_000_000_000, (1 << 62) + 1)],
        "draws": [
            {
                "key": text(digest("key")),
                "n": str(n),
                "tag": draws.BATCH_TAG,
                "values": [str(value) for value in drawn(n)],
            }
            for n in (1, 2, 3, 1000, (1 << 63) + 1)
        ],
        "dropoutKeys": [dropout_key(f"seed {i}", seat) for i, seat in enumerate((0, 1, 255))],
    }


def drawn(n: int) -> list[int]:
    stream = draws.DrawStream(draws.BATCH_TAG, digest("key"))
    return [stream.draw(n) for _ in range(9)]


def dropout_key(name: str, seat: int) -> Json:
    key = draws.dropout_key(digest(name), SeatIndex(seat))
    return {"dataSeed": text(digest(name)), "key": list(key), "seat": seat}


def batch(seat: int, step: int, limit: int) -> Json:
    offsets = draws.batch_offsets(digest("data seed"), SeatIndex(seat), step, 4, limit)
    return {
        "batch": 4,
        "dataSeed": text(digest("data seed")),
        "limit": str(limit),
        "offsets": [str(offset) for offset in offsets],
        "seat": seat,
        "step": step,
    }


WORKS = (
    (StepWork(1.25, (2.5, 2.625)), StepWork(5e-324, (0.0, -0.0))),
    (StepWork(1.0, (3.0, 2.5)), StepWork(math.inf, (math.inf, math.nan))),
)
"""The steps of two segments; a NaN is written as the one NaN."""


def work(steps: Sequence[StepWork]) -> Json:
    return {
        "losses": [[text(float_bytes(">f", x)) for x in step.losses] for step in steps],
        "norms": [text(float_bytes(">d", step.norm)) for step in steps],
        "workTag": text(work_tag(steps)),
    }


def traces() -> Json:
    roots = [digest(name) for name in ("params", "optimiser", "buffers", "rng")]
    return {
        "stateDigest": text(StateRoots(*roots).digest()),
        "stateRoots": [text(root) for root in roots],
        "works": [work(steps) for steps in WORKS],
    }


def manifests() -> Json:
    """The demo's manifest over data that does not exist."""
    manifest = make_manifest()
    return {
        "bytes": text(manifest.to_bytes()),
        "cid": text(manifest.cid()),
        "digest": text(manifest.digest()),
        "terms": [plain(value) for value in astuple(manifest.terms)],
        "termsHash": text(hashing.terms_hash(manifest.terms)),
    }


FILES: Mapping[str, Callable[[], Json]] = {
    "merge_inputs.json": merge_input_cases,
    "rounds.json": round_cases,
    "sampling.json": sampling_cases,
    "trace.json": traces,
    "manifest.json": manifests,
}


def render(build: Callable[[], Json]) -> str:
    """The file's text, keys in alphabetical order."""
    return json.dumps(build(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    for name, build in FILES.items():
        (HERE / name).write_text(render(build))


if __name__ == "__main__":
    main()
