"""Calls that anybody may make, and that somebody has to: what would succeed now.

Rule of this file: pure functions of a job's view and the clock; nothing here is owed by anyone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from atoll.protocol.audit_reports import valid_digest
from atoll.protocol.checkpoint_commitments import CheckpointCommitments, key_hash
from atoll.protocol.clocks import last_moment
from atoll.protocol.game_records import parties, window_of
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.holders import Holder
from atoll.protocol.obligations import is_played
from atoll.protocol.pay import MOST_CLAIMED, claimable_to, round_pay, unpaid
from atoll.protocol.settled_rounds import Contest, SettledRound
from atoll.protocol.types import (
    NO_HOLDER,
    NO_ROUND,
    Address,
    Digest,
    HolderId,
    JobStatus,
    MissedDuty,
    Phase,
    Role,
    RoundIndex,
    SeatIndex,
    SlotIndex,
    bits,
)
from atoll.protocol.views import JobView

_NO_SEAT: Final = SeatIndex(0)


class KeeperCallKind(StrEnum):
    ADVANCE = "advance"
    SEED_AUDIT = "seedAudit"
    SETTLE_LATE = "settleLate"
    PENALISE_SEAT = "penaliseSeat"
    PENALISE_MEMBER = "penaliseMember"
    ABSENT = "absent"
    REPORT_MISSING_KEY = "reportMissingKey"
    LEAK = "leak"
    CONTEST = "contest"
    WITHHOLD = "withhold"
    SETTLE_CONTEST = "settleContest"
    DROPPED = "dropped"
    PROVEN = "proven"
    CLAIM = "claim"
    BURN = "burn"
    RELEASE = "release"


Kinds = frozenset[KeeperCallKind]
ALL: Final[Kinds] = frozenset(KeeperCallKind)


@dataclass(frozen=True, slots=True)
class KeeperCall:
    """One call.

    Attributes:
        round: that it is about; of a claim or a burning, up to which.
        role, holder: whose id, where it names one.
    """

    call: KeeperCallKind
    round: RoundIndex
    role: Role = Role.PROVIDER
    holder: HolderId = NO_HOLDER
    seat: SeatIndex = _NO_SEAT


class Shown(NamedTuple):
    """A seat's key."""

    seat: SeatIndex
    key: Digest


def keeper_calls(view: JobView, now: int, kinds: Kinds = ALL) -> Iterator[KeeperCall]:
    """Everything that would succeed now, as far as the view can tell.

    Args:
        kinds: what is asked for; nothing else is looked for.
    """
    yield from (call for call in _phase(view, now) if call.call in kinds)
    if KeeperCallKind.PENALISE_SEAT in kinds:
        yield from _missed(view)
    if KeeperCallKind.PENALISE_MEMBER in kinds:
        yield from _silent(view, now)
    in_windows = [find for kind, find in _IN_WINDOWS.items() if kind in kinds]
    for settled_round in view.auditing(now) if in_windows else ():
        for find in in_windows:
            yield from find(view, settled_round, now)
    unresolved = [view.settled[round] for round in sorted(view.unresolved)]
    if KeeperCallKind.PROVEN in kinds:
        for settled_round in unresolved:
            yield from _proven(view, settled_round)
    if KeeperCallKind.WITHHOLD in kinds:
        for settled_round in unresolved:
            if now >= settled_round.clock.window_end:
                yield from _waiting_fees(view, settled_round)
    if KeeperCallKind.SETTLE_CONTEST in kinds:
        yield from _decided_contests(view, unresolved, now)
    yield from money(view, now, kinds)


def _phase(view: JobView, now: int) -> Iterator[KeeperCall]:
    running = view.open
    if view.is_advance_due(now):
        yield KeeperCall(KeeperCallKind.ADVANCE, view.round)
    if running is None or running.phase is not Phase.MERGE:
        return
    if not any(running.audit_seed) and now >= running.seed_due:
        yield KeeperCall(KeeperCallKind.SEED_AUDIT, view.round)
    terms = view.require_terms()
    if running.deadline <= now < last_moment(terms) and view.is_merge_overdue(now):
        yield KeeperCall(KeeperCallKind.SETTLE_LATE, view.round)


# --- misses ---


def _missed(view: JobView) -> Iterator[KeeperCall]:
    """Seats that were not in time."""
    for holder in view.providers.values():
        if holder.missed != NO_ROUND:
            seat = SeatIndex(holder.index)
            yield KeeperCall(
                KeeperCallKind.PENALISE_SEAT, holder.missed, Role.PROVIDER, holder.id, seat
            )


def _silent(view: JobView, now: int) -> Iterator[KeeperCall]:
    """Committee members that cast no vote."""
    slots = {
        (settled_round.round, settled_round.slots[slot])
        for settled_round in view.auditing(now)
        for slot in map(SlotIndex, bits(settled_round.silent))
    }
    if view.open is not None:
        silent = map(SlotIndex, bits(view.open.silent))
        slots |= {(view.open.round, view.open.slots[slot]) for slot in silent}
    for round, holder in sorted(slots):
        if (round, MissedDuty.SILENCE) not in view.verifiers[holder].penalties:
            yield KeeperCall(KeeperCallKind.PENALISE_MEMBER, round, Role.VERIFIER, holder)


def _absent(view: JobView, settled_round: SettledRound, now: int) -> Iterator[KeeperCall]:
    """Auditors that left a duty out: no audit report, not opened, or opened without the seat."""
    clock, is_standstill = settled_round.clock, is_audit_standstill(settled_round)
    if now < (clock.keys_end if is_standstill else clock.open_end):
        return
    if is_standstill and settled_round.is_key_standstill:
        return
    for slot, seats in settled_round.duties.items():
        holder = view.verifiers[settled_round.slots[slot]]
        record = view.miss_record(Role.VERIFIER, holder.account)
        if is_standstill and record.is_excused(clock.open_end, clock.keys_end):
            continue
        if (settled_round.round, MissedDuty.AUDIT) in holder.penalties:
            continue
        body = settled_round.opened_reports.get(holder.id)
        excluded = [seat for seat in seats if body is None or body.of(seat) is None]
        if excluded:
            yield KeeperCall(
                KeeperCallKind.ABSENT, settled_round.round, Role.VERIFIER, holder.id, excluded[0]
            )


def is_audit_standstill(settled_round: SettledRound) -> bool:
    """Whether fewer than half of the auditors opened: then an excuse of theirs is used up first."""
    record = settled_round.record
    auditors = min(record.drawn.bit_count(), record.ready.bit_count())
    return 2 * len(settled_round.opened_reports) < auditors


def _struck(view: JobView, settled_round: SettledRound, now: int) -> Iterator[KeeperCall]:
    """Drawn seats that had not shown the key they committed to in time: a missed duty and the
    pay."""
    if now < settled_round.clock.keys_end:
        return
    for seat in map(SeatIndex, bits(settled_round.drawn)):
        holder = view.providers[settled_round.seats[seat]]
        about = (settled_round.round, Role.PROVIDER, holder.id, seat)
        is_over = holder.is_slashed or settled_round.struck >> seat & 1
        if settled_round.key_of(seat) is None and not is_over:
            yield KeeperCall(KeeperCallKind.REPORT_MISSING_KEY, *about)


# --- what was opened ---


def leaked_keys(
    settled_round: SettledRound, now: int, told: Iterable[Digest] = ()
) -> Iterator[Shown]:
    """Keys of paid seats that are known before AUDIT ends: from the chain, or that one was told."""
    if not settled_round.clock.is_auditing(now):
        return
    by_hash = {key_hash(key): key for key in told if any(key)}
    for seat in map(SeatIndex, bits(settled_round.pay & settled_round.record.revealed)):
        if seat in settled_round.leaks or not settled_round.reveals[seat].segments:
            continue
        key = settled_round.known_key(seat) or by_hash.get(
            settled_round.reveals[seat].reveal.key_hash
        )
        if key is not None:
            yield Shown(seat, key)


def _leaked(view: JobView, settled_round: SettledRound, now: int) -> Iterator[KeeperCall]:
    """Shown early by its own holder: whoever shows it again takes the pay."""
    for shown in leaked_keys(settled_round, now):
        about = (Role.PROVIDER, settled_round.reveals[shown.seat].holder, shown.seat)
        yield KeeperCall(KeeperCallKind.LEAK, settled_round.round, *about)


def wrong_digests(
    view: JobView, settled_round: SettledRound
) -> Iterator[tuple[HolderId, SeatIndex]]:
    """Opened *valid* whose digest is not what the seat's checkpoint commitments and its key give,
    early or not."""
    for auditor, body in settled_round.opened_reports.items():
        account = view.verifiers[auditor].account
        for entry in body.entries:
            key = settled_round.known_key(entry.seat)
            if not entry.is_valid or key is None or entry.seat in settled_round.leaks:
                continue
            if (
                _digest_of(
                    account, settled_round.reveals[entry.seat].reveal.checkpoint_commitments, key
                )
                != entry.digest
            ):
                yield auditor, entry.seat


@lru_cache(maxsize=4096)
def _digest_of(account: Address, checkpoint_commitments: bytes, key: Digest) -> Digest:
    """What the account says of these checkpoint commitments; remembered, as every look at an audit
    asks again."""
    return valid_digest(
        account, CheckpointCommitments.from_bytes(checkpoint_commitments).work_tags(key)
    )


def _contests(view: JobView, settled_round: SettledRound, now: int) -> Iterator[KeeperCall]:
    if now < settled_round.clock.open_end:
        return
    for auditor, seat in wrong_digests(view, settled_round):
        contest = settled_round.contests.get((auditor, seat))
        is_new = contest is None or contest.by is None
        if is_new and not view.providers[settled_round.seats[seat]].is_slashed:
            yield KeeperCall(
                KeeperCallKind.CONTEST, settled_round.round, Role.VERIFIER, auditor, seat
            )


def _withheld(view: JobView, settled_round: SettledRound, now: int) -> Iterator[KeeperCall]:
    """Opened *valid* about rounds that games are about: their fees wait."""
    for auditor, body in settled_round.opened_reports.items():
        for entry in body.entries:
            game = awaited_game(view, settled_round, auditor, entry.seat)
            if entry.is_valid and game is not None:
                yield KeeperCall(
                    KeeperCallKind.WITHHOLD, settled_round.round, Role.VERIFIER, auditor, entry.seat
                )


def _waiting_fees(view: JobView, settled_round: SettledRound) -> Iterator[KeeperCall]:
    """Behind the window: fees that wait for a game which is over take the next one."""
    for auditor, seat in settled_round.contests:
        if awaited_game(view, settled_round, auditor, seat) is not None:
            yield KeeperCall(
                KeeperCallKind.WITHHOLD, settled_round.round, Role.VERIFIER, auditor, seat
            )


def awaited_game(
    view: JobView, settled_round: SettledRound, auditor: HolderId, seat: SeatIndex
) -> int | None:
    """The game about the seat's round that the auditor's fee is to wait for: one that the seat has
    lost, or may lose. None where there is none, or the fee waits for such a one already.
    """
    contest = settled_round.contests.get((auditor, seat), Contest())
    holder = (view.job_id, Role.PROVIDER, settled_round.seats[seat])
    awaited = {
        game.id: game.outcome
        for game in view.games.values()
        if window_of(game.claim) == settled_round.round and parties(game.claim) == holder
        if game.outcome in {Outcome.NONE, Outcome.HOLDER_LOST}
    }
    if contest.is_wrong is not None or contest.game in awaited:
        return None
    return max(awaited, key=lambda id: (awaited[id], -id), default=None)


def _decided_contests(
    view: JobView, unresolved: Iterable[SettledRound], now: int
) -> Iterator[KeeperCall]:
    for settled_round in unresolved:
        for (auditor, seat), contest in settled_round.contests.items():
            is_open = contest.is_wrong is None
            if is_open and view.is_final(
                Role.PROVIDER, settled_round.seats[seat], settled_round.round, now
            ):
                yield KeeperCall(
                    KeeperCallKind.SETTLE_CONTEST, settled_round.round, Role.VERIFIER, auditor, seat
                )


def _dropped(view: JobView, settled_round: SettledRound, now: int) -> Iterator[KeeperCall]:
    """Opened *mismatch* that their authors did not play in time."""
    if now < settled_round.clock.half:
        return
    for auditor, body in settled_round.opened_reports.items():
        author = view.verifiers[auditor]
        for entry in body.entries:
            is_over = view.providers[settled_round.seats[entry.seat]].is_slashed
            is_kept = (
                entry.is_valid or is_over or is_played(view, settled_round, author.account, entry)
            )
            if not is_kept and (auditor, entry.seat) not in settled_round.dropped:
                yield KeeperCall(
                    KeeperCallKind.DROPPED, settled_round.round, Role.VERIFIER, auditor, entry.seat
                )


def _proven(view: JobView, settled_round: SettledRound) -> Iterator[KeeperCall]:
    """Opened *mismatch* about who has been slashed since, by whose game it may be."""
    for auditor, body in settled_round.opened_reports.items():
        for entry in body.entries:
            is_new = not entry.is_valid and (auditor, entry.seat) not in settled_round.proven
            if is_new and view.providers[settled_round.seats[entry.seat]].is_slashed:
                yield KeeperCall(
                    KeeperCallKind.PROVEN, settled_round.round, Role.VERIFIER, auditor, entry.seat
                )


_IN_WINDOWS: Final[
    Mapping[KeeperCallKind, Callable[[JobView, SettledRound, int], Iterator[KeeperCall]]]
] = {
    KeeperCallKind.LEAK: _leaked,
    KeeperCallKind.ABSENT: _absent,
    KeeperCallKind.REPORT_MISSING_KEY: _struck,
    KeeperCallKind.CONTEST: _contests,
    KeeperCallKind.WITHHOLD: _withheld,
    KeeperCallKind.DROPPED: _dropped,
}
"""What is looked for in each round whose window is not over."""


# --- money ---


def money(
    view: JobView, now: int, kinds: Kinds = ALL, account: Address | None = None
) -> Iterator[KeeperCall]:
    """Of all that would succeed now, what moves money that is due: pay, bonds, what is burnt.

    Args:
        kinds: what is asked for; nothing else is looked for.
        account: whose pay and bonds; None for everybody's.
    """
    if view.status is JobStatus.NONE:
        return
    of_holders = kinds & {KeeperCallKind.CLAIM, KeeperCallKind.RELEASE}
    for holder in (*view.providers.values(), *view.verifiers.values()) if of_holders else ():
        if account is not None and holder.account != account:
            continue
        if KeeperCallKind.CLAIM in kinds and (end := _worth_claiming(view, holder, now)):
            yield KeeperCall(KeeperCallKind.CLAIM, end, holder.role, holder.id)
        if KeeperCallKind.RELEASE in kinds and is_releasable(view, holder, now):
            yield KeeperCall(KeeperCallKind.RELEASE, view.round, holder.role, holder.id)
    if KeeperCallKind.BURN in kinds:
        terms, to = view.require_terms(), burnable_to(view, now)
        if any(unpaid(terms, each) for each in view.settled.span(view.burnt_to, to)):
            yield KeeperCall(KeeperCallKind.BURN, RoundIndex(min(to, view.burnt_to + MOST_CLAIMED)))


def _worth_claiming(view: JobView, holder: Holder, now: int) -> RoundIndex | None:
    """Up to where a claim pays something, or takes what a slash lost; None where none does."""
    terms, start, to = view.require_terms(), holder.claimed_to, claimable_to(view, holder, now)
    is_worth = any(round_pay(terms, each, holder) for each in view.settled.span(start, to))
    if to <= start or not (is_worth or holder.is_slashed):
        return None
    return RoundIndex(min(to, start + MOST_CLAIMED))


def burnable_to(view: JobView, now: int) -> RoundIndex:
    """The first round that `burn` cannot go through yet."""
    return RoundIndex(max(view.windows_over(now), view.burnt_to))


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
