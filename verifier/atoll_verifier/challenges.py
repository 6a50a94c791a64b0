"""Data that nobody serves: challenged while there is time to answer, taken back once it is here.

Rule of this file: pure. What we stand by is derived anew from what is missing now; what is raised
and what is taken back follows from comparing it with the chain.
"""

from __future__ import annotations

from atoll.law.sampling import SeatDuty
from atoll.law.views import CHALLENGES_BELOW, SPARE_CHALLENGES, ReportRecord
from atoll.law.words import Fault, Phase, Report, SeatIndex, bits
from atoll.service.machine import Command, Decision
from atoll_verifier.audit import Audit, duty_of
from atoll_verifier.commands import DoNote, DoTake, SendChallenge, SendWithdraw
from atoll_verifier.facts import OutOfReach, challenge_name, taken_key
from atoll_verifier.opinions import confirming, confirming_duty, opinion

PATIENCE = 4
"""The first 1/4 of the report window is for asking again: nothing is challenged before."""

Duties = dict[SeatIndex, SeatDuty]


def decide_take(audit: Audit) -> Decision:
    """Takes the blocks that answer challenges from the chain; whoever asked can go on."""
    takes = [
        DoTake(record.report.evidence, record.answer)
        for record in audit.view.attempt_reports
        if record.is_answered and taken_key(record.report.evidence) not in audit.state.facts
    ]
    return Decision("take", f"{len(takes)} answers to take", tuple(takes))


def decide_challenges(audit: Audit, duties: Duties) -> Decision:
    """Challenges what is missing, and takes back what has come since."""
    view, now = audit.view, audit.state.now
    if view.state.phase is not Phase.REPORT or now >= view.state.deadline:
        return Decision("challenge", "no audit is running")
    mine = [r for r in _challenges(audit) if r.reporters >> audit.me & 1]
    kept = [record.report for record in mine if _still_lacks(audit, record)]
    stands = audit.state.setup.behaviour.challenge_override(
        view, tuple(dict.fromkeys([*kept, *_lacking(audit, duties)]))
    )
    commands: list[Command] = [
        SendWithdraw(view.slot, record.index) for record in mine if record.report not in stands
    ]
    answered = [record.report for record in _challenges(audit) if record.is_answered]
    raised = {record.report for record in mine}.union(answered)
    fresh = [report for report in stands if report not in raised]
    start = view.state.deadline - audit.manifest.terms.report_seconds
    patience = start + audit.manifest.terms.report_seconds // PATIENCE
    if patience <= now < view.challenge_until and not _is_at_its_limit(audit):
        commands += [SendChallenge(view.slot, report) for report in fresh]
    return Decision(
        "challenge", f"stands by {len(stands)} challenges, {len(fresh)} unsaid", tuple(commands)
    )


def decide_notes(audit: Audit) -> Decision:
    """Notes which challenged blocks were out of reach when the time to serve them was over.

    Serving them in CONFIRM would make a true challenge look like a false one.
    """
    if audit.view.state.phase is not Phase.REPORT or not audit.is_late:
        return Decision("note", "there is still time to serve")
    late = (OutOfReach(challenge_name(audit.view.slot, r.report)) for r in _gone(audit))
    notes = [DoNote(fact) for fact in late if fact.key not in audit.state.facts]
    return Decision("note", f"notes {len(notes)} blocks out of reach", tuple(notes))


def helping(audit: Audit) -> list[Command]:
    """Looks at what others challenge: what we get, they get from us, and we shall have to vote."""
    others = (record for record in _challenges(audit) if not record.reporters >> audit.me & 1)
    return [task for record in others for task in confirming(audit, record)]


def _challenges(audit: Audit) -> list[ReportRecord]:
    """This attempt's challenges, but for those that everyone took back."""
    return [r for r in audit.view.attempt_reports if r.report.fault is Fault.WITHHELD]


def _gone(audit: Audit) -> list[ReportRecord]:
    """Unanswered challenges of what we asked for in vain too."""
    return [
        record
        for record in _challenges(audit)
        if record.awaits_answer
        and opinion(audit, record) is None
        and audit.missing(record.report.seat, confirming_duty(audit, record)) is not None
    ]


def _lacking(audit: Audit, duties: Duties) -> list[Report]:
    """What is out of reach now, one block a seat: what lies below it is not known."""
    seats = (SeatIndex(seat) for seat in bits(audit.view.state.audit_set))
    found = (audit.missing(seat, duty_of(duties, seat)) for seat in seats)
    return [report for report in found if report is not None and report.evidence]


def _still_lacks(audit: Audit, record: ReportRecord) -> bool:
    """Not once it was looked at; what it showed, a ballot can only say if it is still to come."""
    seen = opinion(audit, record)
    if seen is None:
        return any(audit.undone(record.report.seat, confirming_duty(audit, record)))
    return seen and audit.me in audit.view.ballots


def _is_at_its_limit(audit: Audit) -> bool:
    """Whether the contract would take no more from us in this attempt."""
    view = audit.view
    raised = [r for r in view.reports if r.attempt == view.state.attempt]
    mine = [r for r in raised if r.verifier == audit.me and r.report.fault is Fault.WITHHELD]
    is_spent = len(mine) >= view.require_terms().seats + SPARE_CHALLENGES
    return is_spent or len(view.reports) >= CHALLENGES_BELOW
