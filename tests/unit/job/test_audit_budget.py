"""What verification costs by the law of rates, and the bond that a budget asks for."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from atoll.job.audit_budget import (
    NEWCOMER,
    Verified,
    always_false,
    bond_at,
    honest_rates,
    replays_of_a_seat,
    signatures_part,
    solve,
    verification_cost,
)
from atoll.protocol.audit_rates import ALWAYS, RATES, Incentive, at_loss, stake_needed

PAY = 10**15
TERMS = Incentive()
SMALL = Verified(rounds=50, seats=8, slots=8, pay=PAY, signature=PAY // 200)
LARGE = Verified(rounds=500, seats=64, slots=8, pay=PAY, signature=PAY // 200)


def test_an_honest_seat_is_replayed_less_and_less_often() -> None:
    rates = honest_rates(TERMS, PAY, 100 * PAY, 500)
    assert list(rates) == sorted(rates)
    changes = {rate: rates.index(rate) for rate in set(rates)}
    # 70 rounds' pay are burnt of the bond; half of each round's pay is retained, until with 198
    # at stake it is eight times less often than the bond alone would have it.
    assert changes == {7: 0, 8: 58, 9: 2 * (140 - 70), 10: 256}


def test_signatures_are_of_every_round_and_of_the_last_merge() -> None:
    assert signatures_part(SMALL) == Fraction(51 * 8, 50 * 8 * 200)
    assert signatures_part(replace(LARGE, slots=100)) == Fraction(501 * 32, 500 * 64 * 200)


def test_the_cost_is_that_of_replays_at_the_rates_and_of_signatures() -> None:
    unsigned = replace(SMALL, signature=0)
    always = replace(TERMS, guard=1)
    assert verification_cost(always, unsigned, 0) == Fraction(11, 10)
    bond = bond_at(TERMS, PAY, 10)
    assert replays_of_a_seat(TERMS, SMALL, bond) == Fraction(50, 32)
    assert verification_cost(TERMS, unsigned, bond) == Fraction(11, 320)
    streamed = replace(unsigned, replayed=Fraction(5, 2))
    assert verification_cost(TERMS, streamed, bond) == Fraction(11, 128)
    whole = verification_cost(TERMS, SMALL, bond)
    assert whole == Fraction(11, 320) + signatures_part(SMALL)


@pytest.mark.parametrize(("job", "most"), [(SMALL, "0.10"), (LARGE, "0.05")])
def test_verification_is_a_tenth_of_a_small_job_and_a_twentieth_of_a_large_one(
    job: Verified, most: str
) -> None:
    """With the dial at a tenth for both."""
    plan = solve(Fraction(1, 10), job, TERMS)
    assert plan.is_within
    assert plan.cost <= Fraction(most)
    assert plan.bond == bond_at(TERMS, PAY, NEWCOMER)
    assert 100 * PAY <= plan.bond <= 140 * PAY


def test_a_smaller_budget_is_a_larger_bond_until_there_is_none() -> None:
    bonds = [solve(Fraction(part, 1000), SMALL, TERMS).bond for part in (100, 60, 40)]
    assert bonds == sorted(set(bonds))
    largest = solve(Fraction(4, 100), SMALL, TERMS)
    assert at_loss(largest.incentive, largest.bond, 0) >= stake_needed(TERMS, PAY, 10)
    assert largest.steps == 0  # nothing is left to gain by what is retained
    assert solve(Fraction(1, 10), LARGE, TERMS).steps == 2
    hopeless = solve(Fraction(1, 1000), SMALL, TERMS)
    assert not hopeless.is_within
    assert hopeless == replace(largest, is_within=False)


def test_a_bond_is_the_least_that_supports_its_rate() -> None:
    for rate in range(11):
        bond = bond_at(TERMS, PAY, rate)
        assert honest_rates(TERMS, PAY, bond, 1) == (rate,)
        assert honest_rates(TERMS, PAY, bond - 10, 1) < (rate,) or rate == 0


def test_a_margin_costs_bond_and_no_replays() -> None:
    low, high = (solve(Fraction(1, 10), LARGE, replace(TERMS, margin=m)) for m in (4, 8))
    assert high.bond == 2 * low.bond
    assert high.cost == pytest.approx(float(low.cost), rel=0.2)


def test_who_lies_for_ever_lasts_as_long_as_its_rate_says_and_loses_its_stake() -> None:
    bond = bond_at(TERMS, PAY, NEWCOMER)
    fresh, seasoned = (always_false(TERMS, PAY, bond, rounds) for rounds in (0, 500))
    assert (fresh.lasts, seasoned.lasts) == (24, 48)
    assert fresh.loses == 96 * PAY
    assert seasoned.loses == 192 * PAY
    assert Fraction(RATES[NEWCOMER], ALWAYS) == Fraction(1, 16)
