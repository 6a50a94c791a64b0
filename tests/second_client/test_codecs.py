"""Updates of every codec: the second client writes and reads the bytes that atoll does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.second_client import codec

from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.registry import CODECS
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.pieces import root_of_update

CASES = 500
NUMBERS = 10_000
"""Of updates, in each codec at least."""
Random = np.random.Generator


def tensors(random: Random, exponent: int) -> dict[str, Any]:
    """A few tensors of names in no order, in magnitudes around the grid's, with odd ones among."""
    found = {}
    for name in random.permutation(["b.weight", "a", "c.norm", "Z"])[: random.integers(1, 5)]:
        shape = random.integers(1, 40, random.integers(1, 3))
        x = random.standard_normal(shape) * 2.0 ** (exponent + random.integers(-3, 9))
        kind = random.integers(5)
        if kind == 0:  # ties between two codes, and zeros of both signs
            x = np.rint(random.standard_normal(shape) * 6) / 2 * 2.0**exponent
        elif kind == 1:  # mostly nothing
            x = np.where(random.random(shape) < 0.9, 0.0, x)
        elif kind == 2:  # overflows on its way to the grid
            x = np.where(random.random(shape) < 0.05, 3e38, x)
        found[str(name)] = x.astype(np.float32)
    return found


@pytest.mark.parametrize("kind", CODECS)
def test_no_byte_differs(kind: str) -> None:
    # A dither is a second of hashing for a hundred updates.
    compared = 0
    for seed in range(CASES // 5 if codec.CODECS[kind].is_dithered else CASES):
        random = np.random.default_rng([seed, len(kind)])
        exponent = -40 if kind == "fp32" else int(random.integers(-30, 0))
        delta = tensors(random, exponent)
        compare(kind, delta, exponent, random)
        compared += sum(x.size for x in delta.values())
    assert compared > NUMBERS


@pytest.mark.parametrize("kind", CODECS)
def test_no_byte_differs_over_several_pieces(kind: str) -> None:
    random = np.random.default_rng(7)
    exponent = -40 if kind == "fp32" else -9
    long = {"a": random.standard_normal((300, 333)), "b": random.standard_normal(70001)}
    delta = {name: (x * 2.0**-6).astype(np.float32) for name, x in long.items()}
    update = compare(kind, delta, exponent, random)
    assert codec.update_root(update) == root_of_update(update)


def compare(kind: str, delta: dict[str, Any], exponent: int, random: Random) -> bytes:
    """An update's bytes, and what they say as floats and as integers."""
    exponents = dict.fromkeys(delta, exponent)
    seat = (random.bytes(32), int(random.integers(256)))
    theirs = CODECS[kind].under(DitherKey(*seat))
    update = codec.encode(kind, delta, exponents, seat)
    expected = {name: torch.from_numpy(x) for name, x in delta.items()}
    assert update == theirs.encode(expected, exponents)
    shapes = {name: x.shape for name, x in delta.items()}
    layout = Layout.of(shapes)
    said = codec.decode(kind, update, shapes, exponents, seat)
    for name, x in theirs.decode(update, layout, exponents).items():
        assert x.numpy().tobytes() == said[name].tobytes()
    body = update[len(codec.header(kind, shapes, exponents)) :]
    row = theirs.decode_flat(update, layout, exponents)
    assert codec.merged_integers(kind, body, layout.total, seat).tolist() == row.tolist()
    return update


def test_an_update_of_another_round_is_refused() -> None:
    delta = {"a": np.ones(3, np.float32)}
    update = codec.encode("grid8", delta, {"a": -3}, (bytes(32), 0))
    assert codec.decode("grid8", update, {"a": (3,)}, {"a": -3}, (bytes(32), 0))["a"][0] == 1.0
    with pytest.raises(ValueError, match="another round"):
        codec.decode("grid8", update, {"a": (3,)}, {"a": -4}, (bytes(32), 0))
