"""Whatever the stake, pay and terms are: no rate of the law makes a lie pay, and none is dearer
than it has to be.
"""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from atoll.protocol.audit_rates import (
    ALWAYS,
    RATES,
    SPEAKING,
    Incentive,
    is_drawn,
    most_retained,
    rate_of_seat,
    rate_of_stake,
    retained_part,
    stake_for,
    steps_of,
)
from atoll.protocol.types import Digest, SeatIndex

WEI = st.integers(0, 1 << 100)
PAYS = st.integers(1, 1 << 90)
TERMS = st.builds(
    Incentive,
    margin=st.integers(1, 40),
    guard=st.integers(1, 1000),
    burnt_bps=st.integers(0, 10_000),
)


def exact(terms: Incentive, pay: int, stake: int) -> Fraction:
    """The chance of the formula, before the table."""
    guard = 1 / (SPEAKING * terms.guard)
    deterring = terms.margin * pay / (SPEAKING * stake) if stake else Fraction(1)
    return min(Fraction(1), max(guard, deterring))


@given(TERMS, PAYS, WEI)
def test_a_rate_is_the_formulas_chance_rounded_up_to_the_table(
    terms: Incentive, pay: int, stake: int
) -> None:
    rate, wanted = rate_of_stake(terms, pay, stake), exact(terms, pay, stake)
    assert Fraction(RATES[rate], ALWAYS) >= wanted
    if rate + 1 < len(RATES):
        assert Fraction(RATES[rate + 1], ALWAYS) < wanted


@given(TERMS, PAYS, WEI)
def test_a_lie_loses_the_margin_unless_every_round_is_replayed(
    terms: Incentive, pay: int, stake: int
) -> None:
    """Expected loss of one false round, while h of the auditors speak, against what it saves."""
    rate = rate_of_stake(terms, pay, stake)
    chance = SPEAKING * Fraction(RATES[rate], ALWAYS)
    assert rate == 0 or chance * stake >= terms.margin * pay
    assert 1 / chance <= max(terms.guard, Fraction(3, 2))


@given(TERMS, PAYS, WEI, WEI)
def test_more_at_stake_is_never_a_higher_rate(
    terms: Incentive, pay: int, stake: int, more: int
) -> None:
    assert rate_of_stake(terms, pay, stake + more) >= rate_of_stake(terms, pay, stake)
    assert rate_of_stake(terms, pay + more, stake) <= rate_of_stake(terms, pay, stake)


BURNT = st.integers(40, 1 << 100)


@given(BURNT, st.integers(0, 15), st.lists(st.fractions(0, 4), max_size=60))
def test_retained_and_paid_out_are_the_pay_and_never_beyond_the_end(
    burnt: int, most_steps: int, parts: list[Fraction]
) -> None:
    """Claims of any part of the burnt bond."""
    most, retained, steps = most_retained(burnt, most_steps), 0, 0
    for part in parts:
        earned = int(part * burnt)
        kept = retained_part(earned, retained, most)
        assert 0 <= kept <= earned
        retained += kept
        assert retained <= most
        assert steps <= steps_of(burnt, retained) <= most_steps
        steps = steps_of(burnt, retained)
    assert steps_of(burnt, most) == most_steps
    if most:
        assert steps_of(burnt, most - 1) < most_steps


@given(BURNT, st.integers(0, 15), st.integers(0, 1 << 100), st.integers(1, 15))
def test_a_lie_of_a_seat_that_has_come_down_loses_no_less_than_a_newcomers(
    burnt: int, most_steps: int, claims: int, rate: int
) -> None:
    retained = retained_part(claims, 0, most_retained(burnt, most_steps))
    lower = rate_of_seat(rate, steps_of(burnt, retained))
    exact = burnt**2 * ALWAYS**2  # of a newcomer, before the table rounds its chance up
    assert ((burnt + retained) * RATES[lower]) ** 2 << rate >= exact


@given(BURNT, st.integers(0, 14))
def test_each_step_is_dearer(burnt: int, steps: int) -> None:
    assert stake_for(burnt, steps) < stake_for(burnt, steps + 1)


SEEDS = st.binary(min_size=32, max_size=32).map(Digest)
SEATS = st.integers(0, 255).map(SeatIndex)


@given(SEEDS, SEATS, st.integers(0, 14))
def test_who_is_drawn_at_a_rate_is_drawn_at_each_higher_one(
    seed: Digest, seat: SeatIndex, rate: int
) -> None:
    assert is_drawn(seed, seat, 0)
    if is_drawn(seed, seat, rate + 1):
        assert is_drawn(seed, seat, rate)


def test_draws_are_as_frequent_as_their_rate_says() -> None:
    seeds = [Digest(number.to_bytes(32, "big")) for number in range(4000)]
    for rate in (2, 6, 10):
        expected = len(seeds) * RATES[rate] / ALWAYS
        drawn = sum(is_drawn(seed, SeatIndex(7), rate) for seed in seeds)
        assert abs(drawn - expected) < 5 * expected**0.5
