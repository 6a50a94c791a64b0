"""A verifier in a tolerant job: what it reports, what it votes, and whom it does not vouch for."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.law.factories import ScriptedJob, address, make_manifest
from tests.unit.verifier.test_verifier_machine import (
    Left,
    Looker,
    auditing,
    ballot_in,
    duties,
    looked,
    my_seat,
    vote_in,
)

from atoll.law.manifest import Manifest
from atoll.law.words import ZERO_DIGEST, Fault
from atoll.service.commands import key_of
from atoll.train.coherence import SKETCH_WIDTH
from atoll.train.tolerance import default_tolerance
from atoll_verifier.duties.ballot import BallotSigned
from atoll_verifier.duties.replay import DoReplay, SegmentReplayed
from atoll_verifier.duties.vote import VoteSigned

EXACT = make_manifest()
NUMERICS = EXACT.numerics.model_copy(
    update={
        "mode": "tolerant",
        "software_class": None,
        "probe_digest": None,
        "tolerance": default_tolerance(),
    }
)
TOLERANT = Manifest.model_validate(dict(EXACT) | {"numerics": NUMERICS})


def ballot_of(job: ScriptedJob, looker: Looker, *left: Left) -> BallotSigned:
    return ballot_in(looked(job, looker, *left))


def vote_of(fault: Fault, looker: Looker) -> tuple[VoteSigned, int]:
    """Our vote on verifier 1's report about seat 3, segment 2."""
    job = auditing(TOLERANT)
    for v in range(3):
        job.ballot(v, (0, 1, 2))
    index = job.report(1, seat=3, fault=fault, segment=2)
    job.confirm()
    return vote_in(looked(job, looker)), 1 << index


def residuals(count: int, bias: float, account: str = "provider 0") -> list[Left]:
    draw = np.random.Generator(np.random.Philox(4))
    direction = bias * draw.standard_normal(SKETCH_WIDTH)
    rows = (direction + draw.standard_normal((count, SKETCH_WIDTH))).astype("<f4")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    who, at = address(account), ZERO_DIGEST
    replays = (SegmentReplayed(who, "", at, at, 5, 0.1, 0.0, row.tobytes()) for row in rows)
    return [(key_of(DoReplay, "an earlier round", i), done) for i, done in enumerate(replays)]


def test_a_segment_out_of_tolerance_is_reported_as_that() -> None:
    job = auditing(TOLERANT)
    seat = my_seat(job)
    ballot = ballot_of(job, Looker(wrong=[f"DoReplay:0:0:{seat}:"], excess=1.01))
    (report,) = ballot.reports
    first = min(duties(job)[seat].segments)
    assert (report.seat, report.segment, report.fault) == (seat, first, Fault.OUT_OF_TOLERANCE)
    assert seat not in [finding.seat for finding in ballot.findings]


def test_a_segment_within_tolerance_is_vouched_for() -> None:
    job = auditing(TOLERANT)
    ballot = ballot_of(job, Looker(wrong=["DoReplay:"], excess=0.99))
    assert ballot.reports == ()
    assert {f.seat for f in ballot.findings} == set(duties(job))


def test_a_state_that_is_not_the_committed_one_is_still_a_proof() -> None:
    job = auditing(TOLERANT)
    seat = my_seat(job)
    (report,) = ballot_of(job, Looker(wrong=[f"DoReplay:0:0:{seat}:"])).reports
    assert report.fault is Fault.WRONG_REPLAY


def test_tolerant_ballots_prove_no_replay() -> None:
    assert ballot_of(auditing(TOLERANT), Looker()).replay_root == ZERO_DIGEST
    assert ballot_of(auditing(EXACT), Looker()).replay_root != ZERO_DIGEST


@pytest.mark.parametrize(
    ("excess", "agrees", "disagrees"),
    [(0.1, False, True), (0.5, False, True), (0.6, False, False), (1.1, True, False)],
)
def test_only_what_lies_clearly_within_is_contradicted(
    excess: float, agrees: bool, disagrees: bool
) -> None:
    """Between half the tolerance and all of it, another honest machine may see either side."""
    looker = Looker(wrong=["DoReplay:0:0:3:"], excess=excess)
    vote, report = vote_of(Fault.OUT_OF_TOLERANCE, looker)
    assert (vote.agree, vote.disagree) == (report * agrees, report * disagrees)
    assert vote.cannot_fetch == 0


def test_a_distance_is_no_proof_of_a_wrong_replay() -> None:
    looker = Looker(wrong=["DoReplay:0:0:3:"], excess=50.0)
    vote, report = vote_of(Fault.WRONG_REPLAY, looker)
    assert (vote.agree, vote.disagree) == (0, report)


@pytest.mark.parametrize(
    ("count", "bias", "account", "vouches"),
    [
        (16, 1.0, "provider 0", False),
        (16, 0.0, "provider 0", True),
        (6, 1.0, "provider 0", True),  # too few to say
        (16, 1.0, "provider 9", True),
    ],
    ids=["biased", "noise", "few", "another's"],
)
def test_a_provider_whose_segments_are_off_alike_is_not_vouched_for(
    count: int, bias: float, account: str, vouches: bool
) -> None:
    job = auditing(TOLERANT)
    seats = set(duties(job))
    assert 0 in seats
    ballot = ballot_of(job, Looker(), *residuals(count, bias, account))
    assert ballot.reports == ()
    assert {f.seat for f in ballot.findings} == (seats if vouches else seats - {0})
