"""A window is skipped once everyone who will act in it has; never while somebody may."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.law.factories import make_manifest, make_reveal

from atoll.law.views import (
    AttestationRecord,
    BallotRecord,
    JobView,
    ReportRecord,
    SeatReveal,
    VoteRecord,
)
from atoll.law.words import (
    ZERO_DIGEST,
    Address,
    Attempt,
    Bitmap,
    Digest,
    Domain,
    Fault,
    JobId,
    JobStatus,
    Phase,
    Report,
    SeatIndex,
    SegmentIndex,
    VerifierIndex,
)
from atoll_devnet.run.skipping import Absent, next_moment

HALF, DEADLINE, NOW = 1_000, 2_000, 100
ALL = Bitmap(0b111)
NOBODY = Absent(seats=Bitmap(0), mute=Bitmap(0), verifiers=Bitmap(0))
TWO = Bitmap(0b100)
"""The member of number 2."""
SOMEONE = Address("0x" + "11" * 20)
BALLOT = BallotRecord(SOMEONE, {}, (Digest(bytes(32)),))
MANIFEST = make_manifest()


def view_in(phase: Phase, work: dict[str, Any] | None = None, **state: Any) -> JobView:
    """A running job of three seats and three verifiers."""
    first = JobView.of(Domain(1, SOMEONE), SOMEONE, JobId(1))
    running = replace(
        first.state,
        status=JobStatus.ACTIVE,
        phase=phase,
        seated=ALL,
        verifiers=ALL,
        total_weight=3,
        deadline=DEADLINE,
        **state,
    )
    changed = replace(first.work, half_time=HALF, **(work or {}))
    return replace(first, state=running, work=changed, terms=MANIFEST.terms)


def by_verifier(record: Any, count: int) -> dict[str, Any]:
    return {VerifierIndex(v): record for v in range(count)}


def report(**changes: Any) -> ReportRecord:
    said = Report(SeatIndex(0), SegmentIndex(0), Fault.WRONG_REPLAY, Digest(bytes(32)))
    record = ReportRecord(0, Attempt(0), VerifierIndex(0), SOMEONE, SOMEONE, said, True)
    return replace(record, **changes)


@pytest.mark.parametrize(
    ("absent", "committed", "moment"),
    [
        (NOBODY, 0b111, DEADLINE),
        (NOBODY, 0b011, None),
        (replace(NOBODY, seats=TWO), 0b011, DEADLINE),
        (replace(NOBODY, seats=TWO), 0b001, None),
        (replace(NOBODY, mute=TWO), 0b011, None),
    ],
)
def test_training_waits_for_everyone_present(
    absent: Absent, committed: int, moment: int | None
) -> None:
    view = view_in(Phase.TRAIN, committed=Bitmap(committed))
    assert next_moment(view, MANIFEST, absent, NOW) == moment


@pytest.mark.parametrize(
    ("absent", "revealed", "moment"),
    [
        (NOBODY, 0b011, None),
        (replace(NOBODY, mute=TWO), 0b011, DEADLINE),
        (replace(NOBODY, seats=TWO), 0b011, DEADLINE),
        (replace(NOBODY, mute=TWO), 0b001, None),
    ],
)
def test_revealing_waits_for_whoever_can(absent: Absent, revealed: int, moment: int | None) -> None:
    view = view_in(Phase.REVEAL, committed=ALL, revealed=Bitmap(revealed))
    assert next_moment(view, MANIFEST, absent, NOW) == moment


def test_an_audit_is_skipped_to_half_time_then_to_what_falls_to_others_then_to_its_end() -> None:
    absent = replace(NOBODY, verifiers=TWO)
    seat = SeatIndex(0)
    audited = {"audit_set": Bitmap(0b1), "revealed": Bitmap(0b1)}
    revealed = SeatReveal(SOMEONE, make_reveal(), ZERO_DIGEST, ZERO_DIGEST)
    work = {"auditors": 3, "reveals": {seat: revealed}}

    def moment(balloted: int, now: int, ballot: BallotRecord = BALLOT) -> int | None:
        ballots = {**work, "ballots": by_verifier(ballot, balloted)}
        view = view_in(Phase.REPORT, ballots, **audited)
        return next_moment(view, MANIFEST, absent, now)

    assert moment(1, NOW) is None
    assert moment(2, NOW) == HALF
    assert moment(2, HALF) is None
    supplemented = replace(BALLOT, replay_roots=BALLOT.replay_roots * 2)
    assert moment(2, HALF, supplemented) == DEADLINE


def test_an_audit_with_an_open_challenge_is_waited_out() -> None:
    absent = replace(NOBODY, verifiers=TWO)
    said = replace(report().report, fault=Fault.WITHHELD)
    ballots = by_verifier(BALLOT, 2)
    for record, moment in (
        (report(report=said), None),
        (report(report=said, is_answered=True), HALF),
        (report(), HALF),
    ):
        view = view_in(Phase.REPORT, {"ballots": ballots, "reports": (record,)})
        assert next_moment(view, MANIFEST, absent, NOW) == moment


def test_who_reported_does_not_vote_and_who_is_absent_is_not_waited_for() -> None:
    absent = replace(NOBODY, verifiers=TWO)
    vote = VoteRecord(SOMEONE, Bitmap(1), Bitmap(0), Bitmap(0))
    silent = view_in(Phase.CONFIRM, {"reports": (report(),)})
    voted = view_in(Phase.CONFIRM, {"reports": (report(),), "votes": {VerifierIndex(1): vote}})
    assert next_moment(silent, MANIFEST, absent, NOW) is None
    assert next_moment(voted, MANIFEST, absent, NOW) == DEADLINE
    assert next_moment(voted, MANIFEST, NOBODY, NOW) is None


def test_attesting_is_skipped_without_a_quorum_only() -> None:
    absent = replace(NOBODY, verifiers=Bitmap(0b110))
    one = AttestationRecord(SOMEONE, Digest(bytes(32)), 1)
    alone = view_in(Phase.ATTEST, {"attestations": by_verifier(one, 1)})
    assert next_moment(alone, MANIFEST, absent, NOW) == DEADLINE
    assert next_moment(alone, MANIFEST, NOBODY, NOW) is None
    heavy = replace(one, weight=3)
    settled = view_in(Phase.ATTEST, {"attestations": by_verifier(heavy, 1)})
    assert next_moment(settled, MANIFEST, absent, NOW) is None


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.SEEDING, Phase.DRAW, Phase.CLOSED])
def test_what_blocks_decide_is_not_skipped(phase: Phase) -> None:
    assert next_moment(view_in(phase), MANIFEST, NOBODY, NOW) is None


def test_a_window_that_is_over_is_not_skipped_again() -> None:
    view = view_in(Phase.TRAIN, committed=ALL)
    assert next_moment(view, MANIFEST, NOBODY, DEADLINE) is None
