"""The rule by which grid exponents follow the updates."""

import numpy as np
import pytest
import torch

from atoll.aggregation.exponents import middle_vote, next_exponents, vote
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.registry import (
    CODECS,
    GRID4_TARGET,
    GRID8_TARGET,
    SIGN_TARGET,
    TWO_BIT_TARGET,
    Target,
)
from atoll.numerics.codec.vector_layout import Layout
from atoll.protocol.types import ZERO_DIGEST


def filled(value: int, count: int, rest: int = 0, size: int = 1024) -> np.ndarray:
    values = np.full(size, rest, dtype=np.int8)
    values[:count] = value
    return values


def target_of(name: str) -> Target:
    target = CODECS[name].target
    assert target is not None
    return target


def row_of(name: str, values: np.ndarray, exponents: dict[str, int]) -> np.ndarray:
    codec, layout = CODECS[name].under(DitherKey(ZERO_DIGEST, 0)), Layout.of({"w": (len(values),)})
    return codec.decode_flat(
        codec.encode({"w": torch.from_numpy(values)}, exponents), layout, exponents
    )


@pytest.mark.parametrize(
    ("target", "values", "expected"),
    [
        (GRID8_TARGET, filled(0, 0), -4),
        (GRID8_TARGET, filled(0, 0, size=0), -4),
        (GRID8_TARGET, filled(64, 1024), 0),
        (GRID8_TARGET, filled(65, 4, rest=24), -1),
        (GRID8_TARGET, filled(65, 5, rest=24), 1),
        (GRID8_TARGET, filled(-65, 5, rest=24), 1),
        (GRID8_TARGET, filled(65, 1), 1),  # what is 0 is not counted
        (GRID8_TARGET, filled(24, 1024), -1),
        (GRID8_TARGET, filled(12, 1024), -2),
        (GRID8_TARGET, filled(6, 1024), -3),
        (GRID8_TARGET, filled(3, 1024), -4),
        (GRID8_TARGET, filled(-1, 1), -4),
        (GRID8_TARGET, filled(25, 5, rest=3), 0),
        (GRID8_TARGET, filled(30, 5, rest=1), -2),  # two would be clipped more than half as much
        (GRID8_TARGET, filled(30, 4, rest=1), -4),
        (GRID8_TARGET, filled(60, 5, rest=1), -1),
        (GRID8_TARGET, filled(64, 5, rest=1), 0),
        (GRID8_TARGET, filled(127, 1, size=1), 4),
        (GRID8_TARGET, filled(127, 513, rest=1), 4),
        (GRID8_TARGET, filled(127, 512, rest=1), 2),
        (GRID8_TARGET, filled(127, 257, rest=1), 2),
        (GRID8_TARGET, filled(127, 256, rest=1), 1),
        (GRID8_TARGET, filled(126, 1024), 1),
        (GRID4_TARGET, filled(7, 65, rest=2), 1),
        (GRID4_TARGET, filled(-7, 64, rest=2), -1),
        (GRID4_TARGET, filled(7, 300, rest=2), 2),
        (GRID4_TARGET, filled(7, 600, rest=2), 4),
        (GRID4_TARGET, filled(6, 1024), 0),
        (GRID4_TARGET, filled(3, 65, rest=2), 0),
        (GRID4_TARGET, filled(3, 65, rest=1), -1),
        (GRID4_TARGET, filled(1, 1024), -2),
        (GRID4_TARGET, filled(-1, 3), -2),
        (TWO_BIT_TARGET, filled(96, 65, rest=1), 1),
        (TWO_BIT_TARGET, filled(-96, 64, rest=-1), -4),
        (TWO_BIT_TARGET, filled(-56, 300, rest=-1), 2),
        (TWO_BIT_TARGET, filled(-56, 600, rest=-1), 4),
        (TWO_BIT_TARGET, filled(48, 1024), 0),
        (TWO_BIT_TARGET, filled(16, 65, rest=4), 0),
        (TWO_BIT_TARGET, filled(12, 1024), -1),
        (TWO_BIT_TARGET, filled(96, 32), 4),
        (TWO_BIT_TARGET, filled(24, 32), 0),
        (TWO_BIT_TARGET, np.append(filled(96, 3), filled(1, 29)), 1),
        (TWO_BIT_TARGET, np.append(filled(96, 2), filled(1, 30)), -4),
        (SIGN_TARGET, filled(20, 65, rest=1), 1),
        (SIGN_TARGET, filled(28, 1024), 4),
        (SIGN_TARGET, filled(16, 1024), 0),
        (SIGN_TARGET, filled(-8, 65, rest=1), 0),
        (SIGN_TARGET, filled(4, 1024), -1),
        (SIGN_TARGET, filled(1, 1024), -3),
    ],
)
def test_votes(target: Target, values: np.ndarray, expected: int):
    assert vote(values, target) == expected


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([], 0),
        ([3], 3),
        ([-4, 1], 0),
        ([-4, -1], -1),
        ([4, 1], 1),
        ([-4, -4, 1], -4),
        ([-4, -3, 2, 4], 0),
        ([-4, -3, -1, 4], -1),
        ([-4, -4, -4, 0, 1, 1, 4], 0),
        ([4, 4, 4, -1, -1, 0, 1], 1),
    ],
)
def test_the_middle_vote_is_no_half_of_the_seats_alone(votes: list[int], expected: int):
    assert middle_vote(votes) == middle_vote(votes[::-1]) == expected


@pytest.mark.parametrize("liar", [-4, 4])
@pytest.mark.parametrize("honest", range(1, 5))
def test_as_many_liars_as_others_push_a_grid_no_further_than_the_others_would(
    honest: int, liar: int
):
    rng = np.random.default_rng(honest)
    for _ in range(200):
        said = rng.integers(-4, 5, honest).tolist()
        for liars in range(honest + 1):
            found = middle_vote([*said, *[liar] * liars])
            assert min(*said, 0) <= found <= max(*said, 0)


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


def test_the_middle_vote_moves_each_tensor_alone_and_within_bounds():
    layout = Layout.of({"a": (2,), "b": (2,), "c": (1, 1)})
    zero = np.array([0, 0, 100, 0, 30], dtype=np.int8)
    loud = np.array([127, 127, 127, 127, 127], dtype=np.int8)
    exponents = {"a": -10, "b": -10, "c": -10}
    moved = {"a": -14, "b": -9, "c": -10}

    def following(*rows: np.ndarray, low: int = -14, high: int = -7) -> dict[str, int]:
        return next_exponents(exponents, layout, rows, GRID8_TARGET, low=low, high=high)

    for rows in ([zero], [zero, loud, zero], [zero, zero, zero, loud, loud]):
        assert following(*rows) == moved
    for rows in ([zero, loud], [zero, zero, loud, loud]):  # they agree where both move it up
        assert following(*rows) == {"a": -10, "b": -9, "c": -10}
    assert set(following(zero, loud, loud).values()) == {-7}
    assert set(following(loud, low=-12, high=-6).values()) == {-6}
    assert following(zero, low=-12, high=-6)["a"] == -12
    assert set(following(zero, low=-10, high=-10).values()) == {-10}


@pytest.mark.parametrize("name", ["grid8", "grid4", "two_bit", "sign", "sparse", "dct"])
@pytest.mark.parametrize("off", [-16, -9, 9, 16])
def test_a_grid_that_is_far_off_is_right_within_rounds(name: str, off: int):
    """However much of an update it rounds away or clips; a factor of 2^16 is four rounds."""
    deviation, size = 2.0**-14, 1 << 13
    values = np.random.default_rng(4).normal(0, deviation, size).astype(np.float32)
    exponents, moves = {"w": -17 + off}, []
    for _ in range(8):
        moves.append(vote(row_of(name, values, exponents), target_of(name)))
        exponents = {"w": exponents["w"] + moves[-1]}
    assert moves[0] == 4 if off < 0 else moves[0] <= -3
    assert moves[6:] == [0, 0]


def test_a_tensor_that_does_not_move_for_ten_rounds_is_heard_when_it_does():
    size, rng = 1 << 12, np.random.default_rng(5)
    layout, bounds = Layout.of({"w": (size,)}), {"low": -24, "high": 0}
    for name in ("grid8", "grid4", "two_bit", "sign"):
        exponents = {"w": -12}
        for _ in range(10):
            still = row_of(name, np.zeros(size, np.float32), exponents)
            exponents = next_exponents(exponents, layout, [still] * 3, target_of(name), **bounds)
        kept = []
        for _ in range(5):
            values = rng.normal(0, 2.0**-9, size).astype(np.float32)
            row = row_of(name, values, exponents)
            said = row * 2.0 ** exponents["w"]
            kept.append(float(said @ values / (values @ values)))
            exponents = next_exponents(exponents, layout, [row] * 3, target_of(name), **bounds)
        assert max(kept) < 1.2  # nothing is amplified on the way
        assert min(kept[4:]) > (0.95 if name != "sign" else 0.4)


def test_rows_of_unseen_tokens_do_not_count_as_rounded_away():
    """Of an embedding a round sees few rows: these alone say how fine its grid has to be."""
    values = np.zeros((2000, 16), dtype=np.int8)
    values[:3] = np.random.default_rng(6).normal(0, 12, (3, 16)).round()
    assert vote(values.reshape(-1), GRID8_TARGET) == vote(values[:3].reshape(-1), GRID8_TARGET) == 0


def test_few_large_values_do_not_keep_a_grid_from_the_many_that_it_rounds_away():
    rng = np.random.default_rng(7)
    for name, large in (("grid8", 26), ("grid4", 3)):
        steps = rng.normal(0, 0.25, 1 << 14)
        steps[: 1 << 5] = large
        assert vote(row_of(name, steps.astype(np.float32), {"w": 0}), target_of(name)) < 0


def test_fp32_moves_no_grid():
    layout = Layout.of({"a": (2,)})
    rows = [np.array([1, -1], dtype=np.int8)]
    target = CODECS["fp32"].target
    assert next_exponents({"a": -40}, layout, rows, target, low=-40, high=-40) == {"a": -40}


def test_votes_are_counted_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(3)
    layout = Layout.of({"a": (37,), "b": (5, 20), "c": (3,)})
    rows = [rng.integers(-127, 128, layout.total).astype(np.int8) // (i + 1) for i in range(5)]
    for target in (GRID8_TARGET, TWO_BIT_TARGET, GRID4_TARGET):
        asked = [dict.fromkeys(layout.names, -10), layout, rows, target]
        whole = next_exponents(*asked, low=-64, high=64)
        for size in (1, 16, 1000):
            monkeypatch.setattr("atoll.aggregation.exponents._AT_ONCE", size)
            assert next_exponents(*asked, low=-64, high=64) == whole
