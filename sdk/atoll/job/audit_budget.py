"""What a job's verification costs by the law of rates, and the least bond that keeps it in budget.

One number, the part of the training's price that verification may cost, says the bond, and the
margin stays as it is asked for: a dearer bond makes replays rare. Where the guard allows a lower
rate than the bond does, pay is retained.

Rule of this file: pure; exact fractions of a round's pay, from the law's own functions. Rounds are
honest: what an honest job costs is what a submitter pays.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from atoll.protocol.audit_fees import REPLAY_MARGIN
from atoll.protocol.audit_rates import (
    ALWAYS,
    RATES,
    SPEAKING,
    Incentive,
    at_loss,
    lowest_rate,
    most_retained,
    rate_of_stake,
    retained_part,
    stake_needed,
    steps_of,
)
from atoll.protocol.committee_draws import COMMITTEE
from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.types import Wei

NEWCOMER: Final = 8
"""The rate that a bond supports, at least, before anything is retained: one round in sixteen. A
bond for a dearer one is small beside what a lie may be worth to somebody (and the job dear)."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A job, as far as its verification's price goes.

    Attributes:
        rounds, seats, slots: of the job; slots of verifiers that sign.
        pay: of a seat's whole round, wei.
        signature: fee of one, wei.
        replayed: rounds that a duty replays on average.
    """

    rounds: int
    seats: int
    slots: int
    pay: int
    signature: int = 0
    replayed: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """What the dial says.

    Attributes:
        bond: of a provider, wei.
        incentive: as it was asked for.
        steps: of the table that an honest seat comes down by as pay is retained of it, at most.
        cost: of verification, as a part of the training's price.
        is_within: whether that is within the budget; else it is the cheapest that there is.
    """

    bond: Wei
    incentive: Incentive
    steps: int
    cost: Fraction
    is_within: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """Of an honest seat, before one of its rounds.

    Attributes:
        rate: of the table.
        retained: of its pay, wei.
    """

    rate: int
    retained: Wei


def honest_standings(
    rate: int, steps: int, *, pay: int, burnt: int, rounds: int
) -> tuple[Standing, ...]:
    """Round by round, where each is FINAL and claimed before the next one.

    Args:
        rate: of a newcomer.
        steps: that it may come down.
        pay: of a round, wei.
        burnt: of its bond by a slash, wei.
    """
    most, retained, standings = most_retained(burnt, steps), Wei(0), []
    for _ in range(rounds):
        come_down = steps_of(burnt, retained) if most else 0
        standings.append(Standing(rate + come_down, retained))
        retained = Wei(retained + retained_part(pay, retained, most))
    return tuple(standings)


def standings_by(terms: Incentive, pay: int, bond: int, rounds: int) -> tuple[Standing, ...]:
    """The same of a bond: a newcomer has the rate that it supports, down to the guard's."""
    burnt = at_loss(terms, bond, 0)
    rate = rate_of_stake(terms, pay, burnt)
    steps = steps_below(terms, rate)
    return honest_standings(rate, steps, pay=pay, burnt=burnt, rounds=rounds)


def steps_below(terms: Incentive, rate: int) -> int:
    """From a newcomer's rate to the lowest that the guard allows. Where everybody is replayed,
    nobody comes down.
    """
    return max(0, lowest_rate(terms) - rate) if rate else 0


def honest_rates(terms: Incentive, pay: int, bond: int, rounds: int) -> tuple[int, ...]:
    """The rate that an honest seat has in each of its rounds, the first of which nobody has paid
    anything for yet.
    """
    return tuple(each.rate for each in standings_by(terms, pay, bond, rounds))


def replays_of_a_seat(terms: Incentive, job: Verified, bond: int) -> Fraction:
    """How often an honest seat is replayed in the whole job, on average."""
    rates = honest_rates(terms, job.pay, bond, job.rounds)
    return Fraction(sum(RATES[rate] for rate in rates), ALWAYS)


def signatures_part(job: Verified) -> Fraction:
    """Of the training's price: what a committee is paid for each round, and for the last merge."""
    signed = (job.rounds + 1) * min(COMMITTEE, job.slots) * job.signature
    return Fraction(signed, job.rounds * job.seats * job.pay)


def verification_cost(terms: Incentive, job: Verified, bond: int) -> Fraction:
    """Of an honest job, as a part of the training's price: replays, and signatures."""
    replays = replays_of_a_seat(terms, job, bond) / job.rounds
    return REPLAY_MARGIN * job.replayed * replays + signatures_part(job)


def bond_at(terms: Incentive, pay: int, rate: int) -> Wei:
    """The least bond that supports a rate from the first round on, wei."""
    needed = stake_needed(terms, pay, rate)
    return Wei(-(-needed * WHOLE_BPS // terms.burnt_bps))


def solve(budget: Fraction, job: Verified, terms: Incentive) -> AuditPlan:
    """The least bond with which verification stays within a part of the training's price, with the
    margin and the guard of `terms`.

    Where the bond alone supports the lowest rate, nothing is retained.
    """
    lowest = lowest_rate(terms)
    plans = []
    for rate in range(min(NEWCOMER, lowest), lowest + 1):
        bond = bond_at(terms, job.pay, rate)
        cost = verification_cost(terms, job, bond)
        plans.append(AuditPlan(bond, terms, steps_below(terms, rate), cost, cost <= budget))
        if plans[-1].is_within:
            return plans[-1]
    return min(plans, key=lambda plan: (plan.cost, plan.bond))


@dataclass(frozen=True, slots=True)
class AlwaysFalse:
    """What becomes of a seat that is false in every round from one on.

    Attributes:
        lasts: rounds until it is slashed, on average.
        loses: what it has at stake then, wei.
    """

    lasts: Fraction
    loses: Wei


def always_false(terms: Incentive, pay: int, bond: int, rounds: int) -> AlwaysFalse:
    """Of a seat that was honest for so many rounds before, h of the auditors speaking."""
    now = standings_by(terms, pay, bond, rounds + 1)[-1]
    chance = Fraction(RATES[now.rate], ALWAYS) * SPEAKING
    return AlwaysFalse(1 / chance, at_loss(terms, bond, now.retained))
