"""What a missed duty costs: little at first, twice as much for each other one shortly before it.

Rule of this file: integers of wei, penalties rounded up. What a set of missed duties costs follows
from the rounds that they are of, and not from the order in which anybody reports them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.types import MissedDuty, Params, Role, RoundIndex, Terms, Wei

MOST: Final = 8
"""All penalties of a holder together are at most one part in so many of the bond."""
MEMORY: Final = 8
"""A missed duty makes those of so many rounds after it dearer."""
MOST_EXCUSES: Final = 3
"""So many standstills of a job excuse an auditor of which the auditors of its round alone tell."""
ORDINARY: Final = frozenset(
    {MissedDuty.SEAT, MissedDuty.KEY, MissedDuty.SILENCE, MissedDuty.AUDIT, MissedDuty.DIGEST}
)
"""Missed duties that are penalised like this; the others take their own part of a bond."""


@dataclass(frozen=True, slots=True)
class MissRecord:
    """An account's missed duties in a job and role.

    Attributes:
        counts: how many in each round.
        excuses: when the OPEN ended in which it was excused, unix seconds.
    """

    counts: Mapping[RoundIndex, int] = field(default_factory=dict)
    excuses: frozenset[int] = frozenset()

    def before(self, round: int) -> int:
        """Missed duties in the rounds that one of this round remembers."""
        return sum(n for missed, n in self.counts.items() if round - MEMORY <= missed < round)

    def missed(self, round: RoundIndex) -> MissRecord:
        """The record with one more missed duty."""
        return replace(self, counts={**self.counts, round: self.counts.get(round, 0) + 1})

    def excused(self, open_end: int) -> MissRecord:
        """The record with one more excuse."""
        return replace(self, excuses=self.excuses | {open_end})

    def is_excused(self, open_end: int, keys_end: int) -> bool:
        """Whether an excuse that it has is for the same standstill.

        Keys of an excused round were shown, so the chain moved again before its KEYS was over.
        """
        return any(abs(open_end - other) < keys_end - open_end for other in self.excuses)

    def charge(self, round: RoundIndex, bond: int, penalty_bps: int) -> Wei:
        """Wei that one more missed duty in this round costs.

        One that is reported behind later ones pays for what those would have cost with it.
        """
        here = self.before(round) + self.counts.get(round, 0)
        amount: int = penalty(bond, penalty_bps, here)
        for later in range(round + 1, round + MEMORY + 1):
            before, count = self.before(later), self.counts.get(RoundIndex(later), 0)
            with_it = penalty(bond, penalty_bps, before + count)
            amount += bool(count) * (with_it - penalty(bond, penalty_bps, before))
        return Wei(amount)


def penalty(bond: int, penalty_bps: int, others: int) -> Wei:
    """Wei that a missed duty costs after so many others that it remembers.

    Args:
        bond: as the terms have it, whatever is left of it.
    """
    return Wei(min(bond // MOST, first_penalty(bond, penalty_bps) << others))


def first_penalty(bond: int, penalty_bps: int) -> Wei:
    """Wei of a first missed duty, where an eighth of the bond is not less."""
    return Wei(-(-bond * penalty_bps // WHOLE_BPS))


def fee_above(terms: Terms, params: Params) -> Wei:
    """Wei by which the fee of a seat's auditor is above a first penalty: nobody can score what it
    said without its key, and it is paid."""
    first = first_penalty(terms.provider_bond, params.penalty_bps)
    return Wei(max(0, terms.duty_fee - first))


@dataclass(frozen=True, slots=True)
class Standing:
    """What a holder has to lose, and what its account missed before.

    Attributes:
        role: whose bond in the terms is the measure.
        left: wei that are left of the bond.
        penalties: wei that missed duties of the holder took.
    """

    role: Role
    record: MissRecord
    left: int
    penalties: int


def taken(
    terms: Terms, params: Params, standing: Standing, round: RoundIndex, kind: MissedDuty
) -> Wei:
    """Wei that the contract takes of the bond for one more missed duty in this round."""
    whole = terms.provider_bond if standing.role is Role.PROVIDER else terms.verifier_bond
    amount: int = standing.record.charge(round, whole, params.penalty_bps)
    if kind is MissedDuty.KEY:
        amount += fee_above(terms, params)
    return Wei(min(amount, whole // MOST - standing.penalties, standing.left))
