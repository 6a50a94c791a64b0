"""Where a verifier decides for itself. Honest by default; a subclass departs from that on purpose.

Rule of this file: every hook is a pure function of the view, so that a restarted verifier departs
in the same way. Overriding one can cost the fee and the bond: see VERIFIER.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from atoll.law.views import JobView
from atoll.law.words import Finding, Report
from atoll.service.machine import Setup, State


@dataclass(frozen=True, slots=True)
class Ballot:
    findings: tuple[Finding, ...]
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Votes:
    """Bit i speaks of report i."""

    agree: int
    disagree: int
    cannot_fetch: int


class VerifierBehaviour:
    """An honest verifier."""

    def may_join(self, view: JobView) -> bool:
        """Whether to join now, everything else being ready."""
        return True

    def may_attest_ready(self, view: JobView) -> bool:
        """Whether to say now that the data is here, which helps to open the job."""
        return True

    def is_offline(self, view: JobView) -> bool:
        """Whether the rounds' work (ballots, votes, attestations, pokes) is left undone."""
        return False

    def skips_replays(self, view: JobView) -> bool:
        """Whether every assigned segment is claimed as replayed without looking at it."""
        return False

    def challenge_override(self, view: JobView, lacking: tuple[Report, ...]) -> tuple[Report, ...]:
        """What is challenged as withheld instead of what is missing."""
        return lacking

    def ballot_override(self, view: JobView, ballot: Ballot) -> Ballot:
        """What is balloted instead of what was found."""
        return ballot

    def vote_override(self, view: JobView, votes: Votes) -> Votes:
        """What is voted instead of what was found."""
        return votes

    def loss_shift(self, view: JobView) -> float:
        """What is added to the held-out losses that it reports."""
        return 0.0


VerifierState: TypeAlias = State[Setup[VerifierBehaviour]]
