"""What audits and signatures cost by the rates that terms say, and the rate within a budget.

Rule of this file: pure. What is expected is of honest jobs: nobody is excluded, and every slot of
the pool is taken. What a job holds for audits at most is `atoll.protocol.pay.budget`; what it does
not spend comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from math import ceil
from typing import Final

from atoll.job.audit_budget import NEWCOMER
from atoll.protocol.audit_rates import (
    ALWAYS,
    RATES,
    SPEAKING,
    Incentive,
    lowest_rate,
    mean_duties,
)
from atoll.protocol.committee_draws import COMMITTEE
from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.types import Terms

_DIGITS: Final = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Duties:
    """How much is replayed and signed in a whole job where everybody is honest.

    Attributes:
        rounds, seats, slots: of the job.
        replays: of whole rounds of a seat, on average.
    """

    rounds: int
    seats: int
    slots: int
    replays: Fraction

    @classmethod
    def of(cls, terms: Terms) -> Duties:
        """Of a job's terms."""
        return cls(terms.rounds, terms.seats, terms.slots, mean_duties(terms))

    @property
    def signatures(self) -> int:
        """Of each round's merge, and of the last one's result."""
        return (self.rounds + 1) * min(COMMITTEE, self.slots)

    def cost(self, replay: Fraction, signature: Fraction) -> Fraction:
        """As a part of the training's price; fees are in a seat's pay of a round."""
        spent = self.replays * replay + self.signatures * signature
        return spent / (self.rounds * self.seats)


def expected_fees(terms: Terms) -> int:
    """What an honest job spends on replays and signatures, wei."""
    duties = Duties.of(terms)
    return ceil(duties.replays * terms.duty_fee) + duties.signatures * terms.sign_fee


def bond_rounds(incentive: Incentive, rate: int) -> Fraction:
    """Of the bond that deters at a rate, in a round's pay: M / (h · p · b)."""
    chance = Fraction(RATES[rate], ALWAYS) * SPEAKING
    return incentive.margin / chance * WHOLE_BPS / incentive.burnt_bps


def rate_within(incentive: Incentive, rounds: int) -> int:
    """The lowest rate whose bond is no more than the whole job pays a seat. A newcomer's, one in
    sixteen, in short jobs: the bond is then larger, and each replay of a seat dear beside it.
    """
    lowest = lowest_rate(incentive)
    least = min(NEWCOMER, lowest)
    rates = range(least, lowest + 1)
    return max((rate for rate in rates if bond_rounds(incentive, rate) <= rounds), default=least)


def affordable(
    incentive: Incentive, duties: Duties, budget: Fraction, *, replay: Fraction, signature: Fraction
) -> int:
    """The rate with the least bond for which such a part of the training's price pays: the lowest
    that the guard allows where none is within it.
    """
    lowest = lowest_rate(incentive)
    for rate in range(min(NEWCOMER, lowest), lowest):
        replays = Fraction(duties.rounds * duties.seats * RATES[rate], ALWAYS)
        job = Duties(duties.rounds, duties.seats, duties.slots, replays)
        if job.cost(replay, signature) <= budget:
            return rate
    return lowest


def chance_text(rate: int) -> str:
    """The chance of a rate as a job file says it, rounded down, so that it is the same rate's."""
    chance = (Decimal(RATES[rate]) / ALWAYS).quantize(_DIGITS, ROUND_FLOOR)
    return f"{chance.normalize():f}"
