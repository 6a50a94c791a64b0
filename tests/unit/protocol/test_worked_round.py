"""The worked round of SPEC-ROUNDS.md, 14, by the product; test_examples.py has it by the second
client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.support.manifests import make_terms

from atoll.protocol import committee_draws, hashing, pay
from atoll.protocol.audit_reports import VALID, AuditEntry, AuditReport
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.clocks import AuditClock
from atoll.protocol.holders import Holder
from atoll.protocol.merge_inputs import MergeTerms, available_seats, merge_inputs
from atoll.protocol.method_spec import RobustSpec
from atoll.protocol.missed_duties import MissRecord, penalty
from atoll.protocol.open_rounds import SeatReveal
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import (
    Address,
    Bitmap,
    BlockRef,
    Digest,
    Domain,
    HolderId,
    JobId,
    Reveal,
    Role,
    RoundId,
    RoundIndex,
    RoundRecord,
    SeatIndex,
    SlotIndex,
    Verdict,
    Wei,
    bits,
    to_bitmap,
)

TEXT = (Path(__file__).parents[3] / "sdk/atoll/protocol/SPEC-ROUNDS.md").read_text()
ROUND_ID = RoundId(Domain(31337, Address("0x" + "00" * 19 + "01")), JobId(1), RoundIndex(2))
TERMS = make_terms(
    rounds=10, seats=4, slots=3, f=1, audit_rate=2, last_rate=2, steps=40, segment_steps=10,
    tokens_per_step=100, segment_pay=1_000, sign_fee=50, duty_fee=300, provider_bond=80_000,
    verifier_bond=80_000, audit_seconds=600, open_seconds=60, key_seconds=60, window_seconds=1_200,
)  # fmt: skip
SEGMENTS = {SeatIndex(2): 4, SeatIndex(0): 4, SeatIndex(1): 3, SeatIndex(3): 4}
"""What each seat did, in the order of the reveals."""
VOTES = {SlotIndex(1): Bitmap(0b1111), SlotIndex(0): Bitmap(0b1111), SlotIndex(2): Bitmap(0b0111)}
POOL, SIGNERS, UNPAID = Bitmap(0b111), Bitmap(0b011), Bitmap(0b1000)
GRAM = [[(900 if i == 2 else 100) if i == j else 50 for j in range(4)] for i in range(4)]
MOMENTS = [[100 if i == j else 50 for j in range(4)] for i in range(4)]
ACCOUNT = Address("0x" + "00" * 20)


def repeated(byte: int) -> Digest:
    return Digest(bytes([byte]) * 32)


def reveal_of(seat: SeatIndex, segments: int) -> SeatReveal:
    made = CheckpointCommitments.of([repeated(0)] * segments, [repeated(1)] * segments, repeated(2))
    reveal = Reveal(repeated(3), repeated(4), repeated(5), made.to_bytes(), b"")
    return SeatReveal(HolderId(seat), ACCOUNT, repeated(0x10 + seat), reveal)


def settled() -> SettledRound:
    """The round at its settlement, but for the numbers that the text does not have."""
    reveals = {seat: reveal_of(seat, done) for seat, done in SEGMENTS.items()}
    seed = accumulator = hashing.data_seed(ROUND_ID, repeated(1), repeated(2))
    for seat, made in reveals.items():
        accumulator = hashing.accumulate_reveal(accumulator, seat, made.commitment)
    audit_seed = hashing.audit_seed(ROUND_ID, accumulator, repeated(4))
    revealed = to_bitmap(reveals)
    drawn = committee_draws.draw_audits(audit_seed, revealed, Bitmap(0b0100), rate=2, left=99)
    record = RoundRecord(
        seed, audit_seed, accumulator, hashing.accumulate_votes(seed, VOTES.items()), repeated(0),
        revealed, available_seats(VOTES.values(), 3, revealed), Bitmap(0b0100), POOL, POOL,
        drawn,
    )  # fmt: skip
    slots = {SlotIndex(slot): HolderId(slot) for slot in bits(POOL)}
    return SettledRound(
        ROUND_ID, BlockRef(0, repeated(0), 0), repeated(9),
        Verdict(record.excluded, 3, repeated(8), b"", bytes(8)), record, SIGNERS, Bitmap(0),
        {seat: HolderId(seat) for seat in reveals}, slots, reveals, VOTES, AuditClock.of(TERMS, 0),
        drawn, committee_draws.draw_duties(audit_seed, drawn, POOL),
        record.available, is_consistent=True,
    )  # fmt: skip


def audited(round: SettledRound) -> SettledRound:
    """Slots 0 and 1 open that their seats are valid; seat 3 shows no key in time."""
    opened_reports = {
        HolderId(slot): AuditReport(tuple(AuditEntry(seat, VALID, repeated(7)) for seat in seats))
        for slot, seats in round.duties.items()
        if slot != 2
    }
    return replace(round, opened_reports=opened_reports, pay=Bitmap(round.pay & ~UNPAID))


def paid(round: SettledRound, role: Role, count: int) -> list[Wei]:
    holders = [
        Holder(HolderId(i), role, ACCOUNT, i, RoundIndex(0), Wei(80_000)) for i in range(count)
    ]
    return [pay.round_pay(TERMS, round, holder) for holder in holders]


def lines() -> list[tuple[str, Sequence[int] | bytes]]:
    at_start, robust = settled(), RobustSpec(rule="trimmed_mean", f=1, kappa="2.5")
    round, record = audited(at_start), at_start.record
    inputs = merge_inputs(
        round.merge_record, sorted(SEGMENTS), [GRAM, MOMENTS], MergeTerms(4, robust)
    )
    by = {seat: slot for slot, seats in round.duties.items() for seat in seats}
    clock, record_of_two = round.clock, MissRecord().missed(RoundIndex(1))
    ends = [clock.audit_end, clock.open_end, clock.keys_end, clock.half, clock.window_end]
    others = [0, record_of_two.before(2)]
    return [
        ("data", record.seed[:4]),
        ("R", record.reveals[:4]),
        ("audit", record.audit_seed[:4]),
        ("votes", record.votes[:4]),
        ("members", list(committee_draws.draw_committee(record.audit_seed, POOL))),
        ("avail", bits(record.available)),
        ("named", [finding.seat for finding in inputs.named]),
        ("excl", list(inputs.excluded)),
        ("merged", list(inputs.merged)),
        ("drawn", bits(round.drawn)),
        ("by", [by[SeatIndex(seat)] for seat in bits(round.drawn)]),
        ("ends", ends),
        ("P", [TERMS.segment_pay]),
        ("seats", paid(round, Role.PROVIDER, 4)),
        ("slots", paid(round, Role.VERIFIER, 3)),
        ("burnt", [pay.unpaid(TERMS, round)]),
        ("penalty", [penalty(80_000, 100, count) for count in others]),
        ("earn", [pay.may_earn(TERMS, round)]),
        ("round", [pay.round_budget(TERMS)]),
        ("budget", [pay.budget(TERMS)]),
    ]


def shown(name: str, value: Sequence[int] | bytes) -> str:
    text = value.hex() if isinstance(value, bytes) else " ".join(str(number) for number in value)
    return f"{name:<7} {text}"


def test_the_text_has_the_round_that_the_product_works_out() -> None:
    block = "\n".join(shown(name, value) for name, value in lines())
    assert f"```\n{block}\n```" in TEXT
