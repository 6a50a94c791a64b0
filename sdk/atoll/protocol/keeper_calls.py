"""Calls that anybody may make, and that somebody has to: what would succeed now.

Rule of this file: pure functions of a job's view and the clock; nothing here is owed by anyone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from atoll.protocol.audit_reports import fine_word
from atoll.protocol.clocks import last_moment
from atoll.protocol.game_records import parties
from atoll.protocol.holders import Holder
from atoll.protocol.leaves import Leaves, key_hash
from atoll.protocol.owes import is_played
from atoll.protocol.pay import MOST_CLAIMED, claimable_to, round_pay, unpaid
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.protocol.words import (
    NO_HOLDER,
    NO_ROUND,
    Address,
    Digest,
    HolderId,
    JobStatus,
    Miss,
    Phase,
    PlaceIndex,
    Role,
    RoundIndex,
    SeatIndex,
    bits,
)

_NO_SEAT: Final = SeatIndex(0)


class Call(StrEnum):
    ADVANCE = "advance"
    SEED_AUDIT = "seedAudit"
    SETTLE_LATE = "settleLate"
    CUT_SEAT = "cutSeat"
    CUT_MEMBER = "cutMember"
    ABSENT = "absent"
    REPORT_MISSING_KEY = "reportMissingKey"
    NO_KEY = "noKey"
    LEAK = "leak"
    CONTEST = "contest"
    SETTLE_CONTEST = "settleContest"
    DROPPED = "dropped"
    PROVEN = "proven"
    END_FALLEN = "endFallen"
    CLAIM = "claim"
    BURN = "burn"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class KeeperCall:
    """One call.

    Attributes:
        round: that it is about; of a claim or a burning, up to which.
        role, holder: whose id, where it names one.
    """

    call: Call
    round: RoundIndex
    role: Role = Role.PROVIDER
    holder: HolderId = NO_HOLDER
    seat: SeatIndex = _NO_SEAT


class Shown(NamedTuple):
    """A seat's key."""

    seat: SeatIndex
    key: Digest


def keeper_calls(view: JobView, now: int) -> Iterator[KeeperCall]:
    """Everything that would succeed now, as far as the view can tell."""
    yield from _phase(view, now)
    for holder in view.providers.values():
        if holder.missed != NO_ROUND:
            seat = SeatIndex(holder.index)
            yield KeeperCall(Call.CUT_SEAT, holder.missed, Role.PROVIDER, holder.id, seat)
    yield from _silent(view, now)
    for past in view.auditing(now):
        yield from _leaked(past, now)
        yield from _absent(view, past, now)
        yield from _struck(view, past, now)
        yield from _contests(view, past, now)
        yield from _dropped(view, past, now)
    for past in view.settled:
        yield from _proven(view, past)
    yield from _over(view)
    yield from _decided_contests(view, now)
    yield from money(view, now)


def _phase(view: JobView, now: int) -> Iterator[KeeperCall]:
    running = view.open
    if view.is_advance_due(now):
        yield KeeperCall(Call.ADVANCE, view.round)
    if running is None or running.phase is not Phase.MERGE:
        return
    if not any(running.audit_seed) and now >= running.seed_due:
        yield KeeperCall(Call.SEED_AUDIT, view.round)
    terms = view.require_terms()
    if max(running.deadline, terms.expiry) <= now < last_moment(terms):
        yield KeeperCall(Call.SETTLE_LATE, view.round)


# --- misses ---


def _silent(view: JobView, now: int) -> Iterator[KeeperCall]:
    """Committee members that gave no word."""
    places = {
        (past.round, past.places[place])
        for past in view.auditing(now)
        for place in map(PlaceIndex, bits(past.silent))
    }
    if view.open is not None:
        silent = map(PlaceIndex, bits(view.open.silent))
        places |= {(view.open.round, view.open.places[place]) for place in silent}
    for round, holder in sorted(places):
        if (round, Miss.SILENCE) not in view.verifiers[holder].cuts:
            yield KeeperCall(Call.CUT_MEMBER, round, Role.VERIFIER, holder)


def _absent(view: JobView, past: SettledRound, now: int) -> Iterator[KeeperCall]:
    """Auditors that left a duty out: no audit report, not opened, or opened without the seat."""
    if now < past.clock.open_end:
        return
    for place, seats in past.duties.items():
        holder = view.verifiers[past.places[place]]
        if (past.round, Miss.AUDIT) in holder.cuts:
            continue
        body = past.bodies.get(holder.id)
        excluded = [seat for seat in seats if body is None or body.of(seat) is None]
        if excluded:
            yield KeeperCall(Call.ABSENT, past.round, Role.VERIFIER, holder.id, excluded[0])


def _struck(view: JobView, past: SettledRound, now: int) -> Iterator[KeeperCall]:
    """Drawn seats without the key they committed to: a miss and the pay; from half on the bond."""
    if now < past.clock.keys_end:
        return
    for seat in map(SeatIndex, bits(past.drawn)):
        holder = view.providers[past.seats[seat]]
        about = (past.round, Role.PROVIDER, holder.id, seat)
        if past.key_of(seat) is not None or holder.has_fallen:
            continue
        if not past.struck >> seat & 1:
            yield KeeperCall(Call.REPORT_MISSING_KEY, *about)
        if now >= past.clock.half:
            yield KeeperCall(Call.NO_KEY, *about)


# --- what was opened ---


def leaked_keys(past: SettledRound, now: int, told: Iterable[Digest] = ()) -> Iterator[Shown]:
    """Keys of paid seats that are known before AUDIT ends: from the chain, or that one was told."""
    if not past.clock.is_auditing(now):
        return
    by_hash = {key_hash(key): key for key in told if any(key)}
    for seat in map(SeatIndex, bits(past.pay & past.facts.revealed)):
        if seat in past.leaks or not past.reveals[seat].segments:
            continue
        key = past.known_key(seat) or by_hash.get(past.reveals[seat].reveal.key_hash)
        if key is not None:
            yield Shown(seat, key)


def _leaked(past: SettledRound, now: int) -> Iterator[KeeperCall]:
    """Shown early by its own holder: whoever shows it again takes half of the pay."""
    for shown in leaked_keys(past, now):
        about = (Role.PROVIDER, past.reveals[shown.seat].holder, shown.seat)
        yield KeeperCall(Call.LEAK, past.round, *about)


def wrong_words(view: JobView, past: SettledRound) -> Iterator[tuple[HolderId, SeatIndex]]:
    """Opened *fine* whose word is not what the seat's leaves and its key give, early or not."""
    for auditor, body in past.bodies.items():
        account = view.verifiers[auditor].account
        for duty in body.duties:
            key = past.known_key(duty.seat)
            if not duty.is_fine or key is None or duty.seat in past.leaks:
                continue
            if _word_of(account, past.reveals[duty.seat].reveal.leaves, key) != duty.word:
                yield auditor, duty.seat


@lru_cache(maxsize=4096)
def _word_of(account: Address, leaves: bytes, key: Digest) -> Digest:
    """What the account says of these leaves; remembered, as every look at an audit asks again."""
    return fine_word(account, Leaves.from_bytes(leaves).words(key))


def _contests(view: JobView, past: SettledRound, now: int) -> Iterator[KeeperCall]:
    if now < past.clock.open_end:
        return
    for auditor, seat in wrong_words(view, past):
        is_new = (auditor, seat) not in past.contests
        if is_new and not view.providers[past.seats[seat]].has_fallen:
            yield KeeperCall(Call.CONTEST, past.round, Role.VERIFIER, auditor, seat)


def _decided_contests(view: JobView, now: int) -> Iterator[KeeperCall]:
    for past in view.settled:
        for (auditor, seat), contest in past.contests.items():
            is_open = contest.is_wrong is None
            if is_open and view.is_final(Role.PROVIDER, past.seats[seat], past.round, now):
                yield KeeperCall(Call.SETTLE_CONTEST, past.round, Role.VERIFIER, auditor, seat)


def _dropped(view: JobView, past: SettledRound, now: int) -> Iterator[KeeperCall]:
    """Opened *differs* that their authors did not play in time."""
    if now < past.clock.half:
        return
    for auditor, body in past.bodies.items():
        author = view.verifiers[auditor]
        for duty in body.duties:
            is_over = view.providers[past.seats[duty.seat]].has_fallen
            is_kept = duty.is_fine or is_over or is_played(view, past, author.account, duty)
            if not is_kept and (auditor, duty.seat) not in past.dropped:
                yield KeeperCall(Call.DROPPED, past.round, Role.VERIFIER, auditor, duty.seat)


def _proven(view: JobView, past: SettledRound) -> Iterator[KeeperCall]:
    """Opened *differs* about who has fallen since, by whose game it may be."""
    for auditor, body in past.bodies.items():
        for duty in body.duties:
            is_new = not duty.is_fine and (auditor, duty.seat) not in past.proven
            if is_new and view.providers[past.seats[duty.seat]].has_fallen:
                yield KeeperCall(Call.PROVEN, past.round, Role.VERIFIER, auditor, duty.seat)


def _over(view: JobView) -> Iterator[KeeperCall]:
    """Games about who fell otherwise than by one of them."""
    open_ = (game.claim for game in view.games.values() if game.is_open)
    fallen = {parties(claim) for claim in open_ if view.has_fallen(claim)}
    for about in sorted(party for party in fallen if party is not None):
        yield KeeperCall(Call.END_FALLEN, view.round, about[1], about[2])


# --- money ---


def money(view: JobView, now: int) -> Iterator[KeeperCall]:
    """Of all that would succeed now, what moves money that is due: pay, bonds, what is burnt."""
    if view.status is JobStatus.NONE:
        return
    terms = view.require_terms()
    for holder in (*view.providers.values(), *view.verifiers.values()):
        to = claimable_to(view, holder, now)
        rounds = view.settled[holder.claimed_to : to]
        is_worth = any(round_pay(terms, past, holder) for past in rounds)
        if rounds and (is_worth or holder.has_fallen):
            end = RoundIndex(min(to, holder.claimed_to + MOST_CLAIMED))
            yield KeeperCall(Call.CLAIM, end, holder.role, holder.id)
        if is_releasable(view, holder, now):
            yield KeeperCall(Call.RELEASE, view.round, holder.role, holder.id)
    to = burnable_to(view, now)
    if any(unpaid(terms, past) for past in view.settled[view.burnt_to : to]):
        yield KeeperCall(Call.BURN, RoundIndex(min(to, view.burnt_to + MOST_CLAIMED)))


def burnable_to(view: JobView, now: int) -> RoundIndex:
    """The first round that `burn` cannot go through yet."""
    over = sum(past.clock.window_end <= now for past in view.settled)
    return RoundIndex(max(over, view.burnt_to))


def is_releasable(view: JobView, holder: Holder, now: int) -> bool:
    """Whether the bond goes home now; the absolute end is another reason that it does."""
    is_closed = view.phase is Phase.CLOSED
    is_bound = holder.is_released or holder.missed != NO_ROUND or now < holder.bound_until
    if is_bound or (holder.to == NO_ROUND and not is_closed):
        return False
    if any(view.games_about(holder.role, holder.id)):
        return False
    end = min(holder.to, len(view.settled)) if is_closed else holder.to
    if end <= holder.start:
        return True
    last = view.settled_round(RoundIndex(end - 1))
    return last is not None and now >= last.clock.window_end
