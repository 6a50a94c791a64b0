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
from typing import Any, TypeAlias

from coincurve import PrivateKey
from eth_utils.address import to_checksum_address
from tests.support.identities import address, cid, digest
from tests.support.manifests import make_manifest, make_terms

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
from atoll.protocol.merge_inputs import MergeRecord, MergeTerms, merge_inputs
from atoll.protocol.method_spec import RobustSpec
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
Json: TypeAlias = Any
Gram: TypeAlias = list[list[int]]
SEGMENTS = 8


# --- merge_inputs.json ---


def alike(n: int, square: int = 200, product: int = 100) -> Gram:
    """Updates of one length that have the same product with each other."""
    return [[square if i == j else product for j in range(n)] for i in range(n)]


def changed(gram: Gram, *changes: tuple[int, int, int]) -> Gram:
    """The matrix with (i, j, value) written at [i][j] and [j][i]."""
    result = [list(row) for row in gram]
    for i, j, value in changes:
        result[i][j] = result[j][i] = value
    return result


def against_all(gram: Gram, seat: int, product: int) -> Gram:
    """One update whose product with every other is `product`."""
    return changed(gram, *((seat, j, product) for j in range(len(gram)) if j != seat))


def silent(gram: Gram, *seats: int) -> Gram:
    """These updates are all zero."""
    for seat in seats:
        gram = changed(against_all(gram, seat, 0), (seat, seat, 0))
    return gram


def products(*points: Sequence[int]) -> Gram:
    """The Gram matrix of points written out."""
    return [[sum(a * b for a, b in zip(x, y, strict=True)) for y in points] for x in points]


def axes(*lengths: int) -> Gram:
    """Updates at right angles."""
    return [[x * x if i == j else 0 for j in range(len(lengths))] for i, x in enumerate(lengths)]


def rows_of(gram: Gram | None) -> Json:
    return None if gram is None else [[str(value) for value in row] for row in gram]


def case(name: str, gram: Gram | None, **given: Json) -> Json:
    """One case; what is not given is the plainest there is."""
    n = given.get("seats", 0 if gram is None else len(gram))
    decoded, everyone = given.get("decoded", list(range(n))), (1 << n) - 1
    segments: list[int | None] = given.get("segments", [SEGMENTS] * n)
    done = {SeatIndex(s): count for s, count in enumerate(segments) if count is not None}
    moments = given.get("moments")
    record = MergeRecord(
        revealed=to_bitmap(done),
        committee=given.get("committee", 3),
        votes=[Bitmap(vote) for vote in given.get("votes", [everyone] * 3)],
        segments=done,
        slashed=Bitmap(given.get("slashed", 0)),
        accused=Bitmap(given.get("accused", 0)),
    )
    rule, f, kappa = (
        given.get(key, plain)
        for key, plain in (("rule", "nnm_trimmed_mean"), ("f", 2), ("kappa", "1.5"))
    )
    terms = MergeTerms(SEGMENTS, RobustSpec(rule=rule, f=f, kappa=kappa))
    grams = [each for each in (gram, moments) if each is not None]
    found = merge_inputs(record, [SeatIndex(s) for s in decoded], grams, terms)
    return {
        "decoded": decoded,
        "record": {
            "accused": hex(record.accused),
            "committee": record.committee,
            "slashed": hex(record.slashed),
            "segments": segments,
            "votes": [hex(vote) for vote in record.votes],
        },
        "gram": rows_of(gram),
        "inputs": {
            "mergeable": list(found.mergeable),
            "fPrime": found.f_prime,
            "excluded": list(found.excluded),
            "merged": list(found.merged),
            "named": [{"check": x.check, "seat": x.seat} for x in found.named],
            "momentumExcluded": list(found.momentum_excluded),
        },
        "moments": rows_of(moments),
        "name": name,
        "terms": {"f": f, "kappa": kappa, "rule": rule, "segments": SEGMENTS},
    }


def threshold_cases() -> list[Json]:
    """Each check just at and just beyond its limit."""
    near, far = products([0], [3], [5]), products([0], [10], [20], [33])
    copies, near_all = alike(6, 10_000, 5_000), alike(6, 1_000_000, 995_000)
    quiet = products(*([[1, 1]] * 6), [9, 9])
    return [
        case("distant: at the limit, 9 = 1.5² · 4", near, f=1),
        case("distant: κ² exact, not rounded", near, f=1, kappa="1.499999999999999999"),
        case("distant: lower median of four scores", far, kappa="1", f=3),
        case("distant: a median of 0", products([0, 0], [0, 0], [9, 0], [9, 0], [9, 0]), f=1),
        case("distant: in the moments alone", alike(7), moments=quiet, kappa="9"),
        case("loud: at the limit, 30² = 9 · 10²", axes(10, 10, 10, 10, 30), kappa="9"),
        case("loud: beyond it", axes(10, 10, 10, 10, 31), kappa="9"),
        case("loud: first of the update, then of the moments", axes(10, 10, 10, 10, 10, 10, 40),
             moments=axes(10, 50, 10, 10, 10, 10, 60), kappa="9"),
        case("silent: not of the moments", alike(7), moments=silent(alike(7), 3), kappa="9"),
        case("copy: at 1/64 of the median, sin² of 3/4, is none", changed(copies, (1, 4, 9_941))),
        case("copy: nearer both are", changed(copies, (1, 4, 9_942))),
        case("copy: nobody where all are alike", near_all),
        case("copy: nearer than the others, which are alike", changed(near_all, (1, 4, 999_950))),
        case("copy: zeros count in no median",
             silent(changed(copies, (1, 4, 9_950)), 0, 5), kappa="9"),
        case("copy: nobody where the median is 0", alike(6, 10_000, 10_000)),
        case("copy: the opposite is none", changed(copies, (1, 4, -9_999)), kappa="9"),
        case("copy: of three alike the middle one has most twins",
             changed(alike(7, 10_000, 5_000), (1, 4, 9_950), (4, 6, 9_950))),
        case("misaligned: at 3/4", against_all(alike(8), 5, 75)),
        case("misaligned: below 3/4", against_all(alike(8), 5, 74)),
        case("misaligned: per segment, at 3/4", against_all(alike(8), 5, 57),
             segments=[8] * 5 + [6] + [8] * 2),
        case("misaligned: per segment, below it", against_all(alike(8), 5, 56),
             segments=[8] * 5 + [6] + [8] * 2),
        case("misaligned: nobody where the median is 0", axes(10, 10, 10, 10)),
        case("misaligned: nobody where it is negative", products([1, 0], [-1, 1], [-1, -1])),
        case("misaligned: the upper median of an even count of others",
             changed(alike(5), (2, 0, 70), (2, 1, 70))),
        case("misaligned: below it", changed(alike(5), (2, 0, 70), (2, 1, 70), (2, 3, 70))),
    ]  # fmt: skip


def order_cases() -> list[Json]:
    """Ties, the cap of f a check, the order of checks, and what the rule can spare."""
    return [
        *(case(f"{n} alike", alike(n), f=1) for n in range(6)),
        *(case(f"{n}, one silent, f = 1", silent(alike(n), n - 1), f=1) for n in range(2, 6)),
        *(case(f"{n}, two silent, f = 2", silent(alike(n), 1, 3)) for n in range(4, 9)),
        case("three silent: f of a check, the lowest seats", silent(alike(9), 2, 5, 7)),
        case("distant goes before silent", products(*([[9, 1]] * 4), [-90, 0], [0, 0]), f=1),
        case("ties of distance by seat", products([0], [0], [0], [0], [0], [50], [-50]), f=1),
        case("krum: 6", silent(alike(6), 1, 3), rule="krum"),
        case("krum: 7", silent(alike(7), 1, 3), rule="krum"),
        case("krum: 8", silent(alike(8), 1, 3), rule="krum"),
        case("multi_krum: 9", silent(alike(9), 1, 3), rule="nnm_multi_krum"),
        case("f = 0: nobody is named", silent(alike(7), 1), f=0),
        case("f = 0: one is merged", alike(1), f=0, rule="krum"),
        case("accused go first", silent(alike(9), 1, 2), accused=0b1000_0000),
        case("accused by seat, within f", alike(9), accused=0b1110_0000),
        case("accused and f = 0: stays", alike(4), accused=0b10, f=0, rule="mean"),
        case("numbers beyond 2⁵³", changed(alike(5, 2**61 + 3, 2**60 + 1), (1, 2, 2**61 + 1)), f=1),
    ]


def moment_cases() -> list[Json]:
    """Whose first moments are excluded, of those whose update is merged."""
    two = against_all(against_all(alike(9), 4, 70), 6, 60)
    return [
        case("momentum excluded: at 7/8, 84 of 96, nobody", alike(7, 200, 96),
             moments=against_all(alike(7, 200, 96), 5, 84)),
        case("momentum excluded: below it", alike(7, 200, 96),
             moments=against_all(alike(7, 200, 96), 5, 83)),
        case("momentum excluded: the least first, within f", alike(9), moments=two, f=1),
        case("momentum excluded: two of them", alike(9), moments=two),
        case("momentum excluded: no more than the rule can spare", alike(6), moments=against_all(
             against_all(alike(6), 4, 70), 2, 60)),
        case("momentum excluded: nobody where there is no room", alike(5),
             moments=against_all(alike(5), 2, 0)),
        case("momentum excluded: who is excluded takes the room", silent(alike(6), 1),
             moments=against_all(alike(6), 2, 60)),
        case("momentum excluded: who is excluded shifts no median", silent(alike(8), 1, 3),
             moments=changed(alike(8), (5, 0, 80), (5, 2, 80), (5, 1, 0), (5, 3, 0))),
        case("momentum excluded: not per segment", alike(8), segments=[8] * 5 + [6] + [8] * 2,
             moments=against_all(alike(8), 5, 80)),
        case("momentum excluded: nobody where the median is 0", alike(5),
             moments=axes(*[10] * 5), f=1),
        case("momentum excluded: ties by seat", alike(7),
             moments=silent(alike(7), 2, 4), f=1, kappa="9"),
    ]  # fmt: skip


def entry_cases() -> list[Json]:
    """What the chain says, and which updates are there."""
    gram = silent(alike(7), 1, 3)
    return [
        case("slashed: neither scored nor merged", gram, slashed=0b10),
        case("five of eight segments: paid, not merged", gram, segments=[8, 5, *[8] * 5]),
        case("six of eight segments: merged", alike(7), segments=[8, 6, *[8] * 5]),
        case("not revealed", gram, segments=[8, None, *[8] * 5]),
        case("an update that does not decode", alike(6), seats=7, decoded=[0, 1, 2, 4, 5, 6]),
        case("two of four have it", alike(7), committee=4, votes=[0x7F, 0x7F, 0x7D, 0x7D]),
        case("two of three have it", alike(7), committee=3, votes=[0x7F, 0x7F, 0x7D]),
        case("the silent have nothing", alike(7), committee=4, votes=[0x7F, 0x7F]),
        case("a vote about who did not reveal", alike(6), votes=[0x7F, 0x7F, 0x7F]),
        case("fewer than the minimum", silent(alike(4), 2)),
        case("fp32: no Gram matrix", None, seats=5, rule="mean", f=0),
        case("nobody revealed", []),
    ]


def merge_input_cases() -> Json:
    return {"cases": [*threshold_cases(), *order_cases(), *moment_cases(), *entry_cases()]}


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


def text(data: bytes) -> str:
    return "0x" + data.hex()


def plain(value: object) -> Json:
    """Bytes as hex, integers beyond 32 bits as decimal strings, the rest as it is."""
    if isinstance(value, bytes):
        return text(value)
    if isinstance(value, int) and value >= 1 << 32:
        return str(value)
    return value


def camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


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
    record = RoundRecord(*digests, *map(Bitmap, maps))
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
