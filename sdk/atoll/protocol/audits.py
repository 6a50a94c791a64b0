"""How the audit of a settled round changes a job's view; several rounds' run at once.

Rule of this file: one pure function an event, of the one round that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from atoll.protocol import events as ev
from atoll.protocol.audit_reports import AuditReport
from atoll.protocol.membership import Handler, drop, put
from atoll.protocol.open_rounds import OpenRound, Sealed
from atoll.protocol.settled_rounds import Contest, SettledRound
from atoll.protocol.types import (
    NO_BITS,
    Address,
    Bitmap,
    BlockRef,
    Digest,
    HolderId,
    Role,
    RoundIndex,
    SeatIndex,
)
from atoll.protocol.views import JobView


def with_settled(view: JobView, round: RoundIndex, **changes: Any) -> JobView:
    """The view with these fields of a settled round replaced; as it is where there is none."""
    settled_round = view.settled_round(round)
    if settled_round is None:
        return view
    changed = replace(settled_round, **changes)
    view = replace(view, settled=view.settled.changed(round, changed))
    if not changes.keys() & _RESOLVING:
        return view
    others = view.unresolved - {round}
    return replace(view, unresolved=others | {round} if _is_unresolved(changed) else others)


_RESOLVING: Final = frozenset({"opened_reports", "proven", "contests"})


def _is_unresolved(settled_round: SettledRound) -> bool:
    """Whether it has an undecided contest, or an opened *mismatch* that is not proven."""
    if any(contest.is_wrong is None for contest in settled_round.contests.values()):
        return True
    return any(
        not entry.is_valid and (auditor, entry.seat) not in settled_round.proven
        for auditor, body in settled_round.opened_reports.items()
        for entry in body.entries
    )


def _settled_round(view: JobView, round: RoundIndex) -> SettledRound:
    """The contracts speak of audits of settled rounds only."""
    return view.settled[round]


def _signed(view: JobView, event: ev.Signed, block: BlockRef) -> JobView:
    return with_settled(view, event.round, signers=event.signers)


def _merge_struck(view: JobView, event: ev.MergeStruck, block: BlockRef) -> JobView:
    """The job ends as if cancelled; nobody is paid for having signed the round."""
    struck = {"struck_by": event.by, "struck_signers": event.signers}
    view = replace(view, cancel_requested=True)
    return with_settled(view, event.round, signers=NO_BITS, **struck)


def _pay_changed(view: JobView, event: ev.PayChanged, block: BlockRef) -> JobView:
    return with_settled(view, event.round, pay=event.pay)


def _audit_report_sealed(view: JobView, event: ev.AuditReportSealed, block: BlockRef) -> JobView:
    """The last one counts, and only of AUDIT: another takes it away. Anybody may say one.

    AUDIT begins with the second of the settlement: what was sealed before it, in its block, counts.
    """
    running = view.open
    is_running = running is not None and running.round == event.round
    told = running if is_running else view.settled_round(event.round)
    holder = None if told is None else view.auditor_of(told, event.account)
    if told is None or holder is None:
        return view
    if isinstance(told, OpenRound):
        early = put(told.early_audit_reports, holder, Sealed(event.audit_report, block.timestamp))
        return replace(view, open=replace(told, early_audit_reports=early))
    audit_reports = drop(told.audit_reports, holder)
    if told.clock.is_auditing(block.timestamp):
        audit_reports = put(audit_reports, holder, event.audit_report)
    return with_settled(view, event.round, audit_reports=audit_reports)


def _opened(view: JobView, event: ev.Opened, block: BlockRef) -> JobView:
    opened_reports = put(
        _settled_round(view, event.round).opened_reports,
        event.id,
        AuditReport.from_bytes(event.body),
    )
    return with_settled(view, event.round, opened_reports=opened_reports)


def _key_shown(view: JobView, event: ev.KeyShown, block: BlockRef) -> JobView:
    """Of who holds a seat in the round; anybody may say one. Too early it is only known."""
    settled_round, running = view.settled_round(event.round), view.open
    if settled_round is not None:
        seat = _seat_of(view, settled_round.seats, event.account)
        if seat is None:
            return view
        return _with_key(view, settled_round, seat, event.key, block)
    if running is None or running.round != event.round:
        return view
    seat = _seat_of(view, running.seats, event.account)
    if seat is None:
        return view
    early = put(running.early_keys, seat, event.key)
    return replace(view, open=replace(running, early_keys=early))


def _with_key(
    view: JobView, settled_round: SettledRound, seat: SeatIndex, key: Digest, block: BlockRef
) -> JobView:
    """Of a settled round. The contract keeps one key: one that does not count takes away what was
    shown, or told, before."""
    round, clock = settled_round.round, settled_round.clock
    if clock.settled_at < block.timestamp < clock.keys_end:
        is_due = clock.open_end <= block.timestamp
        in_time = Bitmap(settled_round.in_time | is_due << seat)
        return with_settled(view, round, keys=put(settled_round.keys, seat, key), in_time=in_time)
    keys = drop(settled_round.keys, seat)
    if block.timestamp >= clock.keys_end:
        late = put(settled_round.late_keys, seat, key)
        return with_settled(view, round, keys=keys, late_keys=late)
    return with_settled(view, round, keys=keys, early_keys=put(settled_round.early_keys, seat, key))


def _seat_of(
    view: JobView, seats: Mapping[SeatIndex, HolderId], account: Address
) -> SeatIndex | None:
    own = (seat for seat, holder in seats.items() if view.providers[holder].account == account)
    return next(own, None)


def _leaked(view: JobView, event: ev.Leaked, block: BlockRef) -> JobView:
    settled_round = _settled_round(view, event.round)
    leaks, keys = (
        put(settled_round.leaks, event.seat, event.by),
        put(settled_round.keys, event.seat, event.key),
    )
    return with_settled(view, event.round, leaks=leaks, keys=keys)


def _struck(view: JobView, event: ev.Struck, block: BlockRef) -> JobView:
    struck = _settled_round(view, event.round).struck | 1 << event.seat
    return with_settled(view, event.round, struck=Bitmap(struck))


def _excused(view: JobView, event: ev.Excused, block: BlockRef) -> JobView:
    open_end = _settled_round(view, event.round).clock.open_end
    record = view.miss_record(Role.VERIFIER, event.account).excused(open_end)
    key = (Role.VERIFIER, event.account)
    return replace(view, miss_records=put(view.miss_records, key, record))


def _contested(view: JobView, event: ev.Contested, block: BlockRef) -> JobView:
    return _with_contest(view, event, by=event.by)


def _withheld(view: JobView, event: ev.Withheld, block: BlockRef) -> JobView:
    return _with_contest(view, event, game=event.game)


def _with_contest(view: JobView, event: ev.Contested | ev.Withheld, **changes: Any) -> JobView:
    contests, key = _settled_round(view, event.round).contests, (event.id, event.seat)
    changed = replace(contests.get(key, Contest()), **changes)
    return with_settled(view, event.round, contests=put(contests, key, changed))


def _contest_settled(view: JobView, event: ev.ContestSettled, block: BlockRef) -> JobView:
    contests, key = _settled_round(view, event.round).contests, (event.id, event.seat)
    decided = replace(contests[key], is_wrong=event.wrong)
    return with_settled(view, event.round, contests=put(contests, key, decided))


def _late_vote(view: JobView, event: ev.LateVote, block: BlockRef) -> JobView:
    late = _settled_round(view, event.round).late
    has = Bitmap(late.get(event.id, 0) | event.has)
    return with_settled(view, event.round, late=put(late, event.id, has))


def _dropped(view: JobView, event: ev.Dropped, block: BlockRef) -> JobView:
    dropped = _settled_round(view, event.round).dropped | {(event.id, event.seat)}
    return with_settled(view, event.round, dropped=dropped)


def _proven(view: JobView, event: ev.Proven, block: BlockRef) -> JobView:
    """What it earns is credited, not claimed."""
    proven = _settled_round(view, event.round).proven | {(event.id, event.seat)}
    return with_settled(view, event.round, proven=proven)


AUDIT_HANDLERS: Final[Mapping[type, Handler]] = {
    ev.Signed: _signed,
    ev.MergeStruck: _merge_struck,
    ev.PayChanged: _pay_changed,
    ev.AuditReportSealed: _audit_report_sealed,
    ev.Opened: _opened,
    ev.KeyShown: _key_shown,
    ev.Leaked: _leaked,
    ev.Struck: _struck,
    ev.Excused: _excused,
    ev.Contested: _contested,
    ev.Withheld: _withheld,
    ev.ContestSettled: _contest_settled,
    ev.LateVote: _late_vote,
    ev.Dropped: _dropped,
    ev.Proven: _proven,
}
