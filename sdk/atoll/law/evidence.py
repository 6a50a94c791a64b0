"""What the contract derives from ballots and votes, so that verifiers need not agree on it.

Rule of this file: the same sets as `RoundsAudit.sol`, one function for each rule. Weights are equal
(every verifier of a job locks the same bond), so a quorum counts verifiers of the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from atoll.law.terms import is_quorum
from atoll.law.views import BURNED_FAULTS, JobView, ReportRecord, RoundWork, VoteRecord
from atoll.law.words import (
    Bitmap,
    Evidence,
    Fault,
    Outcome,
    Phase,
    Terms,
    VerifierIndex,
    to_bitmap,
)

BREAKER_SEATS: Final = 3
"""So many, and most of a round, look like a fault of the code and not like cheats."""


def agreeing(report: ReportRecord, votes: Mapping[VerifierIndex, VoteRecord]) -> Bitmap:
    """Verifiers that say the fault is there: its reporters, and votes for it."""
    voters = to_bitmap(v for v, vote in votes.items() if vote.agree >> report.index & 1)
    return Bitmap(report.reporters | voters)


def disagreeing(report: ReportRecord, votes: Mapping[VerifierIndex, VoteRecord]) -> Bitmap:
    """Verifiers that replayed and found nothing wrong."""
    return to_bitmap(v for v, vote in votes.items() if vote.disagree >> report.index & 1)


def unable(report: ReportRecord, votes: Mapping[VerifierIndex, VoteRecord]) -> Bitmap:
    """Verifiers that could not fetch what the report is about."""
    return to_bitmap(v for v, vote in votes.items() if vote.cannot_fetch >> report.index & 1)


def compute_outcome(
    report: ReportRecord,
    votes: Mapping[VerifierIndex, VoteRecord],
    verifiers: Bitmap,
    terms: Terms,
) -> Outcome:
    """The outcome of a report by quorums of the snapshot.

    Not being able to fetch agrees with WITHHELD; with other faults it can complete a quorum, and
    then rejects the seat without calling its work wrong. On an answered challenge it says that only
    the chain had the block, and that the segment is sound. OUT_OF_TOLERANCE is never confirmed: no
    quorum makes a distance between machines a proof.
    """
    agree, cannot = agreeing(report, votes), unable(report, votes)
    if report.report.fault is Fault.WITHHELD and not report.is_answered:
        agree = Bitmap(agree | cannot)

    def has_quorum(bitmap: int) -> bool:
        return is_quorum(bitmap.bit_count(), verifiers.bit_count(), terms)

    provable = report.report.fault is not Fault.OUT_OF_TOLERANCE
    if provable and has_quorum(agree):
        return Outcome.CONFIRMED
    disagree = disagreeing(report, votes)
    if has_quorum(disagree):
        return Outcome.REFUTED
    if report.is_answered:
        return Outcome.ANSWERED if has_quorum(disagree | cannot) else Outcome.UNRESOLVED
    if provable and cannot and has_quorum(agree | cannot):
        return Outcome.UNFETCHABLE
    return Outcome.UNRESOLVED


def contradicted_by(view: JobView, report: ReportRecord, outcome: Outcome) -> Bitmap:
    """Verifiers that this outcome shows to be wrong.

    Those who agreed with a refuted report (its reporter even where it was answered, but not if it
    took it back) or disagreed with a confirmed one; and where a wrong replay is confirmed, those
    whose findings vouch for that segment.
    """
    if outcome is Outcome.REFUTED:
        reporter = 1 << report.verifier & ~report.withdrawn
        return Bitmap(agreeing(report, view.votes) | reporter)
    if outcome is not Outcome.CONFIRMED:
        return Bitmap(0)
    wrong = disagreeing(report, view.votes)
    if report.report.fault is Fault.WRONG_REPLAY:
        wrong = Bitmap(wrong | vouching(view, report))
    return wrong


def vouching(view: JobView, report: ReportRecord) -> Bitmap:
    """Verifiers of the snapshot whose findings claim the segment that the report is about."""
    seat, segment = report.report.seat, report.report.segment
    claims = view.work.findings.items()
    found = to_bitmap(v for v, seats in claims if seats.get(seat, 0) >> segment & 1)
    return Bitmap(found & view.state.verifiers)


def absent_from_audit(view: JobView) -> Bitmap:
    """Verifiers that did not ballot, or did not vote though a report was open that they had not
    reported or seconded.
    """
    verifiers = view.state.verifiers
    excused: int = verifiers
    for report in view.attempt_reports:
        excused &= report.reporters
    present = to_bitmap(view.ballots) & (to_bitmap(view.votes) | excused)
    return Bitmap(verifiers & ~present)


def counted_replays(view: JobView) -> Bitmap:
    """Seats in the findings of verifiers that were not contradicted."""
    counted = view.state.verifiers & ~view.work.contradicted
    seats = (s for v, found in view.work.findings.items() if counted >> v & 1 for s in found)
    return to_bitmap(seats)


def close_audit(view: JobView) -> RoundWork:
    """The work of a round whose audit ends now: who was absent, and no dispute without a report."""
    work = view.work
    if view.state.phase not in {Phase.REPORT, Phase.CONFIRM}:
        return work
    absent = Bitmap(work.absent | absent_from_audit(view))
    disputed = work.disputed if view.attempt_reports else Bitmap(0)
    return replace(work, absent=absent, disputed=disputed)


def compute_evidence(view: JobView) -> Evidence:
    """The bitmaps that follow once every report of the attempt is resolved.

    Accepted is what was revealed, not rejected, without an unresolved report, and replayed by a
    counted verifier. What is neither accepted nor rejected is unresolved.
    """
    state, work = view.state, close_audit(view)
    remaining = state.revealed & ~state.rejected
    unresolved = remaining & (work.disputed | ~counted_replays(view))
    return Evidence(
        revealed=state.revealed,
        accepted=Bitmap(remaining & ~unresolved),
        rejected=state.rejected,
        unresolved=Bitmap(unresolved),
        caught=state.caught,
        dutiful=Bitmap(state.verifiers & ~(work.absent | work.contradicted)),
    )


def breaks_circuit(revealed: Bitmap, caught: Bitmap) -> bool:
    """True iff so many seats were caught that a bug is likelier than that many cheats."""
    return caught.bit_count() >= BREAKER_SEATS and 2 * caught.bit_count() > revealed.bit_count()


def is_caught(report: ReportRecord, outcome: Outcome) -> bool:
    """True iff the outcome proves the seat's work wrong."""
    return outcome is Outcome.CONFIRMED and report.report.fault in BURNED_FAULTS
