"""What a GPU runs of the optimisers: the gradient's norm, momentum and AdamW.

Rules as in `device_functions`.
"""

from __future__ import annotations

from typing import Final

import triton.language as tl

from atoll.numerics.kernels import grid
from atoll.numerics.kernels.device_functions import (
    _float,
    _flushed,
    _magnitude,
    _multiplier,
    _one_nan,
    _step,
    _whole,
    program,
)

_SQUARE_LEVELS: Final = tl.constexpr(float(grid.SQUARE_LEVELS))


@program
def peak_of(x, peak, n, BLOCK: tl.constexpr):
    """Raises a word to the largest magnitude of n numbers."""
    j = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(peak, tl.max(_magnitude(tl.load(x + j, mask=j < n, other=0.0)), axis=0))


@program
def add_squares(x, peak, sums, n, BLOCK: tl.constexpr):
    """Adds n squares of integers of 2^16 levels to a sum, and says the grid's step as a word."""
    j = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    largest = _float(tl.load(peak))
    by = _multiplier(largest, _SQUARE_LEVELS)
    integer = _whole(tl.load(x + j, mask=j < n, other=0.0) * by).to(tl.int64)
    tl.atomic_add(sums, tl.sum(integer * integer, axis=0))
    tl.store(sums + 1, _step(largest, _SQUARE_LEVELS).to(tl.int32, bitcast=True).to(tl.int64))


@program
def momentum(m, g, out, n, keep, add, BLOCK: tl.constexpr):
    j = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(m + j, mask=j < n, other=0.0) * keep
    after = before + tl.load(g + j, mask=j < n, other=0.0) * add
    tl.store(out + j, _flushed(after), mask=j < n)


@program
def adamw(
    p, m, v, g, p_out, m_out, v_out, n,
    scale, beta1, rest1, beta2, rest2, correct1, correct2, eps, decay, rate, BLOCK: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = j < n
    gradient = tl.load(g + j, mask=mask, other=0.0) * scale
    first = _flushed(tl.load(m + j, mask=mask, other=0.0) * beta1 + gradient * rest1)
    second = tl.load(v + j, mask=mask, other=0.0) * beta2 + (gradient * gradient) * rest2
    second = _flushed(second)
    before = tl.load(p + j, mask=mask, other=0.0)
    step = tl.div_rn(first * correct1, tl.sqrt_rn(second * correct2) + eps) + before * decay
    tl.store(p_out + j, _one_nan(before - step * rate), mask=mask)
    tl.store(m_out + j, first, mask=mask)
    tl.store(v_out + j, second, mask=mask)
