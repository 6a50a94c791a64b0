"""What is excluded from a job follows from measurements, and what is written stays."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.support.jobs import PLAIN
from tests.support.manifests import make_terms
from tests.unit.job.test_spec import DATA, NOW, NUMERICS

from atoll.chain.default_params import BASE, default_params
from atoll.errors import ConfigError, ManifestError
from atoll.job.compute_prices import token_operations, usual_flop_price
from atoll.job.draft import Draft, PreparedParts, write_draft
from atoll.job.incentives import COLLUDING, Incentives
from atoll.job.plan import (
    CLOCK,
    DAY,
    BondFloors,
    Pace,
    complete,
    drawn_seats,
    filled,
    sum_of_windows,
)
from atoll.job.presets import PRESETS, preset
from atoll.job.quote import quote
from atoll.job.quote_report import report
from atoll.job.quote_warnings import _replayed
from atoll.job.spec import JobSpec
from atoll.job.verification import chance_text, expected_fees
from atoll.protocol.audit_rates import ALWAYS, RATES, rate_of_chance
from atoll.protocol.certificates import is_enough
from atoll.protocol.pay import budget
from atoll.protocol.terms import check_terms, clock_floors
from atoll.protocol.types import TOKEN, Params, Terms
from atoll.service.pace import EVALUATED_PART, most_drawn
from atoll.train.corpus.options import PUBLIC_NOTICE

PACE = Pace(
    step_seconds=2.0,
    segment_seconds=0.5,
    parameters=10_000_000,
    timed_parameters=10_000_000,
    update_bytes=10_000_000,
    kept=0.99,
)
NANO = preset("nano").but({"audit.rate": "0.5"})
LEFT_OUT: dict[str, object] = {"audit.rate": None}
"""Of audits, where the least is to be computed."""


def completed(changes: dict[str, object], pace: Pace = PACE) -> JobSpec:
    return complete(NANO.but(changes), pace)[0]


def resolved(spec: JobSpec) -> Terms:
    return spec.resolve(DATA, None, NUMERICS, NOW).terms


def cost(spec: JobSpec) -> int:
    return budget(resolved(spec))


@pytest.mark.parametrize("name", [name for name in PRESETS if PRESETS[name].model])
def test_nothing_is_excluded_of_a_completed_job(name: str) -> None:
    spec, figures = complete(PRESETS[name], PACE)
    assert spec.left_out() == []
    assert {figure.path for figure in figures} == set(PRESETS[name].left_out())
    assert all(figure.reason and figure.text for figure in figures)


def test_what_is_written_is_never_changed() -> None:
    assert complete(PLAIN, PACE) == (PLAIN, ())
    spec = completed({"windows.train": 77, "money.provider_bond": 500, "windows.move": 9})
    assert (spec.windows.train, spec.money.provider_bond, spec.windows.move) == (77, 500, 9)


def test_the_training_window_holds_the_slowest_member_s_round() -> None:
    spec = completed({"windows.slower": 3, "windows.megabits": 20})
    slowest = 3 * (50 * 2.0 + 10 * 0.5) + 4 * PACE.parameters / (20 * 125_000)
    assert spec.windows.train is not None
    assert slowest + CLOCK <= spec.windows.train < slowest + CLOCK + 60


def test_seconds_of_a_step_that_are_written_take_the_place_of_measured_ones() -> None:
    fast, slow = (completed({"windows.step_seconds": seconds}) for seconds in ("0.01", "10"))
    assert (fast.windows.train or 0) < (slow.windows.train or 0)
    assert (slow.windows.train or 0) >= 50 * 10


def test_a_slower_line_makes_longer_merges() -> None:
    narrow, wide = (completed({"windows.megabits": line}) for line in (1, 1000))
    assert (narrow.windows.merge or 0) > 2 * (wide.windows.merge or 0)
    assert (narrow.windows.ready or 0) > (wide.windows.ready or 0) + 300


def test_an_audit_holds_every_duty_of_the_fewest_verifiers() -> None:
    alone, three = (completed({"members.min_verifiers": n, "members.seats": 6}) for n in (1, 3))
    train = (alone.windows.train or 0) - CLOCK
    duties = drawn_seats(alone)
    assert (duties, drawn_seats(three)) == (6, 6)  # half of the seats, and by chance all
    assert (alone.windows.audit or 0) > duties * (train - 60)
    assert (three.windows.audit or 0) > 2 * (train - 60)
    assert (alone.windows.audit or 0) > 1.8 * (three.windows.audit or 0)


def test_a_round_draws_more_than_its_window_has_room_for_once_in_a_million() -> None:
    assert most_drawn(8, rate_of_chance(Fraction(1, 16)), 0) == 6
    assert most_drawn(64, rate_of_chance(Fraction(1, 32)), 0) == 11
    assert most_drawn(64, rate_of_chance(Fraction(1, 32)), 21) == 12  # who was excluded
    assert most_drawn(4, 0, 1) == 4


def test_a_dispute_has_time_for_a_replay_on_either_side() -> None:
    spec = completed({})
    windows = spec.windows
    assert (windows.game or 0) >= (windows.train or 0) - 2 * CLOCK
    assert (windows.window or 0) >= 2 * (windows.game or 0)


@pytest.mark.parametrize("segment", [5, 50])
def test_a_dispute_has_time_for_the_segment_twice_and_for_a_trace(segment: int) -> None:
    """Who trained has nothing of the round any more but its opening."""
    spec = completed({"windows.step_seconds": "10", "inner.segment": segment})
    assert spec.inner.steps == 50
    assert (spec.windows.game or 0) >= 10 * (50 + segment + 18) + 10 * CLOCK


def test_a_budget_sets_the_price_and_is_not_exceeded() -> None:
    spec = completed({"money.budget": 25 * TOKEN})
    assert 0.999 * 25 * TOKEN < cost(spec) <= 25 * TOKEN
    fees = {"money.duty_fee": TOKEN // 100, "money.sign_fee": TOKEN // 1000}
    fixed = completed({"money.budget": 25 * TOKEN, **fees})
    assert 0.999 * 25 * TOKEN < cost(fixed) <= 25 * TOKEN
    assert fixed.money.duty_fee == TOKEN // 100


@pytest.mark.parametrize("changes", [{}, {"money.duty_fee": TOKEN}])
def test_a_budget_that_is_too_small_is_refused_with_numbers(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"leaves no unit .* each of [0-9,]+ seg") as caught:
        completed({"money.budget": 100, **changes})
    assert caught.value.next_step


async def test_a_written_price_above_the_budget_is_refused() -> None:
    price = cost(PLAIN)
    found = PreparedParts(DATA, None, NUMERICS)
    enough = PLAIN.but({"money.budget": price})
    draft = await write_draft("", enough, found, NOW, BondFloors(), ask=None)
    assert budget(draft.manifest.terms) == price
    short = PLAIN.but({"money.budget": price - 1})
    with pytest.raises(ConfigError, match=r"money\.budget is .* money\.price_per_mill") as caught:
        await write_draft("", short, found, NOW, BondFloors(), ask=None)
    assert "money.budget" in caught.value.next_step


def test_a_fee_pays_for_a_replay_and_a_tenth_more() -> None:
    terms = completed({}).resolve(DATA, None, NUMERICS, NOW).terms
    a_round = terms.segments * terms.segment_pay
    assert terms.duty_fee == -(-a_round * 11 // 10)
    assert 0 < terms.sign_fee < terms.duty_fee / 10


def test_a_signature_is_paid_for_what_is_fetched_and_merged_and_for_gas() -> None:
    few, many, gas = (
        completed({"members.seats": seats, "money.gas_price": price}).money.sign_fee or 0
        for seats, price in ((4, 0), (8, 0), (4, TOKEN))
    )
    assert many == pytest.approx(2 * few, rel=0.001)
    assert gas == few + TOKEN // 10


def test_a_token_is_priced_by_the_model_s_work() -> None:
    """A model of a hundred times the work costs a hundred times as much; a price is never moved."""
    small, large = (complete(PRESETS[name], PACE)[0] for name in ("nano", "llama-1b"))
    prices = [spec.money.price_per_million or 0 for spec in (small, large)]
    counts = [token_operations(spec.model, None) for spec in (small, large) if spec.model]
    assert prices[1] / prices[0] == pytest.approx(counts[1] / counts[0], rel=1e-6)
    doubled = completed({"money.flop_price": 2 * usual_flop_price()})
    assert doubled.money.price_per_million == pytest.approx(2 * prices[0], rel=1e-6)
    written = completed({"money.flop_price": 2 * usual_flop_price(), "money.price_per_million": 7})
    assert written.money.price_per_million == 7


def rate_of(changes: dict[str, object]) -> int:
    return resolved(completed(LEFT_OUT | changes)).audit_rate


def test_audits_are_the_least_that_the_guard_allows_or_what_a_budget_pays_for() -> None:
    for changes, rate in (
        ({"rounds": 500}, 10),  # one in 32, within 48 rounds, two thirds of the auditors speaking
        ({"rounds": 200}, 9),  # whose bond is 194 rounds' pay
        ({"rounds": 50}, 8),  # a newcomer's: its bond is more than the whole job pays
        ({"rounds": 500, "audit.guard": 10}, 5),
        ({"audit.guard": 1}, 0),
        ({"rounds": 500, "audit.margin": 8}, 9),
        ({"audit.budget": "0.2"}, 8),
        ({"audit.budget": "0.055", "rounds": 500, "members.slots": 1}, 9),
        ({"audit.budget": "0.001"}, 10),
    ):
        assert rate_of({"members.seats": 64, "members.min_verifiers": 1} | changes) == rate
    assert completed(LEFT_OUT | {"rounds": 50}).audit.rate == "0.0625"


def test_a_budget_that_no_rate_keeps_is_said() -> None:
    for budget_, is_said in (("0.01", True), ("0.5", False), (None, False)):
        warned = warnings_of(LEFT_OUT | {"members.seats": 8, "rounds": 50, "audit.budget": budget_})
        text = f"audit.budget is {budget_} of the training's price, and verification costs 0."
        assert (text in warned) == is_said


def test_a_rate_is_written_so_that_it_is_the_same_rate_s() -> None:
    assert [rate_of_chance(Fraction(chance_text(rate))) for rate in range(16)] == list(range(16))
    assert [chance_text(rate) for rate in (0, 1, 2, 15)] == ["1", "0.707106", "0.5", "0.005524"]


@pytest.mark.parametrize("name", ["gpt2-small", "llama-1b"])
@pytest.mark.parametrize(("seats", "rounds", "most"), [(8, 50, "0.1"), (64, 500, "0.05")])
def test_verification_is_a_tenth_of_the_training_at_most_and_of_large_jobs_a_twentieth(
    name: str, seats: int, rounds: int, most: str
) -> None:
    job = PRESETS[name].but({"members.seats": seats, "rounds": rounds})
    spec, _ = complete(job, PACE, BondFloors(winner_share_bps=3000))
    data = DATA.model_copy(update={"dtype": "uint16"})
    terms = spec.resolve(data, None, NUMERICS, NOW).terms
    trained = terms.rounds * terms.seats * terms.segments * terms.segment_pay
    assert expected_fees(terms) <= Fraction(most) * trained
    assert Incentives.of(terms, 3000).bears > 3 * terms.segments * terms.segment_pay


def test_of_what_the_demo_pays_most_trained() -> None:
    spec, _ = complete(PRESETS["demo"], PACE)
    terms = spec.resolve(DATA, None, NUMERICS, NOW).terms
    trained = terms.rounds * terms.seats * terms.segments * terms.segment_pay
    assert expected_fees(terms) < trained


def test_what_an_honest_job_spends_is_counted_duty_by_duty() -> None:
    terms = make_terms(rounds=3, seats=4, slots=5, f=1, audit_rate=2, last_rate=0)
    duties = 2 * 2 + 4  # half of four seats, and in the last round all
    assert expected_fees(terms) == duties * terms.duty_fee + 4 * 5 * terms.sign_fee
    all_ = replace(terms, f=0)
    assert expected_fees(all_) == 3 * 4 * terms.duty_fee + 4 * 5 * terms.sign_fee


@pytest.mark.parametrize("rate", [4, 2, 0])
@pytest.mark.parametrize("winner", [0, 3000])
def test_a_false_round_costs_more_than_three_rounds_pay(rate: int, winner: int) -> None:
    """While a third of the pool looks away, and where the winner is the cheat's other account."""
    said = {"audit.rate": chance_text(rate)}
    spec, _ = complete(NANO.but(said), PACE, BondFloors(winner_share_bps=winner))
    terms = spec.resolve(DATA, None, NUMERICS, NOW).terms
    deters, pay = Incentives.of(terms, winner), terms.segments * terms.segment_pay
    assert deters.chance == Fraction(RATES[rate], ALWAYS) * (1 - COLLUDING)
    assert deters.burnt == terms.provider_bond * (10_000 - winner) // 10_000
    for worth in (0, 3 * pay):  # less work, and a false model that somebody pays for
        assert pay + (1 - deters.chance) * worth <= deters.chance * (pay + deters.burnt)
    assert deters.bears > 3 * pay
    assert deters.cheat_cost == terms.f * deters.chance * deters.burnt // 1 >= 4 * pay
    assert deters.least_speaking < Fraction(1, 6)  # two thirds over the margin
    dearer, _ = complete(
        NANO.but(said | {"audit.margin": 8}),
        PACE,
        BondFloors(winner_share_bps=winner),
    )
    assert (dearer.money.provider_bond or 0) == pytest.approx(2 * terms.provider_bond, rel=0.2)


def test_bonds_are_at_least_the_network_s() -> None:
    spec, _ = complete(NANO, PACE, BondFloors(10**24, 10**25))
    assert (spec.money.provider_bond, spec.money.verifier_bond) == (10**24, 10**25)


def test_clocks_are_at_least_the_networks() -> None:
    net = default_params(BASE)
    spec, figures = complete(NANO, PACE, BondFloors.of(net, 18))
    terms = spec.resolve(DATA, None, NUMERICS, NOW).terms
    assert all(getattr(terms, name) >= least for name, least in clock_floors(net).items())
    assert (terms.game_seconds, terms.window_seconds) == (12 * 3_600, 24 * 3_600)
    (why,) = (figure.reason for figure in figures if figure.path == "windows.game")
    assert "the chain may take no transaction for so long" in why
    look = quote(drafted(spec, net), PACE, fee_cap=1)
    assert look.pay_final_seconds > 24 * 3_600  # `job check` says when pay is final
    assert not any("such a network takes" in warning for warning in look.warnings)


@pytest.mark.parametrize("path", ["windows.game", "windows.move", "windows.reveal"])
def test_clocks_below_a_networks_are_warned_of(path: str) -> None:
    net = default_params(BASE)
    spec, _ = complete(NANO.but({path: 30}), PACE, BondFloors.of(net, 18))
    look = quote(drafted(spec, net), PACE, fee_cap=1)
    (warning,) = (text for text in look.warnings if "such a network takes" in text)
    assert f"{path} no less than " in warning and "(it is 30s)" in warning


def drafted(spec: JobSpec, net: Params) -> Draft:
    manifest = spec.resolve(DATA, None, NUMERICS, NOW)
    return Draft("key", spec, manifest, (), PACE, floors=BondFloors.of(net, 18))


def test_the_lifetime_holds_every_round_at_its_longest() -> None:
    spec = completed({})
    assert (spec.lifetime or 0) >= spec.rounds * sum_of_windows(spec) + DAY


@pytest.mark.parametrize("name", [name for name in PRESETS if PRESETS[name].model])
def test_a_completed_job_is_one_that_the_contract_takes(name: str) -> None:
    spec, _ = complete(PRESETS[name], PACE)
    data = DATA.model_copy(update={"dtype": "uint16"})
    check_terms(spec.resolve(data, None, NUMERICS, NOW).terms)


def test_methods_of_one_round_or_of_reset_periods_are_priced_as_such() -> None:
    once = completed({"method.name": "lo_fi", "money.budget": TOKEN})
    assert 0.99 * TOKEN < cost(once) <= TOKEN
    for method in ("streaming", "demo"):
        in_reset_periods = completed({"method.name": method, "rounds": 100, "money.budget": TOKEN})
        assert 0.99 * TOKEN < cost(in_reset_periods) <= TOKEN


@pytest.mark.parametrize(
    ("method", "forced"),
    [("demo", {"inner.steps": 1, "inner.segment": 1}), ("lo_fi", {"rounds": 1})],
)
def test_what_a_method_forces_is_what_figures_are_of(
    method: str, forced: dict[str, object]
) -> None:
    """Whatever the file says there: presets say fifty steps a round, in segments of five."""
    job = NANO.but({"method.name": method, "rounds": 100, "money.budget": TOKEN})
    assert complete(job, PACE)[1] == complete(job.but(forced), PACE)[1]


def test_a_duty_of_a_reset_period_is_paid_and_waited_for_as_long_as_its_replays() -> None:
    plain = completed({"method.reset_period": 4})  # of a method whose reset periods are one round
    streamed = completed({"method.name": "streaming", "method.reset_period": 4, "rounds": 8})
    alone = completed({"method.name": "streaming", "method.reset_period": 1, "rounds": 8})
    assert plain.windows.audit == completed({}).windows.audit
    assert streamed.windows.audit > 3 * alone.windows.audit
    assert streamed.windows.window > alone.windows.window
    fees = [float(each.money.duty_fee or 0) for each in (streamed, alone)]
    assert fees[0] > 2 * fees[1]  # five halves of the work, and gas


def test_a_quote_agrees_with_the_manifest() -> None:
    spec, figures = complete(NANO, PACE)
    draft = Draft("key", spec, spec.resolve(DATA, None, NUMERICS, NOW), figures, PACE)
    look = quote(draft, PACE, fee_cap=10**9)
    assert look.budget_wei == cost(spec) == look.training_wei + look.fees_wei
    assert look.gas_wei == look.gas * 10**9
    assert 0 < look.seconds_expected < look.seconds_at_most
    assert [role.name for role in look.roles] == ["submitter", "provider", "verifier"]
    assert all(min(r.down, r.up, r.memory, r.disk) > 0 for r in look.roles)
    text = report(draft, look)
    assert "windows.train" in text
    assert PUBLIC_NOTICE in text
    noted = replace(draft, notes=("half of it is unknown",))
    assert "warning: half of it is unknown" in report(noted, quote(noted, PACE, fee_cap=1))


def test_a_quote_says_what_is_left_of_an_update_and_warns_where_it_is_little() -> None:
    spec, figures = complete(NANO, PACE)
    draft = Draft("key", spec, spec.resolve(DATA, None, NUMERICS, NOW), figures, PACE)
    for kept, warned in ((0.8, False), (0.79, True), (0.0, True)):
        look = quote(draft, replace(PACE, kept=kept), fee_cap=1)
        assert look.kept_share == kept
        assert any("squared length" in warning for warning in look.warnings) == warned
        assert f"updates    {kept:.0%} of a first one's squared length" in report(draft, look)
    unasked = quote(draft, replace(PACE, kept=None), fee_cap=1)
    assert "squared length" not in report(draft, unasked)


def test_a_quote_says_when_pay_and_result_are_final() -> None:
    draft = Draft("key", PLAIN, PLAIN.resolve(DATA, None, NUMERICS, NOW), (), PACE)
    look = quote(draft, PACE, fee_cap=1)
    # audit, open, key, window; 4 seats audited by 2 verifiers take 2 audits
    assert look.pay_final_seconds == 100 + 30 + 30 + 400
    assert look.result_final_seconds == 2 * 100 + 30 + 30 + 400
    text = report(draft, look)
    assert "1m to train, 30s to reveal, 40s to merge at most" in text
    assert "9m20s after a round is settled its pay, 11m after the last one the result" in text
    assert "2m30s of each side and 5s a move: 8m20s at most for one" in text


def warnings_of(changes: dict[str, object]) -> str:
    spec = completed(changes)
    draft = Draft("key", spec, spec.resolve(DATA, None, NUMERICS, NOW), (), PACE)
    return "\n".join(quote(draft, PACE, 1).warnings)


def test_a_window_or_a_lifetime_that_this_machine_does_not_keep_is_said() -> None:
    trains = 50 * 2 + 10 * 0.5
    lasts = 8 * (trains + 2 + 4 * 12)  # with merges and blocks
    replays = 2 * trains  # of 4 seats, by chance, each of 2 verifiers
    enoughs = (("windows.train", trains), ("windows.audit", replays), ("lifetime", lasts))
    for path, enough in enoughs:
        assert f"{path} is " in warnings_of({path: int(enough) - 1})
        assert f"{path} is " not in warnings_of({path: int(enough)})
        assert f"{path} is " not in warnings_of({})


def test_who_can_keep_a_small_committee_from_signing_is_trusted_to_be_there() -> None:
    for members in range(1, 33):
        is_said = f"it can begin with {members} of" in warnings_of(
            {"members.slots": 32, "members.min_verifiers": members}
        )
        assert is_said != is_enough(members - 2, members)


def simulated(reset_period: int, verifiers: int) -> float:
    """Rounds run for a duty, where one of so many audits a seat in each round of many reset
    periods.
    """
    draw, ran, duties = random.Random(0), 0, 0
    for _ in range(4_000):
        kept = [0] * verifiers
        for done in range(1, reset_period + 1):
            auditor = draw.randrange(verifiers)
            ran, duties = ran + done - kept[auditor], duties + 1
            kept[auditor] = done
    return ran / duties


@pytest.mark.parametrize(("reset_period", "verifiers"), [(64, 10), (64, 100), (8, 4), (1, 3)])
def test_who_audits_a_seat_again_goes_on_from_there(reset_period: int, verifiers: int) -> None:
    assert _replayed(reset_period, 1 / verifiers) == pytest.approx(
        simulated(reset_period, verifiers), rel=0.02
    )


def test_verifiers_that_fall_behind_from_round_to_round_are_said() -> None:
    """32 seats of 2.5 s each are more than a round of 67 s has for one who replays all of them."""
    many = {"members.seats": 32, "members.slots": 40, "rounds": 10_000}
    steps = many | {"method.name": "demo"}
    assert "fewer than 10 verifiers fall behind" in warnings_of(steps)
    assert "fall behind" in warnings_of(steps | {"members.min_verifiers": 11})  # a shorter window
    assert "fall behind" not in warnings_of(steps | {"members.min_verifiers": 12})
    # One machine keeps up with half of the seats; what waits at the end fits into its window.
    for less in ({"members.seats": 16}, {"method.reset_period": 1}, {"rounds": 16}):
        assert "fall behind" not in warnings_of(steps | less)
    assert "fewer than 10 verifiers fall behind" in warnings_of(many)


def test_bonds_that_deter_nobody_are_said() -> None:
    spec = completed({})
    assert "deter nobody" not in warnings_of({})
    weak = {"money.provider_bond": (spec.money.provider_bond or 0) // 1000}
    assert "leaving out a round's work saves up to" in warnings_of(weak)
    manifest = spec.resolve(DATA, None, NUMERICS, NOW)
    draft = Draft("key", spec, manifest, (), PACE, floors=BondFloors(winner_share_bps=10_000))
    look = quote(draft, PACE, 1)
    assert look.deterred_wei < 0 == look.cheat_cost_wei  # who wins takes all, and may be the cheat
    assert "\ndeters" not in report(draft, look)


def test_a_report_says_what_bonds_deter_and_what_permanent_cheats_pay() -> None:
    spec = completed({})
    draft = Draft("key", spec, spec.resolve(DATA, None, NUMERICS, NOW), (), PACE)
    text = report(draft, quote(draft, PACE, 1))
    assert "deters     a false round is found with" in text
    assert "cheating   a seat that lies in every round lasts 3 rounds; 1 permanent cheat" in text
    assert "docs/attacks.md" in text


def test_a_quote_says_whom_so_few_members_trust() -> None:
    many = {"members.seats": 16, "members.slots": 20, "members.min_verifiers": 6}
    assert warnings_of(many) == ""
    assert "one seat can move the model" in warnings_of(many | {"members.seats": 3})
    assert "one seat can move the model" in warnings_of(many | {"method.codec": "fp32"})
    for method in ("sparseloco", "demo"):
        assert "one seat can move the model" in warnings_of(many | {"method.name": method})


def test_rounds_that_no_network_takes_are_refused_in_numbers() -> None:
    spec, _ = complete(NANO, replace(PACE, step_seconds=40_000.0))
    with pytest.raises(ManifestError, match=r"windows of [0-9]+ s, above 5184000"):
        spec.resolve(DATA, None, NUMERICS, NOW)


@pytest.mark.parametrize("name", ["nano", "gpt2-small", "llama-1b"])
def test_a_job_can_be_timed_before_anything_is_computed(name: str) -> None:
    data = DATA.model_copy(update={"dtype": "uint16"})
    for changes in ({}, {"windows.game": 900}, {"windows.window": 7}):
        filled(PRESETS[name].but(changes)).resolve(data, None, NUMERICS, NOW)


def test_who_bears_nobody_audits_everybody() -> None:
    for changes in ({"members.seats": 3}, {"method.codec": "fp32"}):
        spec = completed({"money.budget": TOKEN, **changes})
        assert drawn_seats(spec) == spec.members.seats
        assert 0.99 * TOKEN < cost(spec) <= TOKEN


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"windows.move": 59}, "move window 59 s < 60 s"),
        ({"windows.game": 599}, "game window 599 s < 600 s"),
        ({"money.duty_fee": 0}, "pays 0 wei a replay"),
        ({"lifetime": "1800d"}, "may lock bonds for 1800."),
    ],
)
def test_what_members_refuse_by_themselves_is_said_before_it_is_paid_for(
    changes: dict[str, object], why: str
) -> None:
    assert "members refuse such a job by themselves" not in warnings_of({})
    assert f"members refuse such a job by themselves: {why}" in warnings_of(changes)


def test_the_loss_of_many_batches_has_its_time_in_the_merge() -> None:
    """Which a submitter chooses, and a verifier's machine pays for."""
    few, many = (completed({"evaluate.batches": count}) for count in (0, 1000))
    added = 1000 * EVALUATED_PART * 3 * PACE.step_seconds
    assert (many.windows.merge or 0) - (few.windows.merge or 0) >= added
