"""Ballots: what they commit to, and whose words are right."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.law.identities import address, digest

from atoll.law.ballots import FINE, Ballot, Finding, told
from atoll.law.merkle import verify_proof
from atoll.law.words import Domain, JobId, RoundIndex, SeatIndex, Slot

SLOT = Slot(Domain(1, address("rounds")), JobId(7), RoundIndex(3))
SEED = digest("audit")
MEMBER, OTHER = address("member"), address("other")
WORDS = [digest(f"x {j}") for j in range(4)]
FINDINGS = tuple(Finding.fine(SeatIndex(seat), MEMBER, WORDS) for seat in (1, 4, 9))
BALLOT = Ballot(MEMBER, FINDINGS, digest("salt"))


def test_words_are_right_where_they_are_the_keys() -> None:
    finding = FINDINGS[0]
    assert finding.is_right(MEMBER, WORDS)
    for wrong in (WORDS[:3], [*WORDS, WORDS[0]], [*WORDS[:3], digest("other")], WORDS[::-1]):
        assert not finding.is_right(MEMBER, wrong)


def test_copied_words_are_wrong() -> None:
    """Whoever copies another's opened leaf has told the other's hashes, not its own."""
    assert not FINDINGS[0].is_right(OTHER, WORDS)
    assert told(MEMBER, WORDS[0]) != told(OTHER, WORDS[0])


def test_a_ballot_binds_everything() -> None:
    first = FINDINGS[0]
    others = [
        replace(first, seat=SeatIndex(2)),
        replace(first, words=first.words[:3]),
        replace(first, differs=0),
        replace(first, digest=digest("own")),
    ]
    hashes = {replace(BALLOT, findings=(item, *FINDINGS[1:])).hash(SLOT, SEED) for item in others}
    hashes |= {
        BALLOT.hash(SLOT, SEED),
        BALLOT.hash(SLOT, digest("fork")),
        BALLOT.hash(replace(SLOT, round=RoundIndex(4)), SEED),
        replace(BALLOT, member=OTHER).hash(SLOT, SEED),
        replace(BALLOT, salt=digest("pepper")).hash(SLOT, SEED),
        replace(BALLOT, findings=FINDINGS[:2]).hash(SLOT, SEED),
    }
    assert len(hashes) == 10


def test_each_finding_is_shown_by_its_path() -> None:
    for finding in FINDINGS:
        index, path = BALLOT.proof(finding.seat)
        assert verify_proof(finding.leaf, index, len(FINDINGS), path, BALLOT.root)
    with pytest.raises(KeyError):
        BALLOT.proof(SeatIndex(2))


def test_fine_names_no_segment() -> None:
    assert {finding.differs for finding in FINDINGS} == {FINE}
