"""Late votes, for the pay of updates that a committee did not have; and the pay that they give.

A seat whose gateway was away while its round merged is paid all the same, if a majority of this
and the next committee can fetch and decode its update before AUDIT ends. Its holder asks nobody: it
serves, reads the votes, and has the contract count them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.protocol.holders import Holder
from atoll.protocol.late_votes import grantable, lacks_vote
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Bitmap, HolderId, Role, RoundIndex, SeatIndex, to_bitmap
from atoll.protocol.views import JobView
from atoll.service.commands import ContractCall
from atoll.service.duties.material import has_material, spec_of
from atoll.service.duties.round_start import round_start_at
from atoll.service.duties.updates import DoGetUpdate, RoundOfUpdates, getting
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
    """Have the contract count the votes about our seat.

    Attributes:
        votes: how many late votes there were: with more of them it may be asked for again.
    """

    kind: ClassVar[str] = "count-votes.v1"
    round: RoundIndex
    seat: SeatIndex
    votes: int

    def call(self, calls: Calls, view: JobView) -> Call:
        settled_round, following = (
            view.settled[self.round],
            view.settled_round(RoundIndex(self.round + 1)),
        )
        return calls.about(settled_round).grant(self.seat, following)


# --- decisions ---


def decide_late_votes(state: State[S]) -> Decision:
    """A verifier's: gets what a committee did not have, and says so when it is here."""
    held, spec = state.view.standing(state.me), spec_of(state.entries)
    if held is None or held.role is not Role.VERIFIER or spec is None or not has_material(state):
        return Decision("late votes", "is no member, or waits for the data")
    wanted: list[AnyCommand] = []
    for settled_round in state.view.auditing(state.now):
        wanted += _of_round(state, settled_round, held, spec)
    return Decision("late votes", f"{len(wanted)} updates or votes are due", tuple(wanted))


def _of_round(
    state: State[S], settled_round: SettledRound, held: Holder, spec: bytes
) -> list[AnyCommand]:
    seats = lacks_vote(state.view, settled_round, held, state.now)
    initial_state = round_start_at(state, settled_round.round)
    seen_updates = {
        seat: state.entries.of(
            DoGetUpdate, settled_round.round, settled_round.reveals[seat].commitment
        )
        for seat in seats
    }
    missing = [seat for seat, entry in seen_updates.items() if entry is None]
    has = to_bitmap(
        seat for seat, entry in seen_updates.items() if entry is not None and entry.is_available
    )
    where = RoundOfUpdates(
        settled_round.round,
        settled_round.record.seed,
        spec,
        initial_state.cid if initial_state else b"",
    )
    wanted: list[AnyCommand] = [
        getting(seat, settled_round.reveals[seat], where) for seat in missing
    ]
    part = (settled_round.clock.audit_end - settled_round.clock.settled_at) // LATE_PART
    is_time = not missing or state.now >= settled_round.clock.audit_end - part
    if has and is_time and held.id not in settled_round.late:
        wanted.append(SendLateVote(settled_round.round, held.id, has))
    return wanted


def decide_grants(state: State[S]) -> Decision:
    """A provider's: has every round of its own paid that was available after all."""
    view = state.view
    mine = view.ids_of(state.me, Role.PROVIDER)
    wanted: list[AnyCommand] = [
        SendGrant(settled_round.round, seat, len(settled_round.late))
        for settled_round in view.auditing(state.now)
        for seat in grantable(view, settled_round, state.now)
        if settled_round.seats[seat] in mine
    ]
    return Decision(
        "grants", f"{len(wanted)} rounds of ours are available after all", tuple(wanted)
    )
