"""Rules by weights equal the reference, which knows no Gram matrix, to the bit."""

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.aggregation import reference_rules
from tests.second_client.rules import TRIMS

from atoll.aggregation.chunks import PassPlan
from atoll.aggregation.rules import BY_TRIMMING, MAX_DENOMINATOR, aggregate
from atoll.errors import ConfigError
from atoll.protocol.rules import RULES

Rows = list[list[int]]
Weighed = tuple[list[int], int]
"""Numerators, and their denominator."""


@st.composite
def rows_and_f(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    n, d = draw(st.integers(3, 8)), draw(st.integers(1, 20))
    value = st.integers(-1, 1) if draw(st.booleans()) else st.integers(-127, 127)
    rows = draw(st.lists(st.lists(value, min_size=d, max_size=d), min_size=n, max_size=n))
    return rows, draw(st.integers(0, (n - 3) // 2))


def as_rows(rows: list[list[int]]) -> list[np.ndarray]:
    return [np.array(row, dtype=np.int8) for row in rows]


def of_rows(rows: tuple[int, ...], n: int) -> Weighed:
    return [int(i in rows) for i in range(n)], len(rows)


def geometric_median(rows: Rows, _f: int) -> Weighed:
    weights = reference_rules.geometric_median(rows, MAX_DENOMINATOR)
    return weights, sum(weights)


def norm_clip(rows: Rows, _f: int) -> Weighed:
    unit = MAX_DENOMINATOR // len(rows)
    return reference_rules.clip_factors(reference_rules.norms(rows), unit), len(rows) * unit


REFERENCES: dict[str, Callable[[Rows, int], Weighed]] = {
    "mean": lambda rows, _f: of_rows(tuple(range(len(rows))), len(rows)),
    "krum": lambda rows, f: of_rows(tuple(reference_rules.krum_order(rows, f)[:1]), len(rows)),
    "multi_krum": lambda rows, f: of_rows(
        tuple(reference_rules.krum_order(rows, f)[: len(rows) - f]), len(rows)
    ),
    "minimum_diameter": lambda rows, f: of_rows(
        reference_rules.minimum_diameter(rows, f), len(rows)
    ),
    "geometric_median": geometric_median,
    "centred_clip": lambda rows, _f: (
        reference_rules.centred_clip(rows, MAX_DENOMINATOR),
        MAX_DENOMINATOR,
    ),
    "norm_clip": norm_clip,
}
"""Rules stated without a Gram matrix; the second client states all with one."""


@pytest.mark.parametrize(("rule", "nnm"), list(itertools.product(REFERENCES, (False, True))))
@given(case=rows_and_f())
@settings(max_examples=25, deadline=None)
def test_weight_rules_equal_the_reference(rule: str, nnm: bool, case: tuple[list[list[int]], int]):
    rows, f = case
    n, mixed = len(rows), len(rows) - f if nnm else 1
    groups = [reference_rules.nearest(rows, i, n - f) if nnm else [i] for i in range(n)]
    points = reference_rules.mixes(rows, f) if nnm else rows
    weights, denominator = REFERENCES[rule](points, f)
    totals = [sum(weights[i] for i in range(n) if j in groups[i]) for j in range(n)]
    denominator *= mixed
    if denominator > MAX_DENOMINATOR:
        totals = [total * MAX_DENOMINATOR // denominator for total in totals]
        denominator = MAX_DENOMINATOR
    found = aggregate(f"nnm_{rule}" if nnm else rule, as_rows(rows), f, plan=PassPlan(7, 2))
    assert found.denominator == denominator
    assert found.weights == tuple(Fraction(total, denominator) for total in totals)
    expected = np.array(totals) @ np.array(rows)
    assert found.numerators.tolist() == expected.tolist()


@pytest.mark.parametrize(("rule", "nnm"), list(itertools.product(BY_TRIMMING, (False, True))))
@given(case=rows_and_f())
@settings(max_examples=25, deadline=None)
def test_trimming_rules_equal_the_reference(
    rule: str, nnm: bool, case: tuple[list[list[int]], int]
):
    rows, f = case
    points = reference_rules.mixes(rows, f) if nnm else rows
    sums, denominator = reference_rules.trimmed_mean(points, TRIMS[rule](len(rows), f))
    found = aggregate(f"nnm_{rule}" if nnm else rule, as_rows(rows), f, plan=PassPlan(7, 2))
    assert found.numerators.tolist() == sums
    assert found.denominator == denominator * (len(rows) - f if nnm else 1)


@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if rule.mixes])
def test_one_wild_update_does_not_carry_a_robust_rule(rule: str):
    rng = np.random.default_rng(3)
    honest = [rng.integers(8, 13, 50, dtype=np.int8) for _ in range(7)]
    rows = [*honest, np.full(50, -127, dtype=np.int8)]
    found = aggregate(rule, rows, 1)
    values = found.numerators / found.denominator
    assert values.min() > 5
    assert values.max() < 13


@pytest.mark.parametrize("rule", ["krum", "multi_krum"])
def test_krum_says_how_many_it_needs(rule: str):
    with pytest.raises(ConfigError, match="needs 5 updates"):
        aggregate(rule, [np.zeros(3, dtype=np.int8)] * 4, 1)


def test_mda_refuses_more_subsets_than_it_can_try():
    with pytest.raises(ConfigError, match="subsets"):
        aggregate("minimum_diameter", [np.zeros(3, dtype=np.int8)] * 64, 16)


def test_every_rule_takes_the_largest_job():
    """Pair by pair the 32,640 subsets of the minimum diameter took minutes."""
    rows = [np.full(4, 127, dtype=np.int8)] * 256
    for name, rule in RULES.items():
        if rule.is_sparse or rule.mixes is (rule.base == "geometric_median"):
            continue
        found = aggregate(name, rows, 100 if rule.most_subsets is None else 2)
        assert found.denominator <= MAX_DENOMINATOR
        assert np.all(found.numerators * (1 / found.denominator) > 120)
