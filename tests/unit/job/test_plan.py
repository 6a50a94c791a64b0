"""What is left out of a job follows from measurements, and what is written stays."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil

import pytest
from atoll.law.sampling import detection_probability
from tests.jobs import PLAIN
from tests.unit.job.test_spec import DATA, NOW, NUMERICS

from atoll.errors import ConfigError
from atoll.job.draft import Draft
from atoll.job.outlook import outlook, report
from atoll.job.plan import CLOCK, Floors, Pace, complete, replayed_steps, sum_of_windows
from atoll.job.presets import PRESETS, preset
from atoll.job.spec import JobSpec
from atoll.law.terms import budget
from atoll.law.words import TOKEN
from atoll.train.corpus.options import PUBLIC_NOTICE

PACE = Pace(
    step_seconds=2.0,
    segment_seconds=0.5,
    parameters=10_000_000,
    timed_parameters=10_000_000,
    update_bytes=10_000_000,
    state_bytes=120_000_000,
)
NANO = preset("nano")


def completed(changes: dict[str, object], pace: Pace = PACE) -> JobSpec:
    return complete(NANO.but(changes), pace)[0]


def cost(spec: JobSpec) -> int:
    return budget(spec.resolve(DATA, None, NUMERICS, NOW).terms)


@pytest.mark.parametrize("name", [name for name in PRESETS if PRESETS[name].model])
def test_nothing_is_left_out_of_a_completed_job(name: str) -> None:
    spec, figures = complete(PRESETS[name], PACE)
    assert spec.left_out() == []
    assert {figure.path for figure in figures} == set(PRESETS[name].left_out())
    assert all(figure.reason and figure.text for figure in figures)


def test_what_is_written_is_never_changed() -> None:
    assert complete(PLAIN, PACE) == (PLAIN, ())
    written = {"windows.train": 77, "money.provider_bond": 5, "audit.coverage": "0.25"}
    spec = completed(written)
    assert (spec.windows.train, spec.money.provider_bond, spec.audit.coverage) == (77, 5, "0.25")


def test_the_training_window_holds_the_slowest_member_s_round() -> None:
    spec = completed({"windows.slower": 3, "windows.megabits": 20})
    slowest = 3 * (50 * 2.0 + 10 * 0.5) + 4 * 10_000_000 / (20 * 125_000)
    assert spec.windows.train is not None
    assert slowest + CLOCK <= spec.windows.train < slowest + CLOCK + 60


def test_seconds_of_a_step_that_are_written_take_the_place_of_measured_ones() -> None:
    fast, slow = (completed({"windows.step_seconds": seconds}) for seconds in ("0.01", "10"))
    assert (fast.windows.train or 0) < (slow.windows.train or 0)
    assert (slow.windows.train or 0) >= 50 * 10


def test_a_slower_line_makes_longer_audits() -> None:
    narrow, wide = (completed({"windows.megabits": line}) for line in (1, 1000))
    assert sum_of_windows(narrow) > 2 * sum_of_windows(wide)


@pytest.mark.parametrize("target", ["0.5", "0.9", "0.99"])
def test_the_draws_find_a_quarter_left_out_as_often_as_asked(target: str) -> None:
    spec = completed({"audit.detection": target})
    manifest = spec.resolve(DATA, None, NUMERICS, NOW)
    count, auditors = manifest.segments, manifest.terms.auditors
    drawn = min(count, manifest.audit.draws * auditors)
    skipped = ceil(count / 4)
    assert detection_probability(count, drawn, skipped) >= Fraction(target)
    assert detection_probability(count, drawn - auditors, skipped) < Fraction(target)


def test_a_budget_sets_the_price_and_is_not_exceeded() -> None:
    spec = completed({"money.budget": 25 * TOKEN})
    assert 0.999 * 25 * TOKEN < cost(spec) <= 25 * TOKEN
    fixed = completed({"money.budget": 25 * TOKEN, "money.verifier_fee": TOKEN // 100})
    assert 0.999 * 25 * TOKEN < cost(fixed) <= 25 * TOKEN
    assert fixed.money.verifier_fee == TOKEN // 100


@pytest.mark.parametrize("changes", [{}, {"money.verifier_fee": TOKEN}])
def test_a_budget_that_is_too_small_is_refused_with_numbers(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"leaves no wei for each of [0-9,]+ tokens") as caught:
        completed({"money.budget": 1000, **changes})
    assert caught.value.next_step


def test_a_fee_pays_for_what_is_replayed() -> None:
    spec = completed({})
    assert spec.model is not None
    tokens = replayed_steps(spec) * spec.inner.batch * spec.model.seq
    worth = tokens * (spec.money.price_per_token or 0)
    assert (spec.money.verifier_fee or 0) * spec.members.max_verifiers >= worth


def test_leaving_out_work_costs_more_than_it_saves() -> None:
    spec = completed({})
    manifest = spec.resolve(DATA, None, NUMERICS, NOW)
    terms, count = manifest.terms, manifest.segments
    pay = terms.steps * terms.tokens_per_step * terms.price_per_token
    drawn = min(count, manifest.audit.draws * terms.auditors)
    for skipped in range(1, count + 1):
        found = detection_probability(count, drawn, skipped) * Fraction(2, 3)
        assert Fraction(skipped, count) * pay * (1 - found) < found * terms.provider_bond


def test_bonds_are_at_least_the_network_s() -> None:
    spec, _ = complete(NANO, PACE, Floors(10**24, 10**25))
    assert (spec.money.provider_bond, spec.money.verifier_bond) == (10**24, 10**25)


def test_the_lifetime_holds_every_round_at_its_longest() -> None:
    spec = completed({})
    assert (spec.lifetime or 0) > spec.rounds * spec.members.attempts * sum_of_windows(spec)


def test_methods_of_one_step_or_round_are_priced_as_such() -> None:
    once = completed({"method.name": "lo_fi", "money.budget": TOKEN})
    assert 0.99 * TOKEN < cost(once) <= TOKEN
    step = completed({"method.name": "demo", "money.budget": TOKEN})
    assert 0.99 * TOKEN < cost(step) <= TOKEN


def test_an_outlook_agrees_with_the_manifest() -> None:
    spec, figures = complete(NANO, PACE)
    draft = Draft("key", spec, spec.resolve(DATA, None, NUMERICS, NOW), figures, PACE)
    look = outlook(draft, PACE, fee_cap=10**9)
    assert look.budget_wei == cost(spec) == look.training_wei + look.fees_wei
    assert look.gas_wei == look.gas * 10**9
    assert 0 < look.seconds_expected < look.seconds_at_most
    assert [role.name for role in look.roles] == ["submitter", "provider", "verifier"]
    assert all(min(r.down, r.up, r.memory, r.disk) > 0 for r in look.roles)
    text = report(draft, look)
    assert "windows.train" in text
    assert PUBLIC_NOTICE in text
    assert "warning" not in text


def test_windows_that_no_network_takes_are_warned_of() -> None:
    pace = replace(PACE, step_seconds=2000.0)
    spec, figures = complete(NANO, pace)
    draft = Draft("key", spec, spec.resolve(DATA, None, NUMERICS, NOW), figures, pace)
    assert "warning: 3 attempts at a round take" in report(draft, outlook(draft, pace, 1))
