"""What rounds hash, draw and pay: 10,000 random cases, the second client against `atoll.protocol`.

keccak is lent to the second client here, whose own is compared with it in `test_words.py`: what is
compared is what goes into it, and what is made of it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pytest
from eth_hash.auto import keccak
from eth_utils.address import to_checksum_address
from tests.second_client import money, rounds, words
from tests.support.manifests import make_terms

from atoll.protocol import (
    audit_reports,
    checkpoint_commitments,
    clocks,
    committee_draws,
    hashing,
    missed_duties,
    pay,
)
from atoll.protocol.types import (
    Address,
    Bitmap,
    Digest,
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
    Terms,
    Verdict,
    Wei,
)

CASES = 10_000
Roll = random.Random
Pair = tuple[object, object]


def word(roll: Roll) -> Digest:
    return Digest(roll.randbytes(32))


def bitmap(roll: Roll, least: int = 0, sizes: tuple[int, ...] = (1, 4, 40, 256)) -> Bitmap:
    """Of few seats or many, `least` at least."""
    size = roll.choice(sizes)
    found = roll.getrandbits(size) & roll.choice([~0, roll.getrandbits(size)])
    return Bitmap(found if found.bit_count() >= least else (1 << least) - 1)


def address(roll: Roll) -> tuple[bytes, Address]:
    raw = roll.randbytes(20)
    return raw, Address(to_checksum_address(raw))


def round_id(roll: Roll) -> tuple[tuple[int, bytes, int, int], RoundId]:
    raw, contract = address(roll)
    chain, job, round = roll.getrandbits(63), roll.getrandbits(64), roll.getrandbits(24)
    domain = Domain(chain, contract)
    return (chain, raw, job, round), RoundId(domain, JobId(job), RoundIndex(round))


def terms_of(roll: Roll) -> Terms:
    seats, slots = roll.randrange(1, 257), roll.randrange(1, 257)
    segment = roll.randrange(1, 20)
    f = roll.choice([0, (seats - 1) // 3 if seats > 3 else 0])
    return make_terms(
        rounds=roll.randrange(1, 1 << 24),
        seats=seats,
        slots=slots,
        f=f,
        audit_rate=roll.randrange(16),
        last_rate=roll.randrange(16),
        rate_steps=roll.randrange(16),
        steps=segment * roll.randrange(1, 65),
        segment_steps=segment,
        tokens_per_step=roll.getrandbits(30),
        segment_pay=roll.getrandbits(roll.choice([8, 60, 100])),
        sign_fee=roll.getrandbits(100),
        duty_fee=roll.getrandbits(roll.choice([10, 100])),
        verifier_bond=roll.getrandbits(100),
        expiry=roll.getrandbits(40),
        program=word(roll),
    )


# Each: what the second client says, and what the law does.


def seeds(roll: Roll) -> Iterator[Pair]:
    mine, theirs = round_id(roll)
    source, block = word(roll), word(roll)
    yield rounds.data_seed(mine, source, block), hashing.data_seed(theirs, source, block)
    yield rounds.audit_seed(mine, source, block), hashing.audit_seed(theirs, source, block)
    yield rounds.following_committee(source), committee_draws.following_committee(source)
    second = committee_draws.next_committee(committee_draws.next_committee(source, 1), 2)
    yield rounds.later_committee(source, 2), second


def commitments(roll: Roll) -> Iterator[Pair]:
    mine, theirs = round_id(roll)
    raw, account = address(roll)
    seed, model, seat = word(roll), word(roll), SeatIndex(roll.randrange(256))
    plain = {name: word(roll) for name in ("updateRoot", "keyHash", "salt")}
    body = roll.randbytes(64 * roll.randrange(5))
    told = Reveal(*plain.values(), body, b"")
    made = rounds.commitment(mine, seed, seat, raw, plain | {"checkpointCommitments": body}, model)
    yield made, hashing.commitment(theirs, seed, seat, account, reveal=told, model=model)
    found = hashing.accumulate_reveal(seed, seat, Digest(made))
    yield rounds.reveals_accumulator(seed, [(seat, made)]), found


def masks(roll: Roll) -> Iterator[Pair]:
    key, count = word(roll), roll.randrange(1, 5)
    states, plain = ([word(roll) for _ in range(count)] for _ in range(2))
    raw, account = address(roll)
    theirs = checkpoint_commitments.CheckpointCommitments.of(states, plain, key)
    yield rounds.checkpoint_commitments_of(states, plain, key), theirs.to_bytes()
    yield rounds.work_tags_of(theirs.to_bytes(), key), list(theirs.work_tags(key))
    yield rounds.key_hash(key), checkpoint_commitments.key_hash(key)
    yield rounds.valid_digest(raw, plain), audit_reports.valid_digest(account, plain)


def said(roll: Roll) -> Iterator[Pair]:
    committee_draw = word(roll)
    pairs = [(SlotIndex(roll.randrange(256)), bitmap(roll)) for _ in range(roll.randrange(4))]
    yield (
        rounds.votes_accumulator(committee_draw, pairs),
        hashing.accumulate_votes(committee_draw, pairs),
    )


def certificates(roll: Roll) -> Iterator[Pair]:
    mine, theirs = round_id(roll)
    seed, accumulator = word(roll), word(roll)
    verdict = Verdict(bitmap(roll), roll.randrange(257), word(roll), b"x" * 36, roll.randbytes(8))
    plain = asdict(verdict)
    plain["excluded"] = plain.pop("excluded")
    found = hashing.certificate_hash(theirs, seed, accumulator, verdict)
    yield rounds.certificate_digest(mine, seed, accumulator, plain), found


def record(roll: Roll) -> Iterator[Pair]:
    words, maps = [word(roll) for _ in range(6)], [bitmap(roll) for _ in range(6)]
    told = RoundRecord(*words[:5], *maps, words[5])
    plain = asdict(told)
    plain |= {"auditSeed": plain["audit_seed"], "excluded": plain["excluded"]}
    yield rounds.record_hash(plain), hashing.record_hash(told)


def sealed(roll: Roll) -> Iterator[Pair]:
    mine, theirs = round_id(roll)
    raw, account = address(roll)
    seed, salt, id = word(roll), word(roll), HolderId(roll.getrandbits(32))
    seats = roll.sample(range(256), roll.randrange(1, 5))
    plain = {seat: (roll.getrandbits(16), word(roll)) for seat in sorted(seats)}
    body = audit_reports.AuditReport(
        tuple(audit_reports.AuditEntry(SeatIndex(s), *duty) for s, duty in plain.items())
    )
    yield rounds.body_of(plain), body.to_bytes()
    found = audit_reports.audit_report_hash(theirs, seed, id, account, body=body.hash, salt=salt)
    yield rounds.audit_report_hash(mine, seed, (id, raw), body.to_bytes(), salt), found


def names(roll: Roll) -> Iterator[Pair]:
    mine, theirs = round_id(roll)
    role, id = Role(roll.randrange(2)), HolderId(roll.getrandbits(32))
    kind, seat = (
        MissedDuty(roll.choice([int(kind) for kind in MissedDuty])),
        SeatIndex(roll.randrange(256)),
    )
    _, raw, job, round = mine
    yield rounds.bond_lock(job, role, id), hashing.bond_lock(theirs.job, role, id)
    found = hashing.fault_id(theirs, role, id, kind, seat)
    yield rounds.fault_id(raw, job, (role, id), (round, kind, seat)), found


def drawn(roll: Roll) -> Iterator[Pair]:
    sizes = (256,) if roll.random() < 0.02 else (1, 4, 12, 40)  # every member is hashed thrice
    seed, pool, revealed = word(roll), bitmap(roll, 1, sizes), bitmap(roll, 1, sizes)
    rate, left, excluded = roll.randrange(16), roll.randrange(30), Bitmap(revealed & bitmap(roll))
    yield rounds.committee_of(seed, pool), list(committee_draws.draw_committee(seed, pool))
    told = {"revealed": revealed, "excluded": excluded}
    mine = rounds.drawn_seats(seed, told, rate, left)
    yield mine, committee_draws.draw_audits(seed, revealed, excluded, rate=rate, left=left)
    theirs = committee_draws.auditors_of(seed, Bitmap(mine), pool)
    yield rounds.auditors_of(seed, mine, pool), dict(theirs)


def paid(roll: Roll) -> Iterator[Pair]:
    terms = terms_of(roll)
    plain = asdict(terms)
    yield money.terms_hash(plain), hashing.terms_hash(terms)
    yield money.budget(plain), pay.budget(terms)
    yield money.last_moment(plain), clocks.last_moment(terms)
    longest = roll.getrandbits(30)
    yield money.absolute_end(plain, longest), clocks.absolute_end(terms, longest)
    bond, bps, others = Wei(roll.getrandbits(100)), roll.randrange(1, 1251), roll.randrange(40)
    yield money.penalty(bond, bps, others), missed_duties.penalty(bond, bps, others)
    missed = [roll.randrange(30) for _ in range(roll.randrange(9))]
    account, round = missed_duties.MissRecord(Counter(map(RoundIndex, missed))), roll.randrange(30)
    mine = money.miss_costs(bond, bps, missed, round)
    yield mine, account.charge(RoundIndex(round), bond, bps)
    ends = [roll.randrange(200) for _ in range(roll.randrange(4))]
    end, keys = roll.randrange(200), roll.randrange(1, 50)
    excused = missed_duties.MissRecord(excuses=frozenset(ends)).is_excused(end, end + keys)
    yield money.is_excused(ends, end, keys), excused


FUNCTIONS: tuple[Callable[[Roll], Iterator[Pair]], ...] = (
    seeds, commitments, masks, said, certificates, record, sealed, names, drawn, paid,
)  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_both_say_the_same(
    function: Callable[[Roll], Iterator[Pair]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (words, rounds, money):
        monkeypatch.setattr(module, "keccak", keccak)
    for seed in range(CASES // len(FUNCTIONS)):
        for at, (mine, theirs) in enumerate(function(Roll(seed))):
            assert mine == theirs, (seed, at)
