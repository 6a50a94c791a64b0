"""Rounding real tensors to integer grids, and the sums that become exact there.

A grid is an integer tensor and a step: value ≈ integer · step. Steps are fp32 and at least `FLOOR`
divided by the largest integer, so no subnormal is ever made. Scales are max|x| / q, one rounding
each: power-of-two steps cost 1 % of validation loss in a trial, these cost nothing.

A grid whose largest magnitude is ∞ or NaN has that step and only zeros for integers, so that every
sum of it is the integer 0, in any order, and its value 0 · step is NaN.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

FLOOR: Final = 2.0**-80
"""Least magnitude that a grid is scaled to; anything smaller rounds to the grid's zero."""
INT8_LEVELS: Final = 127  # not 128: a grid is the same on both sides of 0
SPLIT_BASE: Final = 254
"""What rounding to a multiple of it leaves is at most 127 either way: an int8 slice of its own."""
SPLIT_LEVELS: Final = 32384
"""Largest two-slice integer: 254 · 127 + 126 (32385 would round its high slice to 128)."""
SUM_LEVELS: Final = 2**22
"""fp32 holds the halves of integers up to this, so rounding there costs no more than on the reals
but at a tie; fp64 holds sums of 2^31 of them."""


SQUARE_LEVELS: Final = 2**16
"""Squares of integers up to this: fp64 holds the sum of a row of 2^20 of them."""


def steps(magnitude: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """(multiplier onto the grid, step off it), both fp32, for tensors of this largest magnitude."""
    wide = magnitude.clamp_min(FLOOR).double()
    multiplier, step = (wide.reciprocal() * levels).float(), (wide * (1.0 / levels)).float()
    return multiplier, one_nan(step)


def whole(x: Tensor) -> Tensor:
    """The nearest integers, half to even, held in x's dtype: no −0, and 0 for NaN.

    Processors convert NaN to different integers, and libraries add zeros in different orders.
    """
    rounded = torch.round(x)
    return rounded.masked_fill_(rounded.isnan(), 0.0).add_(0.0)  # −0 + 0 is +0


def one_nan(x: Tensor) -> Tensor:
    """x with 0x7fc00000 for every NaN, in place: processors differ in its sign and payload."""
    return x.masked_fill_(x.isnan(), torch.nan)


def quantise(x: Tensor, dim: int, levels: int = INT8_LEVELS) -> tuple[Tensor, Tensor]:
    """Integers (held in fp32, |·| ≤ levels) and their step along `dim` (kept, size 1).

    `levels` is at most 2^22, so the product with the multiplier, one rounding, cannot exceed it.
    """
    multiplier, step = steps(x.abs().amax(dim, keepdim=True), levels)
    return whole(x * multiplier), step


def quantise_int8(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """As `quantise` at 127 levels, in int8."""
    integers, step = quantise(x, dim)
    return integers.to(torch.int8), step


def quantise_split(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two int8 slices of a 15-bit integer, value = 254 · high + low, and its step."""
    integers, step = quantise(x, dim, SPLIT_LEVELS)
    # The product is rounded, so halves between two slices may go either way. The low slice is then
    # 127 or −127, an int8 both times; that this product decides is part of the definition.
    high = torch.round(integers * (1.0 / SPLIT_BASE))
    return high.to(torch.int8), (integers - high * SPLIT_BASE).to(torch.int8), step


def exact_sum(x: Tensor, dim: int) -> Tensor:
    """Σ x along `dim` (kept), fp64, on a grid of 2^22 steps of the largest element.

    Error at most n · max|x| · 2^-23 for n terms. Exact in any order for n < 2^31.
    """
    integers, step = quantise(x, dim, SUM_LEVELS)
    return integers.double().sum(dim, keepdim=True) * step.double()


def exact_square_sum(x: Tensor, levels: int = SQUARE_LEVELS) -> tuple[Tensor, Tensor]:
    """(Σ of squared integers as int64 scalar, step) over all of x; Σ x² ≈ integer · step².

    Rows are summed in fp64 (exact below 2^53 for rows of at most 2^20 elements), then in int64.
    """
    rows = x.reshape(-1, x.shape[-1]) if x.dim() else x.reshape(1, 1)
    multiplier, step = steps(rows.abs().amax(), levels)
    integers = whole(rows * multiplier).double()
    return (integers * integers).sum(-1).to(torch.int64).sum(), step


def operand_levels(inner: int, cap: int = 511) -> int:
    """Most levels q with inner · q² ≤ 2^24: a product over `inner` terms stays exact in fp32."""
    return min(cap, math.isqrt(2**24 // inner))
