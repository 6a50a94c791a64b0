"""The fast rules equal the reference to the bit, for every chunk size and row order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.aggregation import reference_rules

from atoll.aggregation.chunks import PassPlan
from atoll.aggregation.gram import squared_distances
from atoll.aggregation.passes import gram
from atoll.aggregation.rules import aggregate, check_counts
from atoll.errors import ConfigError


@st.composite
def rows_and_f(draw: st.DrawFn) -> tuple[list[np.ndarray], int]:
    n = draw(st.integers(1, 9))
    d = draw(st.integers(1, 40))
    extreme = draw(st.sampled_from([1, 3, 127]))  # 1 makes ties, 127 makes the largest sums
    value = st.integers(-extreme, extreme)
    rows = draw(st.lists(st.lists(value, min_size=d, max_size=d), min_size=n, max_size=n))
    f = draw(st.integers(0, (n - 1) // 2))
    return [np.array(row, dtype=np.int8) for row in rows], f


@given(rows_and_f(), st.booleans(), st.integers(1, 50), st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_the_trimmed_mean_equals_the_reference(
    case: tuple[list[np.ndarray], int], nnm: bool, chunk: int, threads: int
):
    rows, f = case
    slow = reference_rules.nnm_trimmed_mean if nnm else reference_rules.trimmed_mean
    numerators, denominator = slow([row.tolist() for row in rows], f)
    fast = aggregate(f"{'nnm_' * nnm}trimmed_mean", rows, f, plan=PassPlan(chunk, threads))
    assert fast.numerators.tolist() == numerators
    assert fast.denominator == denominator
    assert sum(fast.weights) == 1


@given(rows_and_f(), st.integers(1, 50), st.integers(1, 3))
@settings(max_examples=50, deadline=None)
def test_distances_equal_the_reference(
    case: tuple[list[np.ndarray], int], chunk: int, threads: int
):
    rows, _ = case
    lists = [row.tolist() for row in rows]
    expected = [[reference_rules.squared_distance(a, b) for b in lists] for a in lists]
    assert squared_distances(gram(rows, PassPlan(chunk, threads))).tolist() == expected


def test_the_largest_values_stay_exact():
    rows = [np.full(300_000, sign * 127, dtype=np.int8) for sign in (1, -1, 1)]
    assert gram(rows)[0].tolist() == [127 * 127 * 300_000 * sign for sign in (1, -1, 1)]


@pytest.mark.parametrize(("n", "f"), [(2, 1), (4, 2), (3, -1), (0, 0)])
def test_too_many_faults_are_refused(n: int, f: int):
    with pytest.raises(ConfigError):
        check_counts(n, f)
