"""What our own work says about the reports that others made.

Rule of this file: pure. Not knowing is no opinion.
"""

from __future__ import annotations

from atoll.law.sampling import NO_DUTY, SeatDuty
from atoll.law.views import ReportRecord
from atoll.law.words import NO_SEGMENT, Fault, SegmentIndex
from atoll.service.machine import AnyCommand
from atoll.train.coherence import CLEARLY_WITHIN
from atoll_verifier.audit import Audit
from atoll_verifier.duties.replay import SegmentReplayed


def confirming_duty(audit: Audit, record: ReportRecord) -> SeatDuty:
    """What must be looked at to have an opinion on a report."""
    seat, segment, fault = record.report.seat, record.report.segment, record.report.fault
    leaves = audit.leaves(seat)
    if fault is Fault.WRONG_LINK:
        return SeatDuty(frozenset(), True)
    if fault is Fault.MALFORMED or segment == NO_SEGMENT or segment >= leaves:
        return NO_DUTY
    needs_link = fault is Fault.WITHHELD and segment == leaves - 1 and audit.is_whole(seat)
    return SeatDuty(frozenset({SegmentIndex(segment)}), needs_link)


def confirming(audit: Audit, record: ReportRecord) -> list[AnyCommand]:
    """The work that an opinion on a report still needs."""
    if opinion(audit, record) is not None:
        return []
    # Another fault of the seat, known already, says nothing about this report.
    return list(audit.undone(record.report.seat, confirming_duty(audit, record)))


def opinion(audit: Audit, record: ReportRecord) -> bool | None:
    """Whether the report is right, by our own work; None where that is not known."""
    seat = record.report.seat
    duty = confirming_duty(audit, record)
    checked = audit.checked(seat)
    if checked is None:
        return None
    if checked.fault:
        return True
    replays = [audit.replayed(seat, segment) for segment in duty.segments]
    linked = audit.linked(seat)
    if any(done is None for done in replays) or (duty.link and linked is None):
        return None
    link_is_wrong = duty.link and linked is not None and bool(linked.fault)
    return _shows(record.report.fault, [r for r in replays if r is not None], link_is_wrong)


def _shows(fault: Fault, replays: list[SegmentReplayed], link_is_wrong: bool) -> bool | None:
    """Whether work that is done shows the fault.

    Data that was served late and is proven wrong counts as withheld: otherwise a provider could
    wait until nobody may report it any more. Late and out of tolerance proves nothing either way.
    """
    is_wrong = any(done.differs for done in replays)
    if fault is Fault.OUT_OF_TOLERANCE:
        return _is_out_of_tolerance(replays)
    if fault is Fault.WITHHELD:
        is_proven = is_wrong or link_is_wrong
        return None if not is_proven and any(not done.matches for done in replays) else is_proven
    return is_wrong if fault is Fault.WRONG_REPLAY else link_is_wrong


def _is_out_of_tolerance(replays: list[SegmentReplayed]) -> bool | None:
    """None in between: another machine may see the same segment a little further away."""
    if all(done.matches and done.excess <= CLEARLY_WITHIN for done in replays):
        return False
    return None if all(done.matches for done in replays) else True


def challenges(audit: Audit) -> list[ReportRecord]:
    """This attempt's challenges, but for those that everyone took back."""
    return [r for r in audit.view.attempt_reports if r.report.fault is Fault.WITHHELD]
