"""Nodes of family 6: an update's bytes.

Rule of this file: as `state_nodes`. Values are never NaN, since no state that a link is of has one;
they may be infinite in steps of a grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from tests.judge.elements import Draw, Operation, Rng, reals, size
from tests.judge.state_nodes import Given, context, of_bytes, operation
from torch import Tensor

from atoll.bits.codec.block_steps import SIGN_LEVELS, STEPS, TWO_BIT_LEVELS
from atoll.bits.codec.packing import pack
from atoll.bits.tape.opcodes import Op


def _steps_of_a_grid(rng: Rng, count: int) -> Tensor:
    """Values in steps: of every size about a grid's, halves, −0, infinities."""
    x = reals(rng, count)
    near = torch.from_numpy(rng.normal(size=count).astype(np.float32))
    near *= torch.exp2(torch.from_numpy(rng.integers(-3, 9, count).astype(np.float32)))
    kind = torch.from_numpy(rng.integers(0, 4, count))
    x = torch.where(kind == 0, near, torch.where(kind == 1, (near * 2).round() / 2, x))
    return torch.where(x.isnan(), -0.0, x)


def _exponents(rng: Rng) -> Tensor:
    return torch.from_numpy(rng.integers(-64, 65, 5).astype(np.int32))


def _scaled(rng: Rng, count: int) -> Given:
    return Given(Op.SCALED, (size(rng, 0, 4),), (reals(rng, count), _exponents(rng)))


def _difference(rng: Rng, count: int) -> Given:
    first = reals(rng, count)
    second = torch.where(torch.from_numpy(rng.integers(0, 4, count)) == 0, first, reals(rng, count))
    return Given(Op.DIFFERENCE, (), (first, second))


def _fp32(rng: Rng, count: int) -> Given:
    return Given(Op.FP32, (), (reals(rng, count),))


def _grid8(rng: Rng, count: int) -> Given:
    return Given(Op.GRID8, (), (_steps_of_a_grid(rng, count),))


def _grid4(rng: Rng, count: int) -> Given:
    count += size(rng, 0, 1)
    return Given(Op.GRID4, (count,), (_steps_of_a_grid(rng, count),))


def _block_steps(rng: Rng, count: int) -> Given:
    levels = (SIGN_LEVELS, TWO_BIT_LEVELS)[size(rng, 0, 1)]
    count = 32 * size(rng, 1, count // 16) + size(rng, 0, 31)
    x = _steps_of_a_grid(rng, count)
    # Most blocks would have the largest step: make some whose step is another.
    small = torch.exp2(torch.from_numpy(rng.integers(0, 7, count).astype(np.float32)) / 2)
    x = torch.where(torch.arange(count) // 32 % 4 == 0, x, small.round())
    return Given(Op.BLOCK_STEPS, (count, levels.reach, levels.share), (x,))


def _indices(rng: Rng, count: int) -> Tensor:
    return torch.from_numpy(rng.integers(0, len(STEPS), count).astype(np.uint8))


def _pack_steps(rng: Rng, count: int) -> Given:
    count += size(rng, 0, 1)
    return Given(Op.PACK_STEPS, (count,), (_indices(rng, count),))


def _codes(rng: Rng, count: int) -> Given:
    count = 4 * count + size(rng, 0, 31)
    x, indices = _steps_of_a_grid(rng, count), _indices(rng, -(-count // 32))
    if rng.integers(0, 2):
        return Given(Op.CODES, (count, 1, 0, 0), (x, indices))
    return Given(Op.CODES, (count, 2, 1, size(rng, 0, 1)), (x, indices, context(rng)))


def _said(rng: Rng, count: int) -> Given:
    """Codes as they are packed: of the last byte, what is behind the last value is 0."""
    count = 4 * count + size(rng, 0, 31)
    levels = size(rng, 0, 2)
    width = (4, 1, 2)[levels]
    below = 15 if levels == 0 else 1 << width
    codes = of_bytes(pack(rng.integers(0, below, count).astype(np.uint8), width))
    if levels == 0:
        return Given(Op.SAID, (count, 0, 0, 0), (codes,))
    indices = _indices(rng, -(-count // 32))
    if levels == 1:
        return Given(Op.SAID, (count, 1, 0, 0), (codes, indices))
    return Given(Op.SAID, (count, 2, 1, size(rng, 0, 1)), (codes, indices, context(rng)))


def _left(rng: Rng, count: int) -> Given:
    """Of values of every size, one in four just what was said, so that zeros are left."""
    first, exponents = size(rng, 0, 40), _exponents(rng)
    said = torch.from_numpy(rng.integers(-127, 128, first + count + 7).astype(np.int8))
    at, w = size(rng, 0, 4), reals(rng, count)
    exact = said[first : first + count].float() * 2.0 ** int(exponents[at])
    w = torch.where(torch.from_numpy(rng.integers(0, 4, count)) == 0, exact, w)
    return Given(Op.LEFT, (at, first), (w, said, exponents))


def _update_header(rng: Rng, count: int) -> Given:
    inputs = (_exponents(rng),) if rng.integers(0, 4) else ()
    return Given(Op.UPDATE_HEADER, (), inputs, tail=rng.bytes(40))


def _update(rng: Rng, count: int) -> Given:
    sizes = [size(rng, 1, count) for _ in range(3)]
    zeros = [size(rng, 0, 5), size(rng, 0, 1) * size(rng, 0, 9), 0]
    words = tuple(word for pair in zip(sizes, zeros, strict=True) for word in pair)
    return Given(Op.UPDATE, words, tuple(of_bytes(rng.bytes(each)) for each in sizes))


NODES: Final[Mapping[int, Draw]] = {
    Op.SCALED: _scaled,
    Op.DIFFERENCE: _difference,
    Op.FP32: _fp32,
    Op.GRID8: _grid8,
    Op.GRID4: _grid4,
    Op.BLOCK_STEPS: _block_steps,
    Op.PACK_STEPS: _pack_steps,
    Op.CODES: _codes,
    Op.UPDATE_HEADER: _update_header,
    Op.UPDATE: _update,
    Op.SAID: _said,
    Op.LEFT: _left,
}
OPERATIONS: Final[Mapping[int, Operation]] = {op: operation(Op(op)) for op in NODES}
