"""The rule by which grid exponents follow the updates."""

from itertools import product

import numpy as np
import pytest

from atoll.aggregate.exponents import Target, next_exponents, vote
from atoll.aggregate.layout import Layout
from atoll.aggregate.registry import (
    CODECS,
    GRID4_TARGET,
    GRID8_TARGET,
    SPARSE_TARGET,
    TWO_BIT_TARGET,
)


def filled(value: int, count: int, rest: int = 0, size: int = 1024) -> np.ndarray:
    values = np.full(size, rest, dtype=np.int8)
    values[:count] = value
    return values


@pytest.mark.parametrize(
    ("target", "values", "expected"),
    [
        (GRID8_TARGET, filled(0, 0), -1),
        (GRID8_TARGET, filled(64, 1024), 0),
        (GRID8_TARGET, filled(65, 4), -1),
        (GRID8_TARGET, filled(65, 5), 1),
        (GRID8_TARGET, filled(-65, 5), 1),
        (GRID8_TARGET, filled(24, 1024), -1),
        (GRID8_TARGET, filled(25, 5), 0),
        (GRID8_TARGET, filled(127, 1, size=1), 1),
        (GRID8_TARGET, filled(0, 0, size=0), -1),
        (GRID4_TARGET, filled(7, 65), 1),
        (GRID4_TARGET, filled(-7, 64, rest=2), -1),
        (GRID4_TARGET, filled(6, 1024), 0),
        (GRID4_TARGET, filled(3, 65), 0),
        (TWO_BIT_TARGET, filled(3, 513, rest=1), 1),
        (TWO_BIT_TARGET, filled(-3, 512, rest=-1), 0),
        (TWO_BIT_TARGET, filled(3, 171, rest=1), 0),
        (TWO_BIT_TARGET, filled(3, 170, rest=1), -1),
        (SPARSE_TARGET, filled(0, 0), -1),
        (SPARSE_TARGET, filled(3, 32), 1),
        (SPARSE_TARGET, filled(1, 32), -1),
        (SPARSE_TARGET, np.append(filled(3, 24), filled(1, 8)), 0),
        (SPARSE_TARGET, np.append(filled(3, 25), filled(1, 7)), 1),
    ],
)
def test_votes(target: Target, values: np.ndarray, expected: int):
    assert vote(values, target) == expected


def sent(name: str, magnitudes: np.ndarray) -> np.ndarray:
    """What a dense codec, or the sparse one of a whole chunk, writes for values in grid steps."""
    if name == "grid8":
        return np.clip(np.rint(magnitudes), 0, 127).astype(np.int8)
    if name == "grid4":
        return np.clip(np.rint(magnitudes), 0, 7).astype(np.int8)
    odd = np.where(magnitudes < 2, 1, 3).astype(np.int8)
    if name == "sparse":
        odd[magnitudes < np.sort(magnitudes)[-len(magnitudes) // 32]] = 0
    return odd


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *product(["grid8", "grid4", "two_bit"], ["normal", "laplace", "student"]),
        ("sparse", "laplace"),
        ("sparse", "student"),
    ],
)
def test_a_grid_settles_whatever_the_updates_tails_are(name: str, shape: str):
    """From far off it moves to a step that it keeps, never to and fro.

    The largest of normally distributed values are too alike for the sparse codec's two levels.
    """
    rng = np.random.default_rng(0)
    draw = {
        "normal": rng.standard_normal,
        "laplace": lambda n: rng.laplace(size=n),
        "student": lambda n: rng.standard_t(4, size=n),
    }[shape]
    values, target = np.abs(draw(1 << 15)), CODECS[name].target
    assert target is not None
    for spread in np.exp2(np.linspace(0, 1, 9)):
        for start in (-12, 12):
            moves, exponent = [], start
            for _ in range(30):
                moves.append(vote(sent(name, values * spread * 2.0**-exponent), target))
                exponent += moves[-1]
            assert moves[-1] == 0, (spread, start, moves)


def test_the_lower_median_vote_moves_each_tensor_alone_and_within_bounds():
    layout = Layout.of({"a": (2,), "b": (2,), "c": (1, 1)})
    zero = np.array([0, 0, 100, 0, 30], dtype=np.int8)
    loud = np.array([127, 127, 127, 127, 127], dtype=np.int8)
    exponents = {"a": -10, "b": -10, "c": -10}
    moved = {"a": -11, "b": -9, "c": -10}
    for rows in ([zero], [zero, loud], [zero, loud, zero], [zero, zero, loud, loud]):
        assert next_exponents(exponents, layout, rows, GRID8_TARGET, (-12, -8)) == moved
    outvoted = next_exponents(exponents, layout, [zero, loud, loud], GRID8_TARGET, (-12, -8))
    assert set(outvoted.values()) == {-9}
    assert set(next_exponents(exponents, layout, [zero], GRID8_TARGET, (-10, -10)).values()) == {
        -10
    }


def test_a_sign_moves_no_grid():
    layout = Layout.of({"a": (2,)})
    rows = [np.array([1, -1], dtype=np.int8)]
    assert next_exponents({"a": -7}, layout, rows, CODECS["sign"].target, (-9, -5)) == {"a": -7}
