"""Nodes of family 6: an update's bytes.

Rule of this file: as `state_nodes`. Values may be infinite in steps of a grid, and NaN, since a
step that is not finite says as well what its update would leave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from tests.judge.elements import Draw, Operation, Rng, reals, size
from tests.judge.state_nodes import Given, context, of_bytes, operation
from torch import Tensor

from atoll.numerics.codec.block_steps import SIGN_LEVELS, STEPS, TWO_BIT_LEVELS
from atoll.numerics.codec.dct import BLOCK, FINE_BITS, coefficients_of, matrix
from atoll.numerics.codec.packing import pack
from atoll.numerics.codec.sparse import CHUNK, KEPT, KEPT_LEVELS, QUARTER, QUARTERS, kept, kept_of
from atoll.numerics.trace import update_proofs
from atoll.numerics.trace.opcodes import Op

_IN_BLOCKS: Final = ((SIGN_LEVELS, 32), (TWO_BIT_LEVELS, 32), (KEPT_LEVELS, KEPT))
"""Levels and the values of a block; the second has dither."""


def _steps_of_a_grid(rng: Rng, count: int) -> Tensor:
    """Values in steps: of every size about a grid's, halves, −0, infinities, NaN."""
    x = reals(rng, count)
    near = torch.from_numpy(rng.normal(size=count).astype(np.float32))
    near *= torch.exp2(torch.from_numpy(rng.integers(-3, 9, count).astype(np.float32)))
    kind = torch.from_numpy(rng.integers(0, 4, count))
    return torch.where(kind == 0, near, torch.where(kind == 1, (near * 2).round() / 2, x))


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
    levels, block = _IN_BLOCKS[size(rng, 0, 2)]
    count = block * size(rng, 1, count // 16) + size(rng, 0, block - 1)
    x = _steps_of_a_grid(rng, count)
    # Most blocks would have the largest step: make some whose step is another.
    small = torch.exp2(torch.from_numpy(rng.integers(0, 7, count).astype(np.float32)) / 2)
    x = torch.where(torch.arange(count) // block % 4 == 0, x, small.round())
    return Given(Op.BLOCK_STEPS, (count, levels.reach, levels.share, block), (x,))


def _indices(rng: Rng, count: int) -> Tensor:
    return torch.from_numpy(rng.integers(0, len(STEPS), count).astype(np.uint8))


def _pack_steps(rng: Rng, count: int) -> Given:
    count += size(rng, 0, 1)
    return Given(Op.PACK_STEPS, (count,), (_indices(rng, count),))


def _codes(rng: Rng, count: int) -> Given:
    count, kind = 4 * count + size(rng, 0, 55), size(rng, 0, 2)
    levels, block = _IN_BLOCKS[kind]
    inputs = (_steps_of_a_grid(rng, count), _indices(rng, -(-count // block)))
    if kind == 1:
        inputs = (*inputs, context(rng))
    words = (count, levels.levels, int(kind == 1), size(rng, 0, 1), block)
    return Given(Op.CODES, words, inputs)


def _said(rng: Rng, count: int) -> Given:
    """Codes as they are packed: of the last byte, what is behind the last value is 0."""
    count, kind = 4 * count + size(rng, 0, 55), size(rng, 0, 3)
    if kind == 3:
        codes = of_bytes(pack(rng.integers(0, 15, count).astype(np.uint8), 4))
        return Given(Op.SAID, (count, 0, 0, 0, 0), (codes,))
    levels, block = _IN_BLOCKS[kind]
    drawn = rng.integers(0, 1 << levels.width, count).astype(np.uint8)
    inputs = (of_bytes(pack(drawn, levels.width)), _indices(rng, -(-count // block)))
    if kind == 1:
        inputs = (*inputs, context(rng))
    words = (count, levels.levels, int(kind == 1), size(rng, 0, 1), block)
    return Given(Op.SAID, words, inputs)


def _residual(rng: Rng, count: int) -> Given:
    """Of values of every size, one in four just what was said, so that zeros are left."""
    return _residual_of(Op.RESIDUAL, np.int8, 127, rng, count)


def _residual_fine(rng: Rng, count: int) -> Given:
    """Of any numbers, or such as 64 coefficients give."""
    limit = (1 << 31) - 1 if rng.integers(0, 2) else 370_000
    return _residual_of(Op.RESIDUAL_FINE, np.int32, limit, rng, count)


def _residual_of(op: Op, kind: type[np.int8 | np.int32], limit: int, rng: Rng, count: int) -> Given:
    first, exponents = size(rng, 0, 40), _exponents(rng)
    said = torch.from_numpy(rng.integers(-limit, limit + 1, first + count + 7).astype(kind))
    at, w = size(rng, 0, 4), reals(rng, count)
    unit = 2.0 ** (int(exponents[at]) - (FINE_BITS if op is Op.RESIDUAL_FINE else 0))
    exact = said[first : first + count].float() * unit
    w = torch.where(torch.from_numpy(rng.integers(0, 4, count)) == 0, exact, w)
    return Given(op, (at, first), (w, said, exponents))


def _dct(rng: Rng, count: int) -> Given:
    """Blocks of any values, of zeros of either sign, of the largest that cosines' signs make of
    them, and a last one that may be shorter.
    """
    count += size(rng, 0, BLOCK)
    x = _steps_of_a_grid(rng, count)
    k, shape = size(rng, 0, BLOCK - 1), size(rng, 0, 3)
    signs = torch.from_numpy(np.sign(np.resize(matrix()[k], count)).astype(np.float32))
    if shape == 0:
        x = signs * 1e4
    elif shape == 1:
        x = signs * 0.0
    return Given(Op.DCT, (count,), (x,))


def _inverse_dct(rng: Rng, count: int) -> Given:
    """Coefficients as they are sent, mostly zeros, or any; or the largest that one value has."""
    count += size(rng, 0, BLOCK)
    x = rng.integers(-128, 128, coefficients_of(count)).astype(np.int8)
    shape = size(rng, 0, 2)
    if shape == 0:
        x *= rng.random(x.size) < KEPT / CHUNK
    elif shape == 1:
        x = np.resize(np.where(matrix()[:, size(rng, 0, BLOCK - 1)] < 0, -128, 127), x.size)
    return Given(Op.INVERSE_DCT, (count,), (torch.from_numpy(x.astype(np.int8)),))


def _ranked(rng: Rng, count: int) -> Tensor:
    """Up to so many values, of one vector in four behind quarters of a chunk or at the border of
    one: any bits, or with ties, or with hardly anything else.
    """
    behind = QUARTER * size(rng, 1, QUARTERS + 1) * (size(rng, 0, 3) == 0)
    is_border = behind and size(rng, 0, 1)
    count = behind + (size(rng, -1, 1) if is_border else size(rng, 1, count))
    few = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], np.float32)
    tied = torch.from_numpy(few[rng.integers(size(rng, 0, 6), 7, count)])
    return (reals(rng, count), _steps_of_a_grid(rng, count), tied)[size(rng, 0, 2)]


def _flags(rng: Rng, count: int) -> tuple[int, Tensor]:
    """How many such values there are, and which of them are kept; of one vector in three a liar's
    flags, which are others, and those behind the last value too.
    """
    flags = kept(_ranked(rng, count).numpy())
    packed = of_bytes(pack(flags.view(np.uint8), 1))
    if size(rng, 0, 2) == 0:
        wrong = of_bytes(rng.bytes(len(packed)))
        packed ^= wrong if size(rng, 0, 1) else wrong & of_bytes(rng.bytes(len(packed)))
    return flags.size, packed


def _count_before(rng: Rng, count: int) -> Given:
    x = _ranked(rng, count)
    return Given(Op.COUNT_BEFORE, (x.numel(),), (x,))


def _kept(rng: Rng, count: int) -> Given:
    """Of values' ranks; one value in eight has any numbers."""
    x = _ranked(rng, 8 * count)
    words = (x.numel(),)
    numbers = update_proofs.count_before(words, (x,), b"").numpy().reshape(-1, QUARTERS)
    any_ = rng.integers(0, 1 << 16, numbers.shape).astype(np.uint16)
    numbers = np.where(rng.integers(0, 8, (x.numel(), 1)) == 0, any_, numbers)
    return Given(Op.KEPT, words, (torch.from_numpy(numbers.reshape(-1)),))


def _chosen(rng: Rng, count: int) -> Given:
    total, flags = _flags(rng, 100 * count)
    return Given(Op.CHOSEN, (total,), (flags, reals(rng, total)))


def _lower_bits(rng: Rng, count: int) -> Given:
    total, flags = _flags(rng, 100 * count)
    return Given(Op.LOWER_BITS, (total,), (flags,))


def _counts(rng: Rng, count: int) -> Given:
    total, flags = _flags(rng, 100 * count)
    return Given(Op.COUNTS, (total,), (flags,))


def _spread(rng: Rng, count: int) -> Given:
    total, flags = _flags(rng, count)
    said = rng.integers(-127, 128, kept_of(total)).astype(np.int8)
    return Given(Op.SPREAD, (total,), (flags, torch.from_numpy(said)))


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
    Op.RESIDUAL: _residual,
    Op.KEPT: _kept,
    Op.CHOSEN: _chosen,
    Op.LOWER_BITS: _lower_bits,
    Op.COUNTS: _counts,
    Op.SPREAD: _spread,
    Op.COUNT_BEFORE: _count_before,
    Op.DCT: _dct,
    Op.INVERSE_DCT: _inverse_dct,
    Op.RESIDUAL_FINE: _residual_fine,
}
OPERATIONS: Final[Mapping[int, Operation]] = {op: operation(Op(op)) for op in NODES}
