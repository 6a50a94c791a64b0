"""What a missed duty costs: little at first, twice as much each time, less for each round done.

Rule of this file: integers of wei, penalties rounded up, never more than an eighth of the bond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.types import MissedDuty, RoundIndex, Wei

MOST: Final = 8
"""A penalty is at most one part in so many of the bond."""
ORDINARY: Final = frozenset(
    {MissedDuty.SEAT, MissedDuty.KEY, MissedDuty.SILENCE, MissedDuty.AUDIT, MissedDuty.DIGEST}
)
"""Missed duties that are penalised by level; the others take their own part of a bond."""


@dataclass(frozen=True, slots=True)
class MissRecord:
    """An account's missed duties in a job and role.

    Attributes:
        level: the next penalty is 2 ** level times the first, but for rounds done.
        after: the round after its last missed duty.
    """

    level: int = 0
    after: int = 0

    def at(self, round: RoundIndex, start: RoundIndex) -> int:
        """The level that a missed duty in this round is penalised at, of a holder since round
        `start`."""
        return max(0, self.level - max(0, round - max(start, self.after)))

    def missed(self, round: RoundIndex, start: RoundIndex) -> MissRecord:
        """The record with one more missed duty."""
        return MissRecord(self.at(round, start) + 1, max(self.after, round + 1))


def penalty(bond: int, penalty_bps: int, level: int) -> Wei:
    """Wei that a missed duty at this level takes.

    Args:
        bond: as the terms have it, whatever is left of it.
    """
    return Wei(min(bond // MOST, first_penalty(bond, penalty_bps) << level))


def first_penalty(bond: int, penalty_bps: int) -> Wei:
    """Wei of a first missed duty, where an eighth of the bond is not less."""
    return Wei(-(-bond * penalty_bps // WHOLE_BPS))
