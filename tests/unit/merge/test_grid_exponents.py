"""The rule by which grid exponents follow the updates."""

import numpy as np
import pytest
import torch

from atoll.bits.codec.dither import DitherKey
from atoll.bits.codec.layout import Layout
from atoll.bits.codec.registry import (
    CODECS,
    GRID4_TARGET,
    GRID8_TARGET,
    SIGN_TARGET,
    SPARSE_TARGET,
    TWO_BIT_TARGET,
    Target,
)
from atoll.law.words import ZERO_DIGEST
from atoll.merge.exponents import next_exponents, vote


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
        (TWO_BIT_TARGET, filled(96, 65, rest=1), 1),
        (TWO_BIT_TARGET, filled(-96, 64, rest=-1), -1),
        (TWO_BIT_TARGET, filled(48, 1024), 0),
        (TWO_BIT_TARGET, filled(16, 65, rest=4), 0),
        (TWO_BIT_TARGET, filled(12, 1024), -1),
        (SIGN_TARGET, filled(32, 65, rest=1), 1),
        (SIGN_TARGET, filled(16, 1024), 0),
        (SIGN_TARGET, filled(-8, 65, rest=1), 0),
        (SIGN_TARGET, filled(4, 1024), -1),
        (SPARSE_TARGET, filled(0, 0), -1),
        (SPARSE_TARGET, filled(96, 32), 1),
        (SPARSE_TARGET, filled(24, 32), 0),
        (SPARSE_TARGET, filled(12, 32), -1),
        (SPARSE_TARGET, np.append(filled(96, 2), filled(1, 30)), -1),
        (SPARSE_TARGET, np.append(filled(96, 3), filled(1, 29)), 1),
    ],
)
def test_votes(target: Target, values: np.ndarray, expected: int):
    assert vote(values, target) == expected


@pytest.mark.parametrize("shape", ["normal", "laplace", "student"])
@pytest.mark.parametrize("name", ["grid8", "grid4", "two_bit", "sign", "sparse"])
def test_a_grid_settles_whatever_the_updates_tails_are(name: str, shape: str):
    """From far off it moves to a step that it keeps, never to and fro."""
    rng = np.random.default_rng(0)
    draw = {
        "normal": rng.standard_normal,
        "laplace": lambda n: rng.laplace(size=n),
        "student": lambda n: rng.standard_t(4, size=n),
    }[shape]
    codec, target = CODECS[name].under(DitherKey(ZERO_DIGEST, 0)), CODECS[name].target
    values = draw(1 << 13).astype(np.float32)
    assert target is not None
    layout = Layout.of({"w": (len(values),)})
    for spread in np.exp2(np.linspace(0, 1, 9)):
        delta = {"w": torch.from_numpy(values * np.float32(spread))}
        for start in (-12, 12):
            moves, exponents = [], {"w": start}
            for _ in range(30):
                row = codec.decode_flat(codec.encode(delta, exponents), layout, exponents)
                moves.append(vote(row, target))
                exponents = {"w": exponents["w"] + moves[-1]}
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


def test_fp32_moves_no_grid():
    layout = Layout.of({"a": (2,)})
    rows = [np.array([1, -1], dtype=np.int8)]
    assert next_exponents({"a": -40}, layout, rows, CODECS["fp32"].target, (-40, -40)) == {"a": -40}


def test_votes_are_counted_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(3)
    layout = Layout.of({"a": (37,), "b": (5, 20), "c": (3,)})
    rows = [rng.integers(-127, 128, layout.total).astype(np.int8) // (i + 1) for i in range(5)]
    for target in (GRID8_TARGET, SPARSE_TARGET, GRID4_TARGET):
        asked = [dict.fromkeys(layout.names, -10), layout, rows, target, (-64, 64)]
        whole = next_exponents(*asked)
        for size in (1, 16, 1000):
            monkeypatch.setattr("atoll.merge.exponents._AT_ONCE", size)
            assert next_exponents(*asked) == whole
