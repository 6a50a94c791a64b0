"""The chance of a replay by what is at stake: the table, its edges, and draws written out here."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from eth_hash.auto import keccak
from tests.support.identities import digest
from tests.support.manifests import make_terms

from atoll.protocol import audit_rates
from atoll.protocol.audit_fees import Readiness, UnitPrices, replay_fee, signature_fee
from atoll.protocol.audit_rates import (
    ALWAYS,
    RATES,
    Incentive,
    at_loss,
    is_drawn,
    lowest_rate,
    mean_duties,
    most_duties,
    most_retained,
    rate_of_chance,
    rate_of_seat,
    rate_of_stake,
    retained_part,
    stake_for,
    stake_needed,
    steps_of,
)
from atoll.protocol.types import TOKEN, SeatIndex

PAY = 10**15
TERMS = Incentive()
SEED = digest("audit")


def test_each_rate_is_the_root_of_half_of_the_one_two_before_and_rounded_up() -> None:
    assert len(RATES) == 16
    assert RATES[::2] == tuple(ALWAYS >> step for step in range(8))
    for step, rate in enumerate(RATES):
        assert (rate - 1) ** 2 < ALWAYS**2 / 2**step <= rate**2


@pytest.mark.parametrize(
    ("guard", "rate"),
    [(1, 0), (2, 0), (3, 2), (4, 2), (12, 6), (24, 8), (40, 9), (47, 9), (48, 10), (10**6, 15)],
)
def test_the_guard_bounds_how_rare_a_replay_may_be(guard: int, rate: int) -> None:
    """With two thirds of the auditors speaking, a rate of 1/32 finds a seat in 48 rounds."""
    terms = replace(TERMS, guard=guard)
    assert lowest_rate(terms) == rate
    assert rate_of_stake(terms, PAY, 10**9 * PAY) == rate


def test_the_stake_of_each_rate_is_just_enough() -> None:
    for rate in range(11):
        needed = stake_needed(TERMS, PAY, rate)
        assert rate_of_stake(TERMS, PAY, needed) == rate
        assert rate_of_stake(TERMS, PAY, needed - 1) == max(0, rate - 1)
    assert stake_needed(TERMS, PAY, 10) == 4 * 48 * PAY  # M · guard · P
    assert stake_needed(TERMS, PAY, 0) == 6 * PAY  # M · P / h


def test_who_has_nothing_at_stake_is_replayed_in_every_round() -> None:
    assert rate_of_stake(TERMS, PAY, 0) == 0
    assert rate_of_stake(TERMS, 0, 0) == 10  # and who is paid nothing, as the guard has it


def test_what_is_at_stake_is_the_burnt_part_and_what_is_retained() -> None:
    assert at_loss(TERMS, 1001, 9) == 700 + 9
    assert at_loss(replace(TERMS, burnt_bps=10_000), 1001, 9) == 1010


def test_retention_ends_where_the_rate_cannot_fall_and_all_is_paid_from_there_on() -> None:
    burnt, steps = 96 * PAY, 2
    most = most_retained(burnt, steps)
    assert most == (192 - 96) * PAY
    assert most_retained(burnt, 0) == 0
    retained, rounds = 0, 0
    while part := retained_part(PAY, retained, most):
        retained, rounds = retained + part, rounds + 1
    assert (retained, rounds) == (most, 192)
    assert [steps_of(burnt, wei) for wei in (0, most - 1, most)] == [0, 1, 2]
    assert retained_part(PAY + 1, most - PAY, most) == PAY // 2  # rounded down
    assert retained_part(PAY, most - 3, most) == 3
    assert retained_part(PAY, most, most) == 0


def test_a_step_takes_root_two_times_the_stake_and_the_chance_times_the_stake_stays() -> None:
    for burnt in (41, 10**18 + 7, 96 * PAY):
        for steps in range(16):
            stake = stake_for(burnt, steps)
            assert stake**2 >= burnt**2 << steps
            wei = 2 << steps // 2  # by which rounding may raise it, and the root by 2^-31 of it
            assert (stake - wei) ** 2 <= (burnt**2 << steps) * Fraction(2**29 + 1, 2**29)
            assert steps_of(burnt, stake - burnt) == steps
            assert RATES[steps] * stake >= ALWAYS * burnt
    for rate in range(1, 11):  # and so the formula's stake for a rate is that of its steps
        needed = stake_needed(TERMS, PAY, rate)
        off = stake_for(stake_needed(TERMS, PAY, 1), rate - 1) - needed
        assert abs(off) <= needed // 10**8


def test_a_seat_comes_down_to_the_end_of_the_table_and_never_from_always() -> None:
    assert [rate_of_seat(rate, 3) for rate in (0, 1, 8, 13, 15)] == [0, 4, 11, 15, 15]
    assert rate_of_seat(8, 0) == 8


def ticket(seat: int) -> int:
    """As SPEC's H: the tag, the audit seed, the seat's eight; of it the seat's 32 bits."""
    plain = keccak(b"atoll.audit-rate.v1") + SEED + (seat // 8).to_bytes(32, "big")
    return int.from_bytes(keccak(plain)[seat % 8 * 4 :][:4], "big")


def test_a_seat_is_drawn_where_its_ticket_is_below_its_rate() -> None:
    for rate in (0, 3, 10):
        for seat in range(256):
            assert is_drawn(SEED, SeatIndex(seat), rate) == (ticket(seat) < RATES[rate])


def test_a_ticket_that_equals_the_rate_draws_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for seat in (0, 7, 8, 13, 255):
        monkeypatch.setattr(audit_rates, "RATES", (ticket(seat), ticket(seat) + 1))
        assert [is_drawn(SEED, SeatIndex(seat), rate) for rate in (0, 1)] == [False, True]


@pytest.mark.parametrize(
    ("chance", "rate"), [("1", 0), ("2", 0), ("0.5", 2), ("0.51", 1), ("0.03125", 10), ("0", 15)]
)
def test_a_chance_is_rounded_up_to_the_table(chance: str, rate: int) -> None:
    assert rate_of_chance(Fraction(chance)) == rate


@pytest.mark.parametrize(
    ("rounds", "seats", "rates", "mean", "most"),
    [
        (50, 8, (8, 8), 25, 25 + 6 * 6),
        (50, 8, (8, 0), Fraction(65, 2), 33 + 6 * 6),
        (50, 8, (0, 0), 400, 400),
        (500, 64, (10, 10), 1_000, 1_000 + 6 * 32),
        (1, 4, (15, 14), Fraction(1, 32), 4),
    ],
)
def test_an_escrow_holds_the_mean_of_draws_and_six_times_its_root(
    rounds: int, seats: int, rates: tuple[int, int], mean: Fraction, most: int
) -> None:
    usual, last = rates
    terms = make_terms(rounds=rounds, seats=seats, f=1, audit_rate=usual, last_rate=last)
    assert (mean_duties(terms), most_duties(terms)) == (mean, most)


def test_a_lie_pays_below_a_sixth_of_speaking_auditors() -> None:
    assert TERMS.least_speaking == Fraction(1, 6)
    assert replace(TERMS, margin=2).least_speaking == Fraction(1, 3)


def test_a_replay_is_paid_a_tenth_more_than_it_costs() -> None:
    assert replay_fee(10 * TOKEN) == 11 * TOKEN
    assert replay_fee(Fraction(1, 3)) == 1
    assert replay_fee(0) == 0


def test_a_signature_is_paid_what_fetching_merging_and_gas_cost() -> None:
    work = Readiness(updates=8, update_bytes=250 * 10**6, numbers=124 * 10**6)
    assert work.fetched == 2 * 10**9
    assert work.operations == 8 * 124 * 10**8
    compute = work.operations * 7 * TOKEN // 10**18
    assert signature_fee(work, UnitPrices(7 * TOKEN)) == compute
    assert signature_fee(work, UnitPrices(7 * TOKEN, terabyte=TOKEN)) == compute + TOKEN // 500
    gas = UnitPrices(7 * TOKEN, mega_gas=TOKEN)
    assert signature_fee(work, gas) == compute + 10 * TOKEN // 100
    assert signature_fee(work, UnitPrices(0)) == 1


VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "audit_rates.json").read_text())


@pytest.mark.parametrize("case", VECTORS["stakes"])
def test_a_vectors_stakes_are_what_fractions_say(case: dict[str, Any]) -> None:
    """The formula of the law, in fractions and roots of this file alone."""
    pay, table = int(case["pay"]), [int(rate) for rate in VECTORS["table"]]
    chances = [Fraction(rate, 2**32) for rate in table]
    needed = [case["margin"] * pay / (Fraction(2, 3) * chance) for chance in chances]
    assert case["needed"] == [str(ceil(each)) for each in needed]
    guarded = [at for at, chance in enumerate(chances) if 1 / (chance * 2 / 3) <= case["guard"]]
    lowest = max(guarded, default=0)
    assert case["lowest"] == lowest
    below = [max(0, min(at - 1, lowest)) for at in range(len(table))]
    assert case["ratesBelow"] == below


@pytest.mark.parametrize("case", VECTORS["retention"])
def test_a_vectors_claims_keep_a_half_until_it_is_enough(case: dict[str, Any]) -> None:
    bond, kept, steps = int(case["bond"]), 0, []
    needed = [int(each) for each in case["needed"]]
    for n, stake in enumerate(needed):  # within a wei of 2^-31 of it
        assert 0 <= stake**2 - (bond**2 << n) <= stake**2 >> 29
    most = needed[case["mostSteps"]] - bond
    for earned, part in zip(case["claims"], case["kept"], strict=True):
        assert int(part) == min(int(earned) // 2, most - kept)
        kept += int(part)
        steps.append(sum(stake <= bond + kept for stake in needed) - 1)
    assert case["steps"] == steps


@pytest.mark.parametrize("case", VECTORS["draws"])
def test_a_vectors_draw_is_what_keccak_says(case: dict[str, Any]) -> None:
    seed, drawn = bytes.fromhex(case["auditSeed"][2:]), 0
    for seat in range(256):
        rate = min(15, case["rate"] + case["steps"][seat]) if case["rate"] else 0
        number = (seat // 8).to_bytes(32, "big")
        ticket = keccak(keccak(b"atoll.audit-rate.v1") + seed + number)[seat % 8 * 4 :]
        is_revealed = int(case["revealed"], 16) >> seat & 1
        if is_revealed and int.from_bytes(ticket[:4], "big") < int(VECTORS["table"][rate]):
            drawn |= 1 << seat
    assert hex(drawn) == case["drawn"]
    assert drawn
