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

from atoll.protocol.audit_fees import Readiness, UnitPrices, replay_fee, signature_fee
from atoll.protocol.audit_rates import (
    ALWAYS,
    RATES,
    Incentive,
    at_loss,
    draw_by_rates,
    is_drawn,
    lowest_rate,
    mean_duties,
    most_duties,
    most_retained,
    pack_rates,
    packed_rate,
    rate_of_chance,
    rate_of_stake,
    retained_part,
    season,
    stake_needed,
)
from atoll.protocol.types import TOKEN, Bitmap, SeatIndex, to_bitmap

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
    bond = 100 * PAY
    most = most_retained(TERMS, PAY, bond)
    assert most == (192 - 70) * PAY
    assert most_retained(TERMS, PAY, 1000 * PAY) == 0
    retained, rounds = 0, 0
    while part := retained_part(TERMS, PAY, retained, most):
        retained, rounds = retained + part, rounds + 1
    assert (retained, rounds) == (most, 244)
    assert season(TERMS, PAY, bond, most) == lowest_rate(TERMS)
    assert season(TERMS, PAY, bond, most - 1) == lowest_rate(TERMS) - 1
    assert retained_part(TERMS, PAY + 1, most - PAY, most) == PAY // 2  # rounded down
    assert retained_part(TERMS, PAY, most - 3, most) == 3
    assert retained_part(TERMS, PAY, most + 3, most) == 0


def test_rates_lie_64_to_a_word_and_come_back() -> None:
    rates = {SeatIndex(0): 1, SeatIndex(63): 15, SeatIndex(64): 7, SeatIndex(255): 10}
    words = pack_rates(rates)
    assert words == (1 | 15 << 252, 7, 0, 10 << 252)
    for seat in range(256):
        assert packed_rate(words, SeatIndex(seat)) == rates.get(SeatIndex(seat), 0)
    with pytest.raises(ValueError, match="16 is no entry"):
        pack_rates({SeatIndex(3): 16})


def ticket(seat: int) -> int:
    """As SPEC's H: the tag, the audit seed, the seat's eight; of it the seat's 32 bits."""
    plain = keccak(b"atoll.audit-rate.v1") + SEED + (seat // 8).to_bytes(32, "big")
    return int.from_bytes(keccak(plain)[seat % 8 * 4 :][:4], "big")


def test_a_seat_is_drawn_where_its_ticket_is_below_its_rate() -> None:
    for rate in (0, 3, 10):
        for seat in range(256):
            assert is_drawn(SEED, SeatIndex(seat), rate) == (ticket(seat) < RATES[rate])
    everybody = Bitmap((1 << 256) - 1)
    assert draw_by_rates(SEED, everybody, pack_rates({})) == everybody
    rates = pack_rates({SeatIndex(seat): seat % 16 for seat in range(256)})
    expected = [seat for seat in range(256) if ticket(seat) < RATES[seat % 16]]
    assert draw_by_rates(SEED, everybody, rates) == to_bitmap(expected)
    assert draw_by_rates(SEED, Bitmap(0), rates) == 0


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
    burnt = int(case["bond"]) * case["burntBps"] // 10_000
    most = max(0, ceil(needed[lowest]) - burnt) if lowest else 0
    assert int(case["most"]) == most
    kept = min(pay * case["retainedBps"] // 10_000, most - int(case["retained"]))
    assert int(case["kept"]) == max(0, kept)


@pytest.mark.parametrize("case", VECTORS["draws"])
def test_a_vectors_draw_is_what_keccak_says(case: dict[str, Any]) -> None:
    seed, words = bytes.fromhex(case["auditSeed"][2:]), [int(w, 16) for w in case["rates"]]
    drawn = 0
    for seat in range(256):
        rate = words[seat // 64] >> 4 * (seat % 64) & 15
        number = (seat // 8).to_bytes(32, "big")
        ticket = keccak(keccak(b"atoll.audit-rate.v1") + seed + number)[seat % 8 * 4 :]
        is_revealed = int(case["revealed"], 16) >> seat & 1
        if is_revealed and int.from_bytes(ticket[:4], "big") < int(VECTORS["table"][rate]):
            drawn |= 1 << seat
    assert hex(drawn) == case["drawn"]
    assert drawn
