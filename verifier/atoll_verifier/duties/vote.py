"""Looks at each reported segment itself, then votes on all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from atoll.chain.calls import Call, Calls
from atoll.law.views import JobView, ReportRecord
from atoll.law.words import Digest, Phase, Slot, to_bitmap
from atoll.service.commands import ContractCall, Fact
from atoll.service.machine import Decision
from atoll_verifier.audit import Audit
from atoll_verifier.behaviour import Votes
from atoll_verifier.duties.note import DoNote, about_challenge
from atoll_verifier.duties.signing import Signing
from atoll_verifier.duties.take import DoTake
from atoll_verifier.opinions import confirming, confirming_duty, opinion

_Side: TypeAlias = Literal["agree", "disagree", "cannot fetch"]


@dataclass(frozen=True, slots=True)
class Asked:
    """Names a vote: an audit, and the last report that it speaks of."""

    slot: Slot
    audit_seed: Digest
    last_report: int


@dataclass(frozen=True, slots=True)
class VoteSigned(Fact):
    """Bit i speaks of report i."""

    agree: int
    disagree: int
    cannot_fetch: int


@dataclass(frozen=True, slots=True)
class SignVote(Signing[VoteSigned]):
    asked: Asked
    said: VoteSigned

    @property
    def about(self) -> tuple[object, ...]:
        return (self.asked,)


@dataclass(frozen=True, slots=True)
class SendVote(ContractCall):
    once: ClassVar[bool] = True
    asked: Asked
    vote: VoteSigned

    @property
    def about(self) -> tuple[object, ...]:
        return (self.asked,)

    def call(self, calls: Calls, view: JobView) -> Call:
        slot, vote = self.asked.slot, self.vote
        return calls.vote(
            slot.job,
            slot.round,
            slot.attempt,
            agree=vote.agree,
            disagree=vote.disagree,
            cannot_fetch=vote.cannot_fetch,
        )


# --- decisions ---


def decide_vote(audit: Audit) -> Decision:
    """Looks at each reported segment itself, then votes on all of them."""
    view = audit.view
    if view.state.phase is not Phase.CONFIRM:
        return Decision("vote", "nothing to confirm")
    if audit.me in view.votes or audit.state.now >= view.state.deadline:
        return Decision("vote", "voted, or too late to vote")
    reports = [r for r in view.attempt_reports if not r.reporters >> audit.me & 1]
    if not reports:
        return Decision("vote", "every report is our own or seconded by us")
    asked = Asked(view.slot, view.state.audit_seed, view.attempt_reports[-1].index)
    signed = audit.state.facts.of(SignVote, asked)
    if signed is not None:
        return Decision("vote", "signed", (SendVote(asked, signed),))
    tasks = [] if audit.is_idle else [t for r in reports for t in confirming(audit, r)]
    if tasks and not audit.is_late:
        return Decision("vote", f"looks at {len(reports)} reports", tuple(tasks))
    seen = _idle_votes(reports) if audit.is_idle else votes_on(audit, reports)
    votes = audit.state.setup.behaviour.vote_override(view, seen)
    said = VoteSigned(votes.agree, votes.disagree, votes.cannot_fetch)
    return Decision("vote", "done looking", (SignVote(asked, said),))


def _idle_votes(reports: list[ReportRecord]) -> Votes:
    return Votes(agree=0, disagree=to_bitmap(r.index for r in reports), cannot_fetch=0)


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
    taken = audit.state.facts.of(DoTake, record.report.evidence)
    return taken is not None and not taken.was_here


def _came_too_late(audit: Audit, record: ReportRecord) -> bool:
    about = about_challenge(audit.view.slot, record.report)
    return audit.state.facts.of(DoNote, *about) is not None
