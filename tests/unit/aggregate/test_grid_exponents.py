"""The rule by which grid exponents follow the updates."""

import numpy as np
import pytest

from atoll.aggregate.exponents import move, next_exponents
from atoll.aggregate.layout import Layout


def filled(value: int, count: int, size: int = 1024) -> np.ndarray:
    numerators = np.zeros(size, dtype=np.int32)
    numerators[:count] = value
    return numerators


@pytest.mark.parametrize(
    ("numerators", "denominator", "expected"),
    [
        (filled(0, 0), 1, -1),
        (filled(64, 1024), 1, 0),
        (filled(65, 4), 1, 0 - 1),
        (filled(65, 5), 1, 1),
        (filled(-65, 5), 1, 1),
        (filled(24, 1024), 1, -1),
        (filled(25, 5), 1, 0),
        (filled(25, 4), 1, -1),
        (filled(64 * 6, 1024), 6, 0),
        (filled(64 * 6 + 1, 1024), 6, 1),
        (filled(-24 * 6 - 1, 1024), 6, 0),
        (filled(100, 1, size=1), 1, 1),
        (filled(0, 0, size=0), 1, -1),
    ],
)
def test_moves(numerators: np.ndarray, denominator: int, expected: int):
    assert move(numerators, denominator) == expected


@pytest.mark.parametrize("value", range(128))
def test_a_move_never_provokes_the_opposite_one(value: int):
    once = move(filled(2 * value, 1024), 2)
    again = move(filled(value if once == 1 else 4 * value if once == -1 else 2 * value, 1024), 2)
    assert (once, again) not in {(1, -1), (-1, 1)}


def test_each_tensor_moves_alone_and_within_bounds():
    layout = Layout.of({"a": (2,), "b": (2,), "c": (1, 1)})
    numerators = np.array([0, 0, 100, 0, 30], dtype=np.int32)
    exponents = {"a": -10, "b": -10, "c": -10}
    assert next_exponents(exponents, layout, numerators, 1, (-12, -8)) == {
        "a": -11, "b": -9, "c": -10,
    }  # fmt: skip
    assert set(next_exponents(exponents, layout, numerators, 1, (-10, -10)).values()) == {-10}
