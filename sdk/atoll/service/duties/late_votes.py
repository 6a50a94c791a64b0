"""Late votes, for the pay of updates that a committee did not have; and the pay that they give.

A seat whose gateway was away while its round merged is paid all the same, if a majority of this
and the next committee can fetch and decode its update before AUDIT ends. Its holder asks nobody: it
serves, reads the words, and has the contract count them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from atoll.chain.call import Call
from atoll.chain.calls import Calls
from atoll.protocol.holders import Holder
from atoll.protocol.late_votes import grantable, lacks_word
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.protocol.words import Bitmap, HolderId, Role, RoundIndex, SeatIndex, to_bitmap
from atoll.service.commands import ContractCall
from atoll.service.duties.material import has_material, spec_of
from atoll.service.duties.opening import opening_at
from atoll.service.duties.updates import DoGetUpdate, getting
from atoll.service.machine import AnyCommand, Decision, State

S = TypeVar("S")
LATE_PART: Final = 3
"""So large a part of AUDIT is left when a late vote is said of what is here by then."""


@dataclass(frozen=True, slots=True)
class SendLateVote(ContractCall):
    """ "I have these updates now." Said once a round, so that nobody makes us pay gas for more."""

    kind: ClassVar[str] = "late-availability-vote.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    holder: HolderId
    has: Bitmap

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.holder)

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.late_vote(view.job_id, self.round, self.holder, self.has)


@dataclass(frozen=True, slots=True)
class SendGrant(ContractCall):
    """Have the contract count the words about our seat.

    Attributes:
        words: how many late votes there were: with more of them it may be asked for again.
    """

    kind: ClassVar[str] = "count-votes.v1"
    round: RoundIndex
    seat: SeatIndex
    words: int

    def call(self, calls: Calls, view: JobView) -> Call:
        past, following = view.settled[self.round], view.settled_round(RoundIndex(self.round + 1))
        return calls.about(past).grant(self.seat, following)


# --- decisions ---


def decide_late_votes(state: State[S]) -> Decision:
    """A verifier's: gets what a committee did not have, and says so when it is here."""
    held, spec = state.view.standing(state.me), spec_of(state.facts)
    if held is None or held.role is not Role.VERIFIER or spec is None or not has_material(state):
        return Decision("late votes", "is no member, or waits for the data")
    wanted: list[AnyCommand] = []
    for past in state.view.auditing(state.now):
        wanted += _of_round(state, past, held, spec)
    return Decision("late votes", f"{len(wanted)} updates or words are due", tuple(wanted))


def _of_round(state: State[S], past: SettledRound, held: Holder, spec: bytes) -> list[AnyCommand]:
    seats = lacks_word(state.view, past, held, state.now)
    opening = opening_at(state, past.round)
    found = {
        seat: state.facts.of(DoGetUpdate, past.round, past.reveals[seat].commitment)
        for seat in seats
    }
    missing = [seat for seat, fact in found.items() if fact is None]
    has = to_bitmap(seat for seat, fact in found.items() if fact is not None and fact.is_had)
    where = (past.round, past.facts.seed, spec, opening.cid if opening else b"")
    wanted: list[AnyCommand] = [getting(seat, past.reveals[seat], where) for seat in missing]
    part = (past.clock.audit_end - past.clock.settled_at) // LATE_PART
    is_time = not missing or state.now >= past.clock.audit_end - part
    if has and is_time and held.id not in past.late:
        wanted.append(SendLateVote(past.round, held.id, has))
    return wanted


def decide_grants(state: State[S]) -> Decision:
    """A provider's: has every round of its own paid that was had after all."""
    view = state.view
    mine = view.ids_of(state.me, Role.PROVIDER)
    wanted: list[AnyCommand] = [
        SendGrant(past.round, seat, len(past.late))
        for past in view.auditing(state.now)
        for seat in grantable(view, past, state.now)
        if past.seats[seat] in mine
    ]
    return Decision("grants", f"{len(wanted)} rounds of ours are had after all", tuple(wanted))
