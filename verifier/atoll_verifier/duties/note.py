"""Notes which challenged blocks were out of reach when the time to serve them was over.

Serving them in CONFIRM would make a true challenge look like a false one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.law.views import JobView, ReportRecord
from atoll.law.words import Phase, Report, Slot
from atoll.service.commands import Done, Fact, Work
from atoll.service.machine import Decision
from atoll_verifier.audit import Audit
from atoll_verifier.opinions import challenges, confirming_duty, opinion

if TYPE_CHECKING:
    from atoll.service.effects import Effects


@dataclass(frozen=True, slots=True)
class OutOfReach(Fact):
    """A challenged block could not be fetched when the time to serve it was over."""


@dataclass(frozen=True, slots=True)
class DoNote(Work[OutOfReach]):
    """Write down what is seen now and could not be told later."""

    slot: Slot
    report: Report

    @property
    def about(self) -> tuple[object, ...]:
        return about_challenge(self.slot, self.report)

    async def perform(self, effects: Effects, view: JobView) -> Done[OutOfReach]:
        return Done(OutOfReach())


def about_challenge(slot: Slot, report: Report) -> tuple[object, ...]:
    """Names a challenge by what it says: after a reorg its index may be another's."""
    return (slot, report.seat, report.segment, report.evidence)


# --- decisions ---


def decide_notes(audit: Audit) -> Decision:
    """Notes what is out of reach now that it is late."""
    if audit.view.state.phase is not Phase.REPORT or not audit.is_late:
        return Decision("note", "there is still time to serve")
    slot, facts = audit.view.slot, audit.state.facts
    late = (DoNote(slot, record.report) for record in _gone(audit))
    notes = tuple(note for note in late if facts.of(DoNote, *note.about) is None)
    return Decision("note", f"notes {len(notes)} blocks out of reach", notes)


def _gone(audit: Audit) -> list[ReportRecord]:
    """Unanswered challenges of what we asked for in vain too."""
    return [
        record
        for record in challenges(audit)
        if record.awaits_answer
        and opinion(audit, record) is None
        and audit.missing(record.report.seat, confirming_duty(audit, record)) is not None
    ]
