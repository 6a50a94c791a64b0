"""What a round pays, and to whom: arithmetic on bitmaps that nobody signs.

Rule of this file: integers of wei. A price for each segment done and a fee for each duty, never a
share of a pot: who loses its pay makes nobody richer but by what was shown against it.
"""

from __future__ import annotations

from typing import Final

from atoll.protocol.audit_rates import most_duties
from atoll.protocol.committee_draws import COMMITTEE
from atoll.protocol.game_records import window_of
from atoll.protocol.holders import Holder
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Role, RoundIndex, SeatIndex, Terms, Wei, bits
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
    ends = [view.windows_over(now), holder.to]
    if holder.role is Role.PROVIDER:
        games = view.games_about(holder.role, holder.id)
        ends += [window_of(game.claim) for game in games]
    return RoundIndex(max(holder.claimed_to, min(ends)))


def claim(view: JobView, holder: Holder, to: RoundIndex) -> tuple[Wei, Wei]:
    """What `Jobs.claim` up to, not including, round `to` pays the holder, and what it burns."""
    terms, paid, burnt = view.require_terms(), 0, 0
    for settled_round in view.settled.span(holder.claimed_to, to):
        amount = round_pay(terms, settled_round, holder)
        is_lost = settled_round.round >= holder.lost_from and holder.role is Role.PROVIDER
        paid, burnt = (paid, burnt + amount) if is_lost else (paid + amount, burnt)
    return Wei(paid), Wei(burnt)


def claimable(view: JobView, holder: Holder, now: int) -> Wei:
    """Wei that a claim would pay the holder now."""
    return claim(view, holder, claimable_to(view, holder, now))[0]


# --- the escrow ---


def round_budget(terms: Terms) -> Wei:
    """A round at its dearest, but for what its seed draws: of the excluded one is audited in any
    case.
    """
    seats = terms.seats * terms.segments * terms.segment_pay
    sure = terms.duty_fee if terms.f else 0
    return Wei(seats + min(COMMITTEE, terms.slots) * terms.sign_fee + sure)


def budget(terms: Terms) -> Wei:
    """Wei that a job must hold at creation: every round at its dearest, the most that seeds draw,
    and a committee's fees.
    """
    return Wei(terms.rounds * round_budget(terms) + _spare(terms, most_duties(terms)))


def _spare(terms: Terms, duties: int) -> int:
    return duties * terms.duty_fee + min(COMMITTEE, terms.slots) * terms.sign_fee


def may_earn(terms: Terms, settled_round: SettledRound) -> Wei:
    """What a settled round may cost the escrow, whatever becomes of its audit. A seat without any
    segment, which none has to do again, is in.
    """
    earning, record = settled_round.reveals.items(), settled_round.record
    segments = sum(told.segments for s, told in earning if not settled_round.unearned >> s & 1)
    duties = record.drawn.bit_count()
    fees = record.committee.bit_count() * terms.sign_fee + duties * terms.duty_fee
    return Wei(segments * terms.segment_pay + fees)


def refundable(view: JobView) -> Wei:
    """What `refund` gives back now: what neither settled rounds nor those to come can earn."""
    terms = view.require_terms()
    reserved: int = sum(may_earn(terms, settled_round) for settled_round in view.settled)
    if not view.status.is_closed:
        reserved += (terms.rounds - len(view.settled)) * round_budget(terms)
        reserved += _spare(terms, duties_left(view))
    return Wei(max(0, view.funded - view.refunded - reserved))


def duties_left(view: JobView) -> int:
    """What the seeds of rounds to come draw at most."""
    return most_duties(view.require_terms()) - view.settled.duties
