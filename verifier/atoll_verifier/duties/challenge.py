"""Data that nobody serves: challenged while there is time to answer, taken back once it is here.

What we stand by is derived anew from what is missing now; what is raised and what is taken back
follows from comparing it with the chain.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.chain.calls import Call, Calls
from atoll.law.views import CHALLENGES_BELOW, SPARE_CHALLENGES, JobView, ReportRecord
from atoll.law.words import Fault, Phase, Report, SeatIndex, Slot, bits
from atoll.service.commands import ContractCall
from atoll.service.machine import AnyCommand, Decision
from atoll_verifier.audit import Audit, duty_of
from atoll_verifier.duties.note import about_challenge
from atoll_verifier.opinions import challenges, confirming, confirming_duty, opinion

PATIENCE = 4
"""The first 1/4 of the report window is for asking again: nothing is challenged before."""


@dataclass(frozen=True, slots=True)
class SendChallenge(ContractCall):
    """Say that nobody serves the block that the report's evidence names."""

    slot: Slot
    report: Report

    @property
    def about(self) -> tuple[object, ...]:
        return about_challenge(self.slot, self.report)

    def call(self, calls: Calls, view: JobView) -> Call:
        slot = self.slot
        return calls.challenge(slot.job, slot.round, slot.attempt, report=self.report)


@dataclass(frozen=True, slots=True)
class SendWithdraw(ContractCall):
    """Take our part in a challenge back."""

    slot: Slot
    index: int

    def call(self, calls: Calls, view: JobView) -> Call:
        slot = self.slot
        return calls.withdraw_challenge(slot.job, slot.round, slot.attempt, self.index)


# --- decisions ---


def decide_challenges(audit: Audit) -> Decision:
    """Challenges what is missing, and takes back what has come since."""
    view, now = audit.view, audit.state.now
    if view.state.phase is not Phase.REPORT or now >= view.state.deadline:
        return Decision("challenge", "no audit is running")
    mine = [r for r in challenges(audit) if r.reporters >> audit.me & 1]
    kept = [record.report for record in mine if _still_lacks(audit, record)]
    stands = audit.state.setup.behaviour.challenge_override(
        view, tuple(dict.fromkeys([*kept, *_lacking(audit)]))
    )
    commands: list[AnyCommand] = [
        SendWithdraw(view.slot, record.index) for record in mine if record.report not in stands
    ]
    answered = [record.report for record in challenges(audit) if record.is_answered]
    raised = {record.report for record in mine}.union(answered)
    fresh = [report for report in stands if report not in raised]
    start = view.state.deadline - audit.manifest.terms.report_seconds
    patience = start + audit.manifest.terms.report_seconds // PATIENCE
    if patience <= now < view.challenge_until and not _is_at_its_limit(audit):
        commands += [SendChallenge(view.slot, report) for report in fresh]
    return Decision(
        "challenge", f"stands by {len(stands)} challenges, {len(fresh)} unsaid", tuple(commands)
    )


def helping(audit: Audit) -> list[AnyCommand]:
    """Looks at what others challenge: what we get, they get from us, and we shall have to vote."""
    others = (record for record in challenges(audit) if not record.reporters >> audit.me & 1)
    return [task for record in others for task in confirming(audit, record)]


def _lacking(audit: Audit) -> list[Report]:
    """What is out of reach now, one block a seat: what lies below it is not known."""
    seats = (SeatIndex(seat) for seat in bits(audit.view.state.audit_set))
    found = (audit.missing(seat, duty_of(audit.all_duties, seat)) for seat in seats)
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
