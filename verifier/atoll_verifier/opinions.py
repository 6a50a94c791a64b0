"""What our own work says about the reports that others made.

Rule of this file: pure. Not knowing is no opinion.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from atoll.law.sampling import NO_DUTY, SeatDuty
from atoll.law.views import ReportRecord
from atoll.law.words import NO_SEGMENT, Fault, SegmentIndex, to_bitmap
from atoll.service.machine import Command
from atoll.train.coherence import CLEARLY_WITHIN
from atoll_verifier.audit import Audit
from atoll_verifier.behaviour import Votes
from atoll_verifier.facts import (
    BlockTaken,
    OutOfReach,
    SegmentReplayed,
    challenge_name,
    taken_key,
)

_Side: TypeAlias = Literal["agree", "disagree", "cannot fetch"]


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


def confirming(audit: Audit, record: ReportRecord) -> list[Command]:
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


def votes_on(audit: Audit, records: list[ReportRecord]) -> Votes:
    """What we say when the time to look is over; nothing about what we do not know."""
    said: dict[_Side, list[int]] = {"agree": [], "disagree": [], "cannot fetch": []}
    for record in records:
        side = _side(audit, record)
        if side is not None:
            said[side].append(record.index)
    return Votes(
        agree=to_bitmap(said["agree"]),
        disagree=to_bitmap(said["disagree"]),
        cannot_fetch=to_bitmap(said["cannot fetch"]),
    )


def _side(audit: Audit, record: ReportRecord) -> _Side | None:
    """An answered challenge was right if only the chain had the block; the seat is still at fault
    if something else is out of reach. What was served when it was too late counts as not served.
    """
    seen = opinion(audit, record)
    if seen:
        return "agree"
    if seen is None:
        gone = audit.missing(record.report.seat, confirming_duty(audit, record)) is not None
        if not gone:
            return None
        return "agree" if record.is_answered else "cannot fetch"
    in_vain = _needed_the_chain if record.is_answered else _came_too_late
    return "cannot fetch" if in_vain(audit, record) else "disagree"


def _needed_the_chain(audit: Audit, record: ReportRecord) -> bool:
    taken = audit.state.facts.get(BlockTaken, taken_key(record.report.evidence))
    return taken is not None and not taken.was_here


def _came_too_late(audit: Audit, record: ReportRecord) -> bool:
    return OutOfReach(challenge_name(audit.view.slot, record.report)).key in audit.state.facts
