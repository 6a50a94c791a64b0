"""What an account owes by when: pure functions of a job's view and the clock.

Rule of this file: only what can be done now is listed, by the earliest end. Whether it is done, and
how, is the member's; what it costs not to is in SPEC-ROUNDS.md, 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from atoll.protocol.audit_reports import Duty as AuditReportDuty
from atoll.protocol.clocks import last_moment
from atoll.protocol.game_records import Accusation, GameRecord, parties, pay_place
from atoll.protocol.game_records import accusation as made
from atoll.protocol.holders import Holder
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.protocol.words import (
    NO_HOLDER,
    Address,
    HolderId,
    Phase,
    PlaceIndex,
    Role,
    RoundIndex,
    SeatIndex,
    bits,
)

WHENEVER: Final = (1 << 64) - 1
"""The end of what nobody can tell the end of yet."""


class Duty(StrEnum):
    COMMIT = "commit"
    REVEAL = "reveal"
    KEY = "key"
    READY = "ready"
    WORD = "word"
    SIGN = "sign"
    AUDIT_REPORT = "audit_report"
    OPEN = "open"
    CHALLENGE = "challenge"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Owed:
    """One thing that an account owes.

    Attributes:
        holder: the id that owes it; 0 of a challenger's move.
        until: unix seconds before which.
        seats: what it is about: an audit report's or an opening's seats, or the one of others.
        at: of a challenge, the segment; their number for the link.
        game: of a move.
    """

    duty: Duty
    round: RoundIndex
    until: int
    holder: HolderId = NO_HOLDER
    seats: tuple[SeatIndex, ...] = ()
    at: int = 0
    game: int = 0


def owed_by(view: JobView, account: Address, now: int) -> tuple[Owed, ...]:
    """Everything that the account owes the job now, in any role, the most urgent first."""
    ids = {role: view.ids_of(account, role) for role in Role}
    found: list[Owed] = []
    for holder in ids[Role.PROVIDER]:
        found += provider_owes(view, holder, now)
    for holder in ids[Role.VERIFIER]:
        found += verifier_owes(view, holder, now)
    found += _moves(view, account)
    return tuple(sorted(found, key=lambda owed: (owed.until, owed.round)))


# --- providers ---


def provider_owes(view: JobView, holder: HolderId, now: int) -> Iterator[Owed]:
    """What a seat's holder owes, but for moves in games."""
    running = view.open
    if running is not None and now < running.deadline:
        yield from _training(running, holder)
    for past in view.auditing(now):
        yield from _keys(view, past, holder, now)


def _training(running: OpenRound, holder: HolderId) -> Iterator[Owed]:
    seat = next((seat for seat, held in running.seats.items() if held == holder), None)
    if seat is None or not running.counting >> seat & 1:
        return
    if running.phase is Phase.TRAIN and seat not in running.commits:
        yield Owed(Duty.COMMIT, running.round, running.deadline, holder, (seat,))
    if running.phase is Phase.REVEAL and seat in running.commits and seat not in running.reveals:
        yield Owed(Duty.REVEAL, running.round, running.deadline, holder, (seat,))


def _keys(view: JobView, past: SettledRound, holder: HolderId, now: int) -> Iterator[Owed]:
    """Of a drawn seat. After keys_end it is late, and saves the bond until somebody takes it."""
    clock = past.clock
    if now < clock.open_end or view.providers[holder].has_fallen:
        return
    until = next(end for end in (clock.keys_end, clock.half, clock.window_end) if now < end)
    for seat in map(SeatIndex, bits(past.drawn)):
        if past.seats[seat] == holder and seat not in past.keys:
            yield Owed(Duty.KEY, past.round, until, holder, (seat,))


# --- verifiers ---


def verifier_owes(view: JobView, holder: HolderId, now: int) -> Iterator[Owed]:
    """What a place's holder owes, but for moves in games."""
    member = view.verifiers[holder]
    takes_ready = view.phase not in {Phase.MERGE, Phase.CLOSED}
    if takes_ready and not member.is_ready and member.counts_in(member.start):
        # Late it is taken as well, as long as nobody has taken the place.
        until = member.ready_until if now < member.ready_until else WHENEVER
        yield Owed(Duty.READY, member.start, until, holder)
    if view.open is not None and now < last_moment(view.require_terms()):
        yield from _committee(view.open, holder, now)
    yield from _signature(view, holder, now)
    for past in view.auditing(now):
        yield from _audit(view, past, member, now)


def _committee(running: OpenRound, holder: HolderId, now: int) -> Iterator[Owed]:
    """A word of the committee; then a signature, unless the word lacks what the others have."""
    places = (place for place, held in running.places.items() if held == holder)
    place = next((place for place in places if running.committee >> place & 1), None)
    if place is None or running.phase is not Phase.MERGE:
        return
    if place not in running.words and now < running.words_end:
        yield Owed(Duty.WORD, running.round, running.words_end, holder)
    if running.may_settle(now) and not running.lacking >> place & 1:
        until = running.deadline if now < running.deadline else WHENEVER
        yield Owed(Duty.SIGN, running.round, until, holder)


def _signature(view: JobView, holder: HolderId, now: int) -> Iterator[Owed]:
    """Of the last settled round, until the next settlement, and until its AUDIT ends."""
    past = view.settled[-1] if view.settled else None
    if past is None or not past.clock.is_auditing(now):
        return
    place = past.place_of(holder)
    if place is not None and past.unsigned >> place & 1:
        yield Owed(Duty.SIGN, past.round, past.clock.audit_end, holder)


def _audit(view: JobView, past: SettledRound, member: Holder, now: int) -> Iterator[Owed]:
    seats, clock = past.duties_of(member.id), past.clock
    if clock.is_auditing(now) and seats and member.id not in past.audit_reports:
        yield Owed(Duty.AUDIT_REPORT, past.round, clock.audit_end, member.id, seats)
    has_to_open = member.id in past.audit_reports and member.id not in past.bodies
    if clock.is_opening(now) and has_to_open:
        yield Owed(Duty.OPEN, past.round, clock.open_end, member.id, seats)
    if clock.audit_end <= now < clock.half:
        yield from _accusations(view, past, member)


def _accusations(view: JobView, past: SettledRound, member: Holder) -> Iterator[Owed]:
    """Opened *differs* that their author has not brought before the judge, each by itself."""
    body = past.bodies.get(member.id)
    for duty in body.duties if body else ():
        is_over = view.providers[past.seats[duty.seat]].has_fallen
        if not duty.is_fine and not is_over and not is_played(view, past, member.account, duty):
            where = (duty.seat,)
            yield Owed(Duty.CHALLENGE, past.round, past.clock.half, member.id, where, at=duty.at)


def is_played(
    view: JobView, past: SettledRound, author: Address, accusation: AuditReportDuty
) -> bool:
    """Whether the account has challenged what its audit report says of a seat, or found no room to.

    Who says that a seat's round differs from its beginning may mean an earlier one of the reset
    period.
    """
    seat = accusation.seat
    about, done = past.seats[seat], past.reveals[seat].segments
    is_link = accusation.at == done
    segment = max(0, done - 1) if is_link else accusation.at
    place = pay_place(view.job_id, Role.PROVIDER, about, past.round)
    wanted = Accusation(author, place, segment, is_link)
    games = view.games.values()
    return wanted in view.crowded_out or any(wanted == made(g.challenger, g.claim) for g in games)


# --- games ---


def _moves(view: JobView, account: Address) -> Iterator[Owed]:
    """Games in which it is the account's turn, as the one who said or as the one who doubts.

    None where the bond is gone already: then nobody loses any more.
    """
    for game in view.games.values():
        if not game.deadline or view.has_fallen(game.claim):
            continue
        if account == (game.claim.holder if game.is_holders_turn else game.challenger):
            yield _move(game)


def _move(game: GameRecord) -> Owed:
    about = parties(game.claim)
    holder = about[2] if about is not None and game.is_holders_turn else NO_HOLDER
    claim = game.claim
    where = (SeatIndex(claim.seat),)
    return Owed(Duty.MOVE, RoundIndex(claim.round), game.deadline, holder, where, game=game.id)


def committee_accounts(view: JobView, round: OpenRound | SettledRound) -> list[Address]:
    """The committee by ascending place, as its certificate's map counts them."""
    committee = round.committee if isinstance(round, OpenRound) else round.facts.committee
    places = map(PlaceIndex, bits(committee))
    return [view.verifiers[round.places[place]].account for place in places]


def committee_gateways(view: JobView, round: int) -> list[str]:
    """The announced gateways of a round's committee, which has its updates; none before it runs."""
    running = view.open
    is_running = running is not None and running.round == round
    told = running if is_running else view.settled_round(RoundIndex(round))
    accounts = committee_accounts(view, told) if told is not None else []
    return [view.gateways[account] for account in accounts if account in view.gateways]
