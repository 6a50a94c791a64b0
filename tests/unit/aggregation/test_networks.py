"""Networks: the 0–1 principle, exhaustively for small n."""

from itertools import product

import pytest

from atoll.aggregation.networks import batcher, middle_network


@pytest.mark.parametrize("n", range(1, 11))
def test_batcher_sorts_every_zero_one_input(n: int):
    for bits in product((0, 1), repeat=n):
        lanes = list(bits)
        for low, high in batcher(n):
            lanes[low], lanes[high] = sorted((lanes[low], lanes[high]))
        assert lanes == sorted(bits)


@pytest.mark.parametrize(("n", "f"), [(n, f) for n in range(1, 11) for f in range((n + 1) // 2)])
def test_the_middle_lanes_hold_the_middle_values(n: int, f: int):
    for bits in product((0, 1), repeat=n):
        lanes: list[int | None] = list(bits)
        for step in middle_network(n, f):
            low, high = sorted((lanes[step.low], lanes[step.high]))
            lanes[step.low] = low if step.needs_min else None
            lanes[step.high] = high if step.needs_max else None
        middle = lanes[f : n - f]
        assert None not in middle
        assert sorted(middle) == sorted(bits)[f : n - f]


def test_selecting_costs_less_than_sorting():
    assert middle_network(16, 0) == ()
    assert len(middle_network(16, 3)) < len(batcher(16)) == 63
