"""A network whose token has six decimals: a job file is the same, and amounts are in its units."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest
from tests.support.jobs import PLAIN
from tests.support.manifests import make_terms
from tests.unit.job.plans import PACE
from tests.unit.job.test_spec import DATA, NOW, NUMERICS

from atoll.chain.default_params import BASE, default_params
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.errors import ConfigError
from atoll.job.draft import PreparedParts, write_draft
from atoll.job.event_text import coin, tokens
from atoll.job.groups import units_text, wei_of
from atoll.job.incentives import Incentives
from atoll.job.plan import BondFloors, complete, priced
from atoll.job.presets import PRESETS, preset
from atoll.job.spec import JobSpec
from atoll.protocol.pay import budget
from atoll.protocol.terms import check_terms
from atoll.protocol.token_units import use_decimals
from atoll.protocol.types import TOKEN, Address, Role, Terms
from atoll.service.config import PolicySection
from atoll.service.pace import million_pay
from atoll.service.policy import terms_refusal

SIX = 6
FLOORS = BondFloors.of(default_params(BASE, SIX), SIX)


@pytest.fixture
def six_decimals() -> Iterator[None]:
    use_decimals(SIX)
    yield
    use_decimals(18)


def terms_of(spec: JobSpec) -> Terms:
    data = DATA.model_copy(update={"dtype": "uint16"})
    return spec.resolve(data, None, NUMERICS, NOW, decimals=SIX).terms


def test_a_hundredth_of_a_token_pays_for_a_million() -> None:
    """A segment of 2,560 tokens is 25.6 units then, which are rounded up; a token has no price."""
    spec, _ = complete(preset("nano").but({"money.price_per_million": "0.01"}), PACE, FLOORS)
    terms = terms_of(spec)
    assert terms.segment_tokens == 20_480
    assert terms.segment_pay == 205  # of 204.8
    assert million_pay(terms) == pytest.approx(10_000, rel=0.001)
    assert terms.duty_fee == -(-terms.segments * 205 * 11 // 10)
    assert terms.sign_fee > 0
    check_terms(terms)


@pytest.mark.parametrize("name", [name for name in PRESETS if PRESETS[name].model])
def test_every_preset_can_be_paid_in_it_and_deters_as_much(name: str) -> None:
    data = DATA.model_copy(update={"dtype": "uint16"})
    usual, _ = complete(PRESETS[name], PACE, BondFloors.of(default_params(BASE), 18))
    dollars = budget(usual.resolve(data, None, NUMERICS, NOW).terms) / TOKEN
    terms = terms_of(complete(PRESETS[name], PACE, FLOORS)[0])
    assert terms.provider_bond >= FLOORS.provider_bond // 10**12 == 10**SIX
    assert budget(terms) / 10**SIX == pytest.approx(dollars, rel=0.01)
    deters = Incentives.of(terms, default_params(BASE).winner_share_bps)
    assert deters.bears > 3 * terms.segments * terms.segment_pay


@pytest.mark.parametrize("money", [{"budget": "2"}, {"budget": "0.2", "sign_fee": "0.000001"}])
def test_a_budget_is_not_exceeded_by_what_is_rounded(money: dict[str, str]) -> None:
    changes = {f"money.{name}": text for name, text in money.items()}
    spec, _ = priced(preset("nano").but(changes), FLOORS)
    spec, _ = complete(spec, PACE, FLOORS)
    allowed = Fraction(money["budget"]) * 10**SIX
    assert 0.97 * allowed < budget(terms_of(spec)) <= allowed


async def test_what_is_written_finer_than_its_units_is_refused() -> None:
    fine = PLAIN.but({"money.duty_fee": "0.0000015"})
    with pytest.raises(ConfigError, match=r"money\.duty_fee is finer .* has 6 decimals"):
        await write_draft("", fine, PreparedParts(DATA, None, NUMERICS), NOW, FLOORS, ask=None)
    written = terms_of(PLAIN.but({"money.duty_fee": "0.000001"}))
    assert (written.duty_fee, written.provider_bond) == (1, 100 * 10**SIX)


async def test_a_budget_below_what_is_written_is_refused() -> None:
    price = budget(terms_of(PLAIN)) * 10**12
    parts = PreparedParts(DATA, None, NUMERICS)
    draft = await write_draft("", PLAIN.but({"money.budget": price}), parts, NOW, FLOORS, ask=None)
    assert budget(draft.manifest.terms) * 10**12 == price
    with pytest.raises(ConfigError, match=r"money\.budget is"):
        await write_draft("", PLAIN.but({"money.budget": price - 1}), parts, NOW, FLOORS, ask=None)


def test_a_deployment_says_the_decimals_of_its_token() -> None:
    addresses = dict.fromkeys(REQUIRED, Address("0x" + "00" * 19 + "01"))
    made = Deployment(1, 7, addresses, decimals=SIX)
    assert Deployment.from_json(made.to_json()) == made
    assert Deployment.from_json(Deployment(1, 7, addresses).to_json()).decimals == 18
    for few in (0, 5, 19):
        with pytest.raises(ConfigError, match=f"a token of {few} decimals"):
            Deployment.from_json(made.to_json().replace('"decimals": 6', f'"decimals": {few}'))


@pytest.mark.usefixtures("six_decimals")
def test_amounts_are_read_and_written_in_its_units() -> None:
    assert (wei_of("25"), wei_of("0.01"), wei_of(7)) == (25_000_000, 10_000, 7)
    with pytest.raises(ConfigError, match="tokens have 6 places"):
        wei_of("0.0000001")
    assert (tokens(1_234_500_000), units_text(1)) == ("1,234.5", "0.000001")
    assert coin(TOKEN // 2) == "0.5"
    refusal = terms_refusal(
        PolicySection(largest_bond=99), make_terms(provider_bond=100 * 10**SIX), Role.PROVIDER, 0
    )
    assert refusal == "its bond is 100 tokens, and policy.largest_bond is 99"
