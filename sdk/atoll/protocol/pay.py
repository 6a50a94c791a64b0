"""What a round pays, and to whom: arithmetic on bitmaps that nobody signs.

Rule of this file: integers of wei. A price for each segment done and a fee for each duty, never a
share of a pot: who loses its pay makes nobody richer but by what was shown against it.
"""

from __future__ import annotations

from typing import Final

from atoll.protocol.committee_draws import COMMITTEE, LAST_AUDITORS, audited_share, draw_seats
from atoll.protocol.holders import Holder
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.types import Role, RoundIndex, RoundRecord, SeatIndex, Terms, Wei, bits
from atoll.protocol.views import JobView

MOST_CLAIMED: Final = 3_000
"""Rounds that one transaction claims or burns: each is 4,900 gas at most, of 2^24 (EIP-7825)."""


def seat_pay(terms: Terms, settled_round: SettledRound, seat: SeatIndex) -> Wei:
    """Of a seat's round, where its bit in pay stands; 0 where it does not."""
    if not settled_round.pay >> seat & 1:
        return Wei(0)
    return Wei(settled_round.reveals[seat].segments * terms.segment_pay)


def unpaid(terms: Terms, settled_round: SettledRound) -> Wei:
    """Of what was earned and nobody is paid for: burnt once the window is over."""
    seats = map(
        SeatIndex,
        bits(settled_round.record.revealed & ~settled_round.unearned & ~settled_round.pay),
    )
    return Wei(sum(settled_round.reveals[seat].segments for seat in seats) * terms.segment_pay)


def duties_paid(settled_round: SettledRound, holder: Holder) -> int:
    """Duties that the auditor called valid, without those that were contested.

    What becomes of a contest is credited, not claimed; so is the fee of a *mismatch*, once its seat
    has been slashed.
    """
    body = settled_round.opened_reports.get(holder.id)
    if body is None:
        return 0
    valid = (entry.seat for entry in body.entries if entry.is_valid)
    return sum((holder.id, seat) not in settled_round.contests for seat in valid)


def verifier_pay(terms: Terms, settled_round: SettledRound, holder: Holder) -> Wei:
    """Fees of a round: for the signature, and for every duty that stands."""
    slot = settled_round.slot_of(holder.id)
    has_signed = slot is not None and settled_round.signers >> slot & 1
    return Wei(
        bool(has_signed) * terms.sign_fee + duties_paid(settled_round, holder) * terms.duty_fee
    )


def round_pay(terms: Terms, settled_round: SettledRound, holder: Holder) -> Wei:
    """What a holder is owed of a settled round so far; slashes take it apart from this."""
    if holder.role is Role.VERIFIER:
        return verifier_pay(terms, settled_round, holder)
    seat = SeatIndex(holder.index)
    return (
        seat_pay(terms, settled_round, seat)
        if settled_round.seats.get(seat) == holder.id
        else Wei(0)
    )


def claimable_to(view: JobView, holder: Holder, now: int) -> RoundIndex:
    """The first of the holder's rounds, from the last claimed one on, that is not FINAL."""
    round = holder.claimed_to
    while round < holder.to and view.is_final(holder.role, holder.id, round, now):
        round = RoundIndex(round + 1)
    return round


def claim(view: JobView, holder: Holder, to: RoundIndex) -> tuple[Wei, Wei]:
    """What `Jobs.claim` up to, not including, round `to` pays the holder, and what it burns."""
    terms, paid, burnt = view.require_terms(), 0, 0
    for settled_round in view.settled[holder.claimed_to : to]:
        amount = round_pay(terms, settled_round, holder)
        is_lost = settled_round.round >= holder.lost_from and holder.role is Role.PROVIDER
        paid, burnt = (paid, burnt + amount) if is_lost else (paid + amount, burnt)
    return Wei(paid), Wei(burnt)


def claimable(view: JobView, holder: Holder, now: int) -> Wei:
    """Wei that a claim would pay the holder now."""
    return claim(view, holder, claimable_to(view, holder, now))[0]


# --- the escrow ---


def most_drawn(terms: Terms) -> int:
    """Seats that a round's share draws at most."""
    return terms.seats if terms.f == 0 else -(-terms.share_bps * terms.seats // WHOLE_BPS)


def round_budget(terms: Terms) -> Wei:
    """A round at its dearest, but for the second auditors of the last one."""
    seats = terms.seats * terms.segments * terms.segment_pay
    duties = (most_drawn(terms) + terms.f) * terms.duty_fee
    return Wei(seats + min(COMMITTEE, terms.slots) * terms.sign_fee + duties)


def last_audit(terms: Terms) -> Wei:
    """What the last round's audit may cost beyond that."""
    return Wei(LAST_AUDITORS * terms.seats * terms.duty_fee)


def budget(terms: Terms) -> Wei:
    """Wei that a job must hold at creation: every round at its dearest, and a committee's fees."""
    fees = min(COMMITTEE, terms.slots) * terms.sign_fee
    return Wei(terms.rounds * round_budget(terms) + last_audit(terms) + fees)


def may_earn(terms: Terms, settled_round: SettledRound, *, is_last: bool) -> Wei:
    """What a settled round may cost the escrow, whatever becomes of its audit."""
    earning = settled_round.reveals.items()
    segments = sum(told.segments for s, told in earning if not settled_round.unearned >> s & 1)
    duties = most_duties(terms, settled_round.record, is_last=is_last)
    fees = settled_round.record.committee.bit_count() * terms.sign_fee + duties * terms.duty_fee
    return Wei(segments * terms.segment_pay + fees)


def sampled(terms: Terms, record: RoundRecord, *, is_last: bool) -> int:
    """Seats that the seed draws, beside those that were excluded."""
    revealed = record.revealed.bit_count()
    if is_last or not terms.f:
        return revealed
    return audited_share(revealed, terms.share_bps, record.ready.bit_count())


def most_duties(terms: Terms, record: RoundRecord, *, is_last: bool) -> int:
    """Of all auditors together; a seat without any segment, which none has to do again, is in."""
    revealed, ready = record.revealed.bit_count(), record.ready.bit_count()
    if is_last:
        return min(LAST_AUDITORS, ready) * revealed
    count = sampled(terms, record, is_last=is_last)
    return len(draw_seats(record.audit_seed, record.revealed, record.excluded, count))


def refundable(view: JobView) -> Wei:
    """What `refund` gives back now: what neither settled rounds nor those to come can earn."""
    terms = view.require_terms()
    reserved: int = sum(
        may_earn(terms, settled_round, is_last=view.is_last(settled_round.round))
        for settled_round in view.settled
    )
    if not view.status.is_closed:
        reserved += budget(terms) - len(view.settled) * round_budget(terms)
    return Wei(max(0, view.funded - view.refunded - reserved))
