"""What a missed duty costs: little at first, twice as much each time, less for each round done.

Rule of this file: integers of wei, cuts rounded up, never more than an eighth of the bond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.words import Miss, RoundIndex, Wei

MOST: Final = 8
"""A cut is at most one part in so many of the bond."""
ORDINARY: Final = frozenset({Miss.SEAT, Miss.KEY, Miss.SILENCE, Miss.AUDIT, Miss.WORDS})
"""Misses that are cut by level; the others take their own part of a bond."""


@dataclass(frozen=True, slots=True)
class Record:
    """An account's misses in a job and role.

    Attributes:
        level: the next cut is 2 ** level times the first, but for rounds done.
        after: the round after its last miss.
    """

    level: int = 0
    after: int = 0

    def at(self, round: RoundIndex, start: RoundIndex) -> int:
        """The level that a miss in this round is cut at, of a holder since round `start`."""
        return max(0, self.level - max(0, round - max(start, self.after)))

    def missed(self, round: RoundIndex, start: RoundIndex) -> Record:
        """The record with one more miss."""
        return Record(self.at(round, start) + 1, max(self.after, round + 1))


def cut(bond: int, miss_cut_bps: int, level: int) -> Wei:
    """Wei that a miss at this level takes.

    Args:
        bond: as the terms have it, whatever is left of it.
    """
    return Wei(min(bond // MOST, first_cut(bond, miss_cut_bps) << level))


def first_cut(bond: int, miss_cut_bps: int) -> Wei:
    """Wei of a first miss, where an eighth of the bond is not less."""
    return Wei(-(-bond * miss_cut_bps // WHOLE_BPS))
