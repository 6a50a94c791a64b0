"""What an hour in a job costs a member, by numbers multiplied out here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.manifests import make_manifest, make_terms

from atoll.job.break_even import MemberPrices, break_even_of, round_gas
from atoll.job.feasibility import feasibility_of
from atoll.protocol.types import TOKEN, Role
from atoll.service.needs import Machine
from atoll.service.pace import Pace, earned_per_hour, round_lasts

MANIFEST = make_manifest()
TERMS = MANIFEST.terms
PACE = Pace(0.5, 0.25, 200_000, 200_000, 400_000)
NOTHING = MemberPrices(watts=0, gas_gwei=0, interest=0)


def test_who_pays_nothing_keeps_what_it_earns_and_breaks_even_at_a_wei() -> None:
    even = break_even_of(Role.PROVIDER, MANIFEST, PACE, NOTHING)
    earned = earned_per_hour(Role.PROVIDER, MANIFEST, PACE) / TOKEN
    assert even.net == even.earned == pytest.approx(earned)
    assert (even.costs, even.price_wei) == (0, 1)


def test_each_cost_is_its_own() -> None:
    seconds = round_lasts(Role.PROVIDER, MANIFEST, PACE)
    gas = 43_000 + 49_000 + 2_400 * TERMS.segments + 10_000
    assert round_gas(Role.PROVIDER, TERMS) == gas
    even = break_even_of(
        Role.PROVIDER,
        MANIFEST,
        PACE,
        MemberPrices(watts=1000, electricity=0.2, rent=3, gas_gwei=2, coin=100, interest=0.1),
    )
    assert even.rent == 3
    assert 0 < even.electricity < 0.2  # it works a part of the time
    assert even.gas == pytest.approx(gas * 2e-9 * 100 * 3600 / seconds)
    assert even.bond == pytest.approx(TERMS.provider_bond / TOKEN * 0.1 / 8766)
    assert even.locked == TERMS.provider_bond / TOKEN
    assert even.net == pytest.approx(even.earned - 3 - even.electricity - even.gas - even.bond
                                     - even.waiting)  # fmt: skip
    assert even.advance == pytest.approx((3 + even.electricity + even.gas)
                                         * even.wait_seconds / 3600)  # fmt: skip


@pytest.mark.parametrize("role", [Role.PROVIDER, Role.VERIFIER])
def test_at_the_price_of_break_even_nothing_is_left(role: Role) -> None:
    prices = MemberPrices(rent=0.5)
    even = break_even_of(role, MANIFEST, PACE, prices)
    assert even.price_wei is not None
    if role is Role.PROVIDER:
        changes = {"segment_pay": even.price_wei * TERMS.segment_tokens // 10**6}
    else:
        ratio = even.price_wei / TERMS.duty_fee
        changes = {"duty_fee": even.price_wei, "sign_fee": int(TERMS.sign_fee * ratio)}
    terms = make_terms(**changes)
    again = break_even_of(role, MANIFEST.model_copy(update={"terms": terms}), PACE, prices)
    assert again.net == pytest.approx(0, abs=1e-6)


def test_a_free_job_breaks_even_at_no_price() -> None:
    manifest = MANIFEST.model_copy(update={"terms": make_terms(segment_pay=0)})
    even = break_even_of(Role.PROVIDER, manifest, PACE, MemberPrices())
    assert even.price_wei is None
    assert "no price" in "\n".join(even.lines("provider"))


def test_a_token_that_is_worth_less_earns_less_and_costs_no_less() -> None:
    usual, half = (
        break_even_of(Role.PROVIDER, MANIFEST, PACE, replace(MemberPrices(), token=token))
        for token in (1.0, 0.5)
    )
    assert half.earned == pytest.approx(usual.earned / 2)
    assert half.electricity == usual.electricity
    assert (half.price_wei or 0) > (usual.price_wei or 0)


def test_it_stands_in_what_feasibility_says() -> None:
    machine = Machine(1 << 40, 1 << 40)
    dear = feasibility_of("provider", MANIFEST, PACE, machine, prices=MemberPrices(rent=9))
    text = "\n".join(dear.lines())
    assert "rent 9" in text
    assert f"breaks even at {dear.even.price_wei} wei for a million trained tokens" in text
    assert f"a bond of {TERMS.provider_bond / TOKEN:.6g} tokens" in text
    plain = dear.to_json_value()["even"]
    assert plain["price_wei"] == str(dear.even.price_wei)
    assert plain["net"] == pytest.approx(plain["earned"] - plain["costs"])
