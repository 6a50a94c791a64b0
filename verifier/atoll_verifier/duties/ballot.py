"""One ballot once every duty is done, and one addition for what others left undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from atoll.chain.calls import Call, Calls
from atoll.law.sampling import SeatDuty
from atoll.law.views import JobView
from atoll.law.words import Digest, Finding, Phase, Report, SeatIndex, Slot, bits, to_bitmap
from atoll.service.commands import ContractCall, Fact
from atoll.service.machine import Decision
from atoll_verifier.audit import Audit, duty_of
from atoll_verifier.behaviour import Ballot
from atoll_verifier.duties.signing import Signing

Duties = dict[SeatIndex, SeatDuty]


@dataclass(frozen=True, slots=True)
class Audited:
    """Names a ballot: after a reorg that changes the seed it is another audit's."""

    slot: Slot
    audit_seed: Digest
    part: Literal["main", "supplement"]


@dataclass(frozen=True, slots=True)
class BallotSigned(Fact):
    findings: tuple[Finding, ...]
    reports: tuple[Report, ...]
    replay_root: Digest


@dataclass(frozen=True, slots=True)
class SignBallot(Signing[BallotSigned]):
    audited: Audited
    said: BallotSigned

    @property
    def about(self) -> tuple[object, ...]:
        return (self.audited,)


@dataclass(frozen=True, slots=True)
class SendBallot(ContractCall):
    once: ClassVar[bool] = True
    audited: Audited
    ballot: BallotSigned

    @property
    def about(self) -> tuple[object, ...]:
        return (self.audited,)

    def call(self, calls: Calls, view: JobView) -> Call:
        slot, ballot = self.audited.slot, self.ballot
        return calls.ballot(
            slot.job,
            slot.round,
            slot.attempt,
            findings=ballot.findings,
            reports=ballot.reports,
            replay_root=ballot.replay_root,
        )


# --- decisions ---


def decide_ballot(audit: Audit) -> Decision:
    """One ballot once every duty is done, or when the window is nearly over."""
    view, duties = audit.view, audit.duties
    if view.state.phase is not Phase.REPORT:
        return Decision("ballot", "no audit is running")
    if audit.me in view.ballots:
        return Decision("ballot", f"balloted in attempt {view.state.attempt}")
    if audit.state.now >= view.state.deadline:
        return Decision("ballot", "the window to ballot is over")
    audited = _audited(audit, "main")
    signed = audit.state.facts.of(SignBallot, audited)
    if signed is not None:
        return Decision("ballot", "signed", (SendBallot(audited, signed),))
    waits_for = _unfinished(audit, duties)
    if waits_for and not audit.is_late:
        return Decision("ballot", f"waits for seats {waits_for}")
    return Decision("ballot", "done looking", (SignBallot(audited, _ballot(audit, duties)),))


def decide_supplement(audit: Audit) -> Decision:
    """From half time on, one addition for what others left undone."""
    view = audit.view
    mine = view.ballots.get(audit.me)
    if view.state.phase is not Phase.REPORT or mine is None:
        return Decision("supplement", "no ballot of ours to add to")
    if audit.state.now < view.half_time or mine.is_supplemented:
        return Decision("supplement", "not before half time, and once")
    if audit.state.now >= view.state.deadline:
        return Decision("supplement", "the window to ballot is over")
    audited = _audited(audit, "supplement")
    signed = audit.state.facts.of(SignBallot, audited)
    if signed is not None:
        return Decision("supplement", "signed", (SendBallot(audited, signed),))
    extra = audit.fallback
    waits_for = _unfinished(audit, extra)
    if not extra or (waits_for and not audit.is_late):
        return Decision("supplement", f"waits for seats {waits_for}")
    return Decision("supplement", "took over", (SignBallot(audited, _ballot(audit, extra)),))


def _audited(audit: Audit, part: Literal["main", "supplement"]) -> Audited:
    return Audited(audit.view.slot, audit.view.state.audit_seed, part)


def _unfinished(audit: Audit, duties: Duties) -> list[int]:
    """Seats of the audit about which there is still something to find out."""
    if audit.is_idle:
        return []
    seats = [SeatIndex(s) for s in bits(audit.view.state.audit_set)]
    waiting: list[int] = [s for s in seats if not audit.is_done(s, duty_of(duties, s))]
    if not waiting and audit.in_full is None:
        return list(seats)
    return waiting


def _ballot(audit: Audit, duties: Duties) -> BallotSigned:
    view = audit.view
    seats = [SeatIndex(s) for s in bits(view.state.audit_set)]
    if audit.is_idle:
        found = Ballot(tuple(Finding(s, to_bitmap(d.segments)) for s, d in duties.items()), ())
    else:
        segments = {seat: audit.verified(seat, duty) for seat, duty in duties.items()}
        findings = tuple(Finding(s, bitmap) for s, bitmap in sorted(segments.items()) if bitmap)
        faults = (audit.fault(seat) for seat in seats)
        found = Ballot(findings, tuple(fault for fault in faults if fault is not None))
    cast = audit.state.setup.behaviour.ballot_override(view, found)
    return BallotSigned(cast.findings, cast.reports, audit.replay_root(duties))
