"""What audits and signatures cost by the rates that terms say, and the rate within a budget.

Rule of this file: pure. What is expected is of honest jobs: nobody is excluded, every slot of the
pool is taken, and a round's pay is claimed before the next one opens. What a job holds for audits
at most is `atoll.protocol.pay.budget`; what it does not spend comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from math import ceil
from typing import Final

from atoll.job.audit_budget import NEWCOMER, Standing, honest_standings, steps_below
from atoll.protocol.audit_rates import (
    ALWAYS,
    RATES,
    SPEAKING,
    Incentive,
    lowest_rate,
    rate_in,
    rate_of_seat,
    stake_needed,
)
from atoll.protocol.committee_draws import COMMITTEE
from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.types import Terms

_DIGITS: Final = Decimal("0.000001")
_PAY: Final = 10**9
"""Of a round, where only what it is beside a bond counts."""
USUAL_WINNER_BPS: Final = WHOLE_BPS - Incentive().burnt_bps


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
    def of(cls, terms: Terms, winner_bps: int = USUAL_WINNER_BPS) -> Duties:
        """Of a job's terms, in a network in which winners get such a part of a slashed bond."""
        rounds, usual = terms.rounds, rate_in(terms, is_last=False)
        path = [each.rate - usual for each in seat_standings(terms, winner_bps)]
        rates = [rate_of_seat(usual, steps) for steps in path[:-1]]
        rates.append(rate_of_seat(rate_in(terms, is_last=True), path[-1]))
        replays = Fraction(sum(RATES[rate] for rate in rates) * terms.seats, ALWAYS)
        return cls(rounds, terms.seats, terms.slots, replays)

    @property
    def signatures(self) -> int:
        """Of each round's merge, and of the last one's result."""
        return (self.rounds + 1) * min(COMMITTEE, self.slots)

    def cost(self, replay: Fraction, signature: Fraction) -> Fraction:
        """As a part of the training's price; fees are in a seat's pay of a round."""
        spent = self.replays * replay + self.signatures * signature
        return spent / (self.rounds * self.seats)


def seat_standings(terms: Terms, winner_bps: int = USUAL_WINNER_BPS) -> tuple[Standing, ...]:
    """Of an honest seat, before each of the job's rounds."""
    burnt = terms.provider_bond * (WHOLE_BPS - winner_bps) // WHOLE_BPS
    return honest_standings(
        rate_in(terms, is_last=False),
        terms.rate_steps,
        pay=terms.segments * terms.segment_pay,
        burnt=burnt,
        rounds=terms.rounds,
    )


def expected_fees(terms: Terms, winner_bps: int = USUAL_WINNER_BPS) -> int:
    """What an honest job spends on replays and signatures, wei."""
    duties = Duties.of(terms, winner_bps)
    return ceil(duties.replays * terms.duty_fee) + duties.signatures * terms.sign_fee


def bond_rounds(incentive: Incentive, rate: int) -> Fraction:
    """Of the bond that deters at a rate, in a round's pay: M / (h · p · b)."""
    chance = Fraction(RATES[rate], ALWAYS) * SPEAKING
    return incentive.margin / chance * WHOLE_BPS / incentive.burnt_bps


def rate_within(incentive: Incentive, rounds: int) -> int:
    """The lowest rate whose bond is no more than half of what the whole job pays a seat: pay that
    is retained does the rest. A newcomer's, one in sixteen, in short jobs: the bond is then larger,
    and each replay of a seat dear beside it.
    """
    lowest = lowest_rate(incentive)
    least = min(NEWCOMER, lowest)
    rates = range(least, lowest + 1)
    return max(
        (rate for rate in rates if 2 * bond_rounds(incentive, rate) <= rounds), default=least
    )


def path_from(incentive: Incentive, rate: int, rounds: int) -> tuple[Standing, ...]:
    """Of an honest seat whose bond is the least that deters at its rate."""
    return honest_standings(
        rate,
        steps_below(incentive, rate),
        pay=_PAY,
        burnt=stake_needed(incentive, _PAY, rate),
        rounds=rounds,
    )


def steps_within(incentive: Incentive, rate: int, rounds: int) -> int:
    """What an honest seat comes down by before the last round of a job: where that is nothing, to
    retain pay brings nobody anything.
    """
    return path_from(incentive, rate, rounds)[-1].rate - rate


def affordable(
    incentive: Incentive, duties: Duties, budget: Fraction, *, replay: Fraction, signature: Fraction
) -> int:
    """The rate with the least bond for which such a part of the training's price pays: the lowest
    that the guard allows where none is within it.
    """
    lowest = lowest_rate(incentive)
    for rate in range(min(NEWCOMER, lowest), lowest):
        path = path_from(incentive, rate, duties.rounds)
        replays = Fraction(duties.seats * sum(RATES[each.rate] for each in path), ALWAYS)
        job = Duties(duties.rounds, duties.seats, duties.slots, replays)
        if job.cost(replay, signature) <= budget:
            return rate
    return lowest


def chance_text(rate: int) -> str:
    """The chance of a rate as a job file says it, rounded down, so that it is the same rate's."""
    chance = (Decimal(RATES[rate]) / ALWAYS).quantize(_DIGITS, ROUND_FLOOR)
    return f"{chance.normalize():f}"
