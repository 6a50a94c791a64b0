"""Calls that anyone may make and that keep a job moving; members take turns. And our own pay.

Nothing here changes what a round decides, only how soon. What anyone may do is done by the first in
line; the others wait a little longer each, so that it happens once while everyone is there and
happens at all while anyone is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

import structlog

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.errors import ProtocolError
from atoll.protocol.call_structs import Due
from atoll.protocol.hashing import sha256
from atoll.protocol.keeper_calls import (
    ALL,
    KeeperCall,
    KeeperCallKind,
    Kinds,
    awaited_game,
    keeper_calls,
    money,
)
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Address, HolderId, Phase, Role, RoundIndex, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.commands import ContractCall
from atoll.service.config import KeeperConfig
from atoll.service.machine import AnyCommand, Decision, State

S = TypeVar("S")
log = structlog.get_logger("atoll.keeper_calls")
AT_ONCE: Final = 4
"""So that a long list does not fill the queue in front of a commit."""
FOR_ITSELF: Final = frozenset({KeeperCallKind.CLAIM, KeeperCallKind.RELEASE})
"""What everybody does for itself."""
WATCHED: Final = frozenset(
    {KeeperCallKind.CONTEST, KeeperCallKind.WITHHOLD, KeeperCallKind.SETTLE_CONTEST}
)
"""What an outsider sends that looks for what is wrong: it pays the gas, and has nothing of it."""
SUDDEN: Final = frozenset(
    {
        KeeperCallKind.PENALISE_SEAT,
        KeeperCallKind.PENALISE_MEMBER,
        KeeperCallKind.LEAK,
        KeeperCallKind.CONTEST,
        KeeperCallKind.WITHHOLD,
        KeeperCallKind.PROVEN,
    }
)
"""Due as soon as something is said or missed, and not from a time on that all wait for."""


@dataclass(frozen=True, slots=True)
class SendKeeperCall(ContractCall):
    """One such call. `place` tells those from one another that name the same things."""

    kind: ClassVar[str] = "keeper-call.v1"
    what: KeeperCallKind
    round: RoundIndex
    role: Role
    holder: HolderId
    seat: SeatIndex
    place: str = ""

    def call(self, calls: Calls, view: JobView) -> Call:
        job, round, holder, seat = view.job_id, self.round, self.holder, self.seat
        of_job: dict[KeeperCallKind, Callable[[], Call]] = {
            KeeperCallKind.ADVANCE: lambda: calls.advance(job),
            KeeperCallKind.SEED_AUDIT: lambda: calls.seed_audit(job),
            KeeperCallKind.SETTLE_LATE: lambda: calls.settle_words_late(job, _running(view).votes),
            KeeperCallKind.PENALISE_SEAT: lambda: calls.penalise_seat(job, seat),
            KeeperCallKind.PENALISE_MEMBER: lambda: calls.penalise_member(job, round, holder),
            KeeperCallKind.CLAIM: lambda: calls.claim(job, self.role, holder, round),
            KeeperCallKind.RELEASE: lambda: calls.release(job, self.role, holder),
            KeeperCallKind.BURN: lambda: calls.burn(job, round),
        }
        if self.what in of_job:
            return of_job[self.what]()
        settled_round = _settled(view, round)
        about = calls.about(settled_round)
        of_audit: dict[KeeperCallKind, Callable[[], Call]] = {
            KeeperCallKind.LEAK: lambda: about.leak(
                seat, settled_round.known_key(seat) or settled_round.keys[seat]
            ),
            KeeperCallKind.ABSENT: lambda: about.absent(holder, seat),
            KeeperCallKind.REPORT_MISSING_KEY: lambda: about.report_missing_key(seat),
            KeeperCallKind.CONTEST: lambda: about.contest(seat, holder),
            KeeperCallKind.WITHHOLD: lambda: about.withhold(
                seat, holder, _game(view, settled_round, holder, seat)
            ),
            KeeperCallKind.SETTLE_CONTEST: lambda: about.settle_contest(seat, holder),
            KeeperCallKind.DROPPED: lambda: about.dropped(holder, seat),
            KeeperCallKind.PROVEN: lambda: about.proven(holder, seat),
        }
        return of_audit[self.what]()


@dataclass(frozen=True, slots=True)
class SendClaims(ContractCall):
    """Our pay of several holders, up to a round each: an account that left and came back."""

    kind: ClassVar[str] = "claim-pay.v1"
    dues: tuple[tuple[Role, HolderId, RoundIndex], ...]

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.claim_many([Due(view.job_id, *due) for due in self.dues])


@dataclass(frozen=True, slots=True)
class SendClaimCredit(ContractCall):
    """Take wei that are credited to us; `paid` so far tells one time from another."""

    kind: ClassVar[str] = "claim-credit.v1"
    account: Address
    amount: int
    paid: int

    def call(self, calls: Calls, view: JobView) -> Call:
        log.info("collects", job=view.job_id, amount=self.amount)
        return calls.claim_credit(view.job_id, self.account)


def _running(view: JobView) -> OpenRound:
    if view.open is None:
        raise ProtocolError("no round is open any more")
    return view.open


def _game(view: JobView, settled: SettledRound, auditor: HolderId, seat: SeatIndex) -> int:
    game = awaited_game(view, settled, auditor, seat)
    if game is None:
        raise ProtocolError(f"no game is about seat {seat} of round {settled.round} any more")
    return game


def _settled(view: JobView, round: RoundIndex) -> SettledRound:
    settled_round = view.settled_round(round)
    if settled_round is None:
        raise ProtocolError(f"round {round} is not settled")
    return settled_round


# --- decisions ---


def position_in_line(view: JobView, account: Address) -> int:
    """How many members act before this one; turns rotate with the round.

    Providers are first where training is waited for, verifiers elsewhere; who has no place comes
    last. Who has its bond again keeps its turn: of a closed job that is everybody.
    """
    seats, places = (
        sorted(h.index for h in view.holders(r).values() if h.counts_in(view.round)) for r in Role
    )
    holder = view.holder_of(account)
    if holder is None or not holder.counts_in(view.round):
        return len(seats) + len(places)
    mine, others = (seats, places) if holder.role is Role.PROVIDER else (places, seats)
    turn = (mine.index(holder.index) - view.round) % len(mine)
    providers_first = view.phase in {Phase.TRAIN, Phase.REVEAL}
    return turn if (holder.role is Role.PROVIDER) == providers_first else len(others) + turn


def decide_keeper_calls(
    state: State[S], line: int, config: KeeperConfig, only: frozenset[KeeperCallKind] | None = None
) -> Decision:
    """What has been due for as long as those before us in line have had to do it.

    Args:
        only: these kinds, of whatever job; None all that are not everybody's own, of a job that we
            have or had a part in. Of any other its submitter is left, as nothing is in it for us.
    """
    view = state.view
    if view.terms is None:
        return Decision("keeper_calls", "the job is not known yet")
    if only is None and view.holder_of(state.me) is None:
        return Decision("keeper_calls", "we have no part in the job")
    kinds = _of_everybody(view) if only is None else only
    if not is_turn(view, line, state.now, config):
        kinds -= SUDDEN
    due = [
        _command(view, item)
        for item in keeper_calls(view, state.now - line * config.stagger_s, kinds)
        if not _is_own_key(state, item)
    ]
    # What was asked for before, and is due still, may never be taken: it holds up nothing else.
    due.sort(key=lambda command: _asked_in(state, command))
    return Decision("keeper_calls", f"{len(due)} calls are due", tuple(due[:AT_ONCE]))


def is_turn(view: JobView, line: int, now: int, config: KeeperConfig) -> bool:
    """Whether what is due at once is ours to do now: one member's at a time, drawn by the clock.

    Nobody remembers since when such a thing is due, so no line can be waited for.
    """
    if not config.stagger_s:
        return True
    members = sum(h.counts_in(view.round) for role in Role for h in view.holders(role).values())
    drawn = sha256((now // config.stagger_s).to_bytes(8, "big"))
    return int.from_bytes(drawn[:8], "big") % (members + 1) == line


def _asked_in(state: State[S], command: SendKeeperCall) -> int:
    """The block by which it was asked for last; 0 for never."""
    hold = state.holds.get(command.key)
    return 0 if hold is None else 1 + hold.until_block


def _is_own_key(state: State[S], item: KeeperCall) -> bool:
    """Nobody takes anything for showing its own key."""
    return (
        item.call is KeeperCallKind.LEAK and state.view.providers[item.holder].account == state.me
    )


def _of_everybody(view: JobView) -> Kinds:
    """What anybody does for all. What is burnt is burnt once, when the job is closed."""
    is_closed = view.phase is Phase.CLOSED
    return ALL - FOR_ITSELF - (frozenset() if is_closed else {KeeperCallKind.BURN})


def is_left(view: JobView, me: Address, now: int) -> bool:
    """Whether a call is due that is ours unless somebody before us in line makes it."""
    if view.holder_of(me) is None:
        return False
    return next(keeper_calls(view, now, _of_everybody(view)), None) is not None


def _command(view: JobView, item: KeeperCall) -> SendKeeperCall:
    place = ""
    if item.call is KeeperCallKind.ADVANCE:
        deadline = 0 if view.open is None else view.open.deadline
        place = f"{view.phase.name.lower()}:{deadline}:{view.held:x}:{view.block.number}"
        place = place if view.open is None else place.rpartition(":")[0]
    return SendKeeperCall(item.call, item.round, item.role, item.holder, item.seat, place)


def decide_pay(state: State[S], when: str) -> Decision:
    """Collects our pay: after `each` round, at the `end`, or `never`; and our bonds, at once.

    The end is the job's, or that of our part in it: whoever has left is paid when its bond is home.
    """
    view = state.view
    if view.terms is None:
        return Decision("pay", "the job is not known yet")
    everyone = (h for role in Role for h in view.holders(role).values())
    ours = {(h.role, h.id): h for h in everyone if h.account == state.me}
    mine = list(money(view, state.now, FOR_ITSELF, state.me))
    over = {key for key, holder in ours.items() if holder.is_released}
    over |= {(item.role, item.holder) for item in mine if item.call is KeeperCallKind.RELEASE}
    claims_all = when == "each" or (when == "end" and is_over(view, state.now))
    claims_for = set(ours) if claims_all else over if when == "end" else set()
    due = [i for i in mine if i.call is KeeperCallKind.RELEASE or (i.role, i.holder) in claims_for]
    commands = _together(view, due)
    if claims_all or (ours and claims_for == set(ours)):
        commands += _credits(state)
    reason = f"{len(due)} of {len(mine)} claims and releases are due now"
    return Decision("pay", reason, tuple(commands))


def _together(view: JobView, due: list[KeeperCall]) -> list[AnyCommand]:
    """Commands for these; several claims are one transaction."""
    claims = [item for item in due if item.call is KeeperCallKind.CLAIM]
    if len(claims) < 2:
        return [_command(view, item) for item in due]
    others = [_command(view, item) for item in due if item.call is not KeeperCallKind.CLAIM]
    return [SendClaims(tuple((i.role, i.holder, i.round) for i in claims)), *others]


def _credits(state: State[S]) -> list[AnyCommand]:
    amount = state.view.credits.get(state.me, 0)
    paid = state.view.paid.get(state.me, 0)
    return [SendClaimCredit(state.me, amount, paid)] if amount else []


def is_over(view: JobView, now: int) -> bool:
    """Whether no further round will run and every settled one is FINAL."""
    is_played = any(game.is_open for game in view.games.values())
    return view.phase is Phase.CLOSED and not any(view.auditing(now)) and not is_played
