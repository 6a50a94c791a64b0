"""What an account owes by when: pure functions of a job's view and the clock.

Rule of this file: only what can be done now is listed, by the earliest end. Whether it is done, and
how, is the member's; what it costs not to is in SPEC-ROUNDS.md, 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from atoll.protocol.audit_reports import AuditEntry
from atoll.protocol.clocks import last_moment
from atoll.protocol.game_records import Accusation, GameRecord, parties, pay_position
from atoll.protocol.game_records import accusation as made
from atoll.protocol.holders import Holder
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import (
    NO_HOLDER,
    Address,
    Digest,
    HolderId,
    Phase,
    Role,
    RoundIndex,
    SeatIndex,
    SlotIndex,
    bits,
)
from atoll.protocol.views import JobView

WHENEVER: Final = (1 << 64) - 1
"""The end of what nobody can tell the end of yet."""


class Duty(StrEnum):
    COMMIT = "commit"
    REVEAL = "reveal"
    KEY = "key"
    READY = "ready"
    VOTE = "vote"
    SIGN = "sign"
    AUDIT_REPORT = "audit_report"
    OPEN = "open"
    CHALLENGE = "challenge"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Obligation:
    """One thing that an account owes.

    Attributes:
        holder: the id that owes it; 0 of a challenger's move.
        until: unix seconds before which.
        seats: what it is about: an audit report's or an opening's seats, or the one of others.
        at: of a challenge, the segment; their number for the update proof.
        game: of a move.
    """

    duty: Duty
    round: RoundIndex
    until: int
    holder: HolderId = NO_HOLDER
    seats: tuple[SeatIndex, ...] = ()
    at: int = 0
    game: int = 0


def obligations_of(view: JobView, account: Address, now: int) -> tuple[Obligation, ...]:
    """Everything that the account owes the job now, in any role, the most urgent first."""
    ids = {role: view.ids_of(account, role) for role in Role}
    duties: list[Obligation] = []
    for holder in ids[Role.PROVIDER]:
        duties += provider_obligations(view, holder, now)
    for holder in ids[Role.VERIFIER]:
        duties += verifier_obligations(view, holder, now)
    duties += _moves(view, account)
    return tuple(sorted(duties, key=lambda owed: (owed.until, owed.round)))


# --- providers ---


def provider_obligations(view: JobView, holder: HolderId, now: int) -> Iterator[Obligation]:
    """What a seat's holder owes, but for moves in games."""
    running = view.open
    if running is not None and now < running.deadline:
        yield from _training(running, holder)
    for settled_round in view.auditing(now):
        yield from _keys(view, settled_round, holder, now)


def _training(running: OpenRound, holder: HolderId) -> Iterator[Obligation]:
    seat = next((seat for seat, held in running.seats.items() if held == holder), None)
    if seat is None or not running.counting >> seat & 1:
        return
    if running.phase is Phase.TRAIN and seat not in running.commits:
        yield Obligation(Duty.COMMIT, running.round, running.deadline, holder, (seat,))
    if running.phase is Phase.REVEAL and seat in running.commits and seat not in running.reveals:
        yield Obligation(Duty.REVEAL, running.round, running.deadline, holder, (seat,))


def _keys(
    view: JobView, settled_round: SettledRound, holder: HolderId, now: int
) -> Iterator[Obligation]:
    """Of a drawn seat. After keys_end it is late, and gives nothing back; auditors are scored by it
    all the same."""
    clock = settled_round.clock
    if now < clock.open_end or view.providers[holder].is_slashed:
        return
    until = next(end for end in (clock.keys_end, clock.window_end) if now < end)
    for seat in map(SeatIndex, bits(settled_round.drawn)):
        is_shown = seat in settled_round.keys or seat in settled_round.late_keys
        if settled_round.seats[seat] == holder and not is_shown:
            yield Obligation(Duty.KEY, settled_round.round, until, holder, (seat,))


# --- verifiers ---


def verifier_obligations(view: JobView, holder: HolderId, now: int) -> Iterator[Obligation]:
    """What a slot's holder owes, but for moves in games."""
    member = view.verifiers[holder]
    takes_ready = view.phase not in {Phase.MERGE, Phase.CLOSED}
    if takes_ready and not member.is_ready and member.counts_in(member.start):
        # Late it is taken as well, as long as nobody has taken the slot.
        until = member.ready_until if now < member.ready_until else WHENEVER
        yield Obligation(Duty.READY, member.start, until, holder)
    if view.open is not None and now < last_moment(view.require_terms()):
        yield from _committee(view.open, holder, now)
    yield from _signature(view, holder, now)
    for settled_round in view.auditing(now):
        yield from _audit(view, settled_round, member, now)


def _committee(running: OpenRound, holder: HolderId, now: int) -> Iterator[Obligation]:
    """A vote of the committee; then a signature, unless the vote lacks what the others have."""
    slots = (slot for slot, held in running.slots.items() if held == holder)
    slot = next((slot for slot in slots if running.committee >> slot & 1), None)
    if slot is None or running.phase is not Phase.MERGE:
        return
    if slot not in running.votes and now < running.votes_end:
        yield Obligation(Duty.VOTE, running.round, running.votes_end, holder)
    if running.may_settle(now) and not running.lacking >> slot & 1:
        until = running.deadline if now < running.deadline else WHENEVER
        yield Obligation(Duty.SIGN, running.round, until, holder)


def _signature(view: JobView, holder: HolderId, now: int) -> Iterator[Obligation]:
    """Of the last settled round, until the next settlement, and until its AUDIT ends."""
    settled_round = view.settled[-1] if view.settled else None
    if settled_round is None or not settled_round.clock.is_auditing(now):
        return
    slot = settled_round.slot_of(holder)
    if slot is not None and settled_round.unsigned >> slot & 1:
        yield Obligation(Duty.SIGN, settled_round.round, settled_round.clock.audit_end, holder)


def _audit(
    view: JobView, settled_round: SettledRound, member: Holder, now: int
) -> Iterator[Obligation]:
    seats, clock = settled_round.duties_of(member.id), settled_round.clock
    if clock.is_auditing(now) and seats and member.id not in settled_round.audit_reports:
        yield Obligation(Duty.AUDIT_REPORT, settled_round.round, clock.audit_end, member.id, seats)
    has_to_open = (
        member.id in settled_round.audit_reports and member.id not in settled_round.opened_reports
    )
    if clock.is_opening(now) and has_to_open:
        yield Obligation(Duty.OPEN, settled_round.round, clock.open_end, member.id, seats)
    if clock.audit_end <= now < clock.half:
        yield from _accusations(view, settled_round, member)


def _accusations(
    view: JobView, settled_round: SettledRound, member: Holder
) -> Iterator[Obligation]:
    """Opened *mismatch* that their author has not brought before the judge, each by itself."""
    body = settled_round.opened_reports.get(member.id)
    for entry in body.entries if body else ():
        is_over = view.providers[settled_round.seats[entry.seat]].is_slashed
        if (
            not entry.is_valid
            and not is_over
            and not is_played(view, settled_round, member.account, entry)
        ):
            where = (entry.seat,)
            yield Obligation(
                Duty.CHALLENGE,
                settled_round.round,
                settled_round.clock.half,
                member.id,
                where,
                at=entry.at,
            )


def is_played(
    view: JobView, settled_round: SettledRound, author: Address, accusation: AuditEntry
) -> bool:
    """Whether the account has challenged what its audit report says of a seat, or found no room to.

    Who says that a seat's round differs from its beginning may mean an earlier one of the reset
    period.
    """
    about = settled_round.seats[accusation.seat]
    position = pay_position(view.job_id, Role.PROVIDER, about, settled_round.round)
    wanted = accused(settled_round, position, author, accusation)
    return wanted in view.crowded_out or games_about(view, wanted) != []


def games_about(view: JobView, wanted: Accusation) -> list[GameRecord]:
    """The games that somebody began about what it said differs."""
    return [g for g in view.games.values() if wanted == made(g.challenger, g.claim)]


def accused(
    settled_round: SettledRound, position: Digest, author: Address, entry: AuditEntry
) -> Accusation:
    """What an audit report's entry says differs, as the game's contract remembers it."""
    segments = settled_round.reveals[entry.seat].segments
    is_update_proof = entry.at == segments
    segment = max(0, segments - 1) if is_update_proof else entry.at
    return Accusation(author, position, segment, is_update_proof)


# --- games ---


def _moves(view: JobView, account: Address) -> Iterator[Obligation]:
    """Games in which it is the account's turn, as the one who said or as the one who doubts."""
    for game in view.games.values():
        if not game.deadline:
            continue
        if account == (game.claim.holder if game.is_holders_turn else game.challenger):
            yield _move(game)


def _move(game: GameRecord) -> Obligation:
    about = parties(game.claim)
    holder = about[2] if about is not None and game.is_holders_turn else NO_HOLDER
    claim = game.claim
    where = (SeatIndex(claim.seat),)
    return Obligation(
        Duty.MOVE, RoundIndex(claim.round), game.deadline, holder, where, game=game.id
    )


def committee_accounts(view: JobView, round: OpenRound | SettledRound) -> list[Address]:
    """The committee by ascending slot, as its certificate's map counts them."""
    committee = round.committee if isinstance(round, OpenRound) else round.record.committee
    slots = map(SlotIndex, bits(committee))
    return [view.verifiers[round.slots[slot]].account for slot in slots]


def committee_gateways(view: JobView, round: int) -> list[str]:
    """The announced gateways of a round's committee, which has its updates; none before it runs."""
    running = view.open
    is_running = running is not None and running.round == round
    asked = running if is_running else view.settled_round(RoundIndex(round))
    accounts = committee_accounts(view, asked) if asked is not None else []
    return [view.gateways[account] for account in accounts if account in view.gateways]
