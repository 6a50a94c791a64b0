"""What cheating verifiers decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

from atoll.content.cid import Cid
from atoll.law.views import JobView
from atoll.law.words import (
    NO_SEGMENT,
    Digest,
    Fault,
    Finding,
    Report,
    SeatIndex,
    SegmentIndex,
    bits,
)
from atoll_verifier.behaviour import Ballot, VerifierBehaviour, Votes


class RubberStamp(VerifierBehaviour):
    """Claims every segment unseen, and stands by it when someone else reports one."""

    def skips_replays(self, view: JobView) -> bool:
        return True

    def vote_override(self, view: JobView, votes: Votes) -> Votes:
        return Votes(
            agree=0, disagree=votes.agree | votes.disagree | votes.cannot_fetch, cannot_fetch=0
        )


class FalseAccuse(VerifierBehaviour):
    """Reports its first good finding as a fault; where it found none, the first audited seat."""

    def ballot_override(self, view: JobView, ballot: Ballot) -> Ballot:
        good = ballot.findings[0] if ballot.findings else None
        seat = good.seat if good else SeatIndex(bits(view.state.audit_set)[0])
        segment = bits(good.segments)[0] if good else 0
        made_up = Digest(sha256(f"{view.job_id}:{view.state.round}".encode()).digest())
        report = Report(seat, SegmentIndex(segment), Fault.WRONG_REPLAY, made_up)
        rest = good.segments & ~(1 << segment) if good else 0
        kept = (Finding(seat, rest),) if rest else ()
        return replace(
            ballot,
            findings=(*kept, *ballot.findings[1:]),
            reports=(*ballot.reports, report),
        )


class FalseChallenge(VerifierBehaviour):
    """Challenges the trace document of the first audited seat, which it has, and stands by that."""

    def challenge_override(self, view: JobView, lacking: tuple[Report, ...]) -> tuple[Report, ...]:
        seat = SeatIndex(bits(view.state.audit_set)[0])
        trace = Digest(Cid.from_bytes(view.reveals[seat].reveal.trace_cid).digest)
        return (*lacking, Report(seat, NO_SEGMENT, Fault.WITHHELD, trace))


class FalseLoss(VerifierBehaviour):
    """Says that every model is better than it is."""

    def loss_shift(self, view: JobView) -> float:
        return -0.125


class Offline(VerifierBehaviour):
    """Joins, says it is ready, and is never heard of again."""

    def is_offline(self, view: JobView) -> bool:
        return True


BEHAVIOURS: Mapping[str, type[VerifierBehaviour]] = {
    "rubber-stamp": RubberStamp,
    "false-accuse": FalseAccuse,
    "false-challenge": FalseChallenge,
    "false-loss": FalseLoss,
    "offline": Offline,
}
