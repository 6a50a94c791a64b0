"""Calls that anyone may make and that keep a job moving; members take turns. And our own pay.

Nothing here changes what a round decides, only how soon. What anyone may do is done by the first in
line; the others wait a little longer each, so that it happens once while everyone is there and
happens at all while anyone is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from atoll.chain.calls import Call, Calls
from atoll.errors import ProtocolError
from atoll.law.upkeep import Call as Kind
from atoll.law.upkeep import Upkeep, upkeep
from atoll.law.views import JobView, OpenRound, SettledRound
from atoll.law.words import HolderId, Phase, Role, RoundIndex, SeatIndex
from atoll.service.commands import ContractCall
from atoll.service.config import KeeperConfig
from atoll.service.machine import Decision, State

S = TypeVar("S")
AT_ONCE: Final = 4
"""So that a long list does not fill the queue in front of a commit."""
OWN: Final = frozenset({Kind.CLAIM, Kind.RELEASE})
"""What everybody does for itself."""


@dataclass(frozen=True, slots=True)
class SendUpkeep(ContractCall):
    """One such call. `place` tells those from one another that name the same things."""

    kind: Kind
    round: RoundIndex
    role: Role
    holder: HolderId
    seat: SeatIndex
    place: str = ""

    def call(self, calls: Calls, view: JobView) -> Call:
        job, round, holder, seat = view.job_id, self.round, self.holder, self.seat
        of_job: dict[Kind, Callable[[], Call]] = {
            Kind.POKE: lambda: calls.poke(job),
            Kind.SEED_AUDIT: lambda: calls.seed_audit(job),
            Kind.SETTLE_LATE: lambda: calls.settle_late(job, _running(view).words),
            Kind.CUT_SEAT: lambda: calls.cut_seat(job, seat),
            Kind.CUT_MEMBER: lambda: calls.cut_member(job, round, holder),
            Kind.CLAIM: lambda: calls.claim(job, self.role, holder, round),
            Kind.RELEASE: lambda: calls.release(job, self.role, holder),
            Kind.BURN: lambda: calls.burn(job, round),
        }
        if self.kind in of_job:
            return of_job[self.kind]()
        past = _settled(view, round)
        of_audit: dict[Kind, Callable[[], Call]] = {
            Kind.ABSENT: lambda: calls.absent(past, holder, seat),
            Kind.STRIKE: lambda: calls.strike(past, holder),
            Kind.NO_KEY: lambda: calls.no_key(past, holder),
            Kind.CONTEST_KEY: lambda: calls.contest_key(past, seat),
            Kind.CONTEST: lambda: calls.contest(past, seat, holder),
            Kind.SETTLE_CONTEST: lambda: calls.settle_contest(past, seat, holder),
            Kind.DROPPED: lambda: calls.dropped(past, holder, seat),
        }
        return of_audit[self.kind]()


def _running(view: JobView) -> OpenRound:
    if view.open is None:
        raise ProtocolError("no round is open any more")
    return view.open


def _settled(view: JobView, round: RoundIndex) -> SettledRound:
    past = view.settled_round(round)
    if past is None:
        raise ProtocolError(f"round {round} is not settled")
    return past


# --- decisions ---


def place_in_line(view: JobView, role: Role, index: int | None) -> int:
    """How many members act before this one; turns rotate with the round.

    Providers are first where training is waited for, verifiers elsewhere; who has no place comes
    last.
    """
    seats, places = (
        sorted(h.index for h in view.holders(r).values() if h.counts_in(view.round)) for r in Role
    )
    mine, others = (seats, places) if role is Role.PROVIDER else (places, seats)
    if index not in mine:
        return len(seats) + len(places)
    turn = (mine.index(index) - view.round) % len(mine)
    providers_first = view.phase in {Phase.TRAIN, Phase.REVEAL}
    return turn if (role is Role.PROVIDER) == providers_first else len(others) + turn


def decide_upkeep(state: State[S], line: int, config: KeeperConfig) -> Decision:
    """What has been due for as long as those before us in line have had to do it."""
    view = state.view
    if view.terms is None:
        return Decision("upkeep", "the job is not known yet")
    late = upkeep(view, state.now - line * config.stagger_s)
    due = [_command(view, item) for item in late if item.call not in OWN and _is_worth(view, item)]
    return Decision("upkeep", f"{len(due)} calls are due", tuple(due[:AT_ONCE]))


def _is_worth(view: JobView, item: Upkeep) -> bool:
    """What is burnt is burnt once, when the job is closed."""
    return item.call is not Kind.BURN or view.phase is Phase.CLOSED


def _command(view: JobView, item: Upkeep) -> SendUpkeep:
    place = ""
    if item.call is Kind.POKE:
        deadline = 0 if view.open is None else view.open.deadline
        place = f"{view.phase.name.lower()}:{deadline}:{view.held:x}:{view.block.number}"
        place = place if view.open is None else place.rpartition(":")[0]
    return SendUpkeep(item.call, item.round, item.role, item.holder, item.seat, place)


def decide_pay(state: State[S], when: str) -> Decision:
    """Collects our pay: after `each` round, at the `end`, or `never`; and our bonds, at once."""
    view = state.view
    if view.terms is None:
        return Decision("pay", "the job is not known yet")
    own = {
        (role, holder.id)
        for role in Role
        for holder in view.holders(role).values()
        if holder.account == state.me
    }
    mine = [
        item
        for item in upkeep(view, state.now)
        if item.call in OWN and (item.role, item.holder) in own
    ]
    may_claim = when == "each" or (when == "end" and is_over(view, state.now))
    due = [item for item in mine if item.call is Kind.RELEASE or may_claim]
    commands = tuple(_command(view, item) for item in due)
    return Decision("pay", f"{len(due)} of {len(mine)} claims and releases are due now", commands)


def is_over(view: JobView, now: int) -> bool:
    """Whether no further round will run and every settled one is FINAL."""
    is_played = any(game.is_open for game in view.games.values())
    return view.phase is Phase.CLOSED and not any(view.auditing(now)) and not is_played
