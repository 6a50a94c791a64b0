"""What a GPU runs of `fused` by rows, a program each: grids, norms and the loss.

Rules as in `device_functions`.
"""

from __future__ import annotations

from typing import Final

import triton
import triton.language as tl

from atoll.numerics.kernels import grid, reference
from atoll.numerics.kernels.device_functions import (
    _exp,
    _float,
    _inverse,
    _magnitude,
    _multiplier,
    _nan_like,
    _one_nan,
    _row_peak,
    _step,
    _store_slices,
    _whole,
    _whole_above_0,
    program,
)

_INT8_LEVELS: Final = tl.constexpr(float(grid.INT8_LEVELS))
_SPLIT_LEVELS: Final = tl.constexpr(float(grid.SPLIT_LEVELS))
_SUM_LEVELS: Final = tl.constexpr(float(grid.SUM_LEVELS))
_NORM_LEVELS: Final = tl.constexpr(float(reference.NORM_LEVELS))


@program
def quantise_rows(x, stride, high, low, step, n, LEVELS: tl.constexpr, BLOCK: tl.constexpr):
    """A row on a grid, in one slice of 127 levels or in two."""
    i = tl.program_id(0).to(tl.int64)
    peak = _row_peak(x + i * stride, n, BLOCK)
    tl.store(step + i, _step(peak, LEVELS))
    by = _multiplier(peak, LEVELS)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        integer = _whole(tl.load(x + i * stride + j, mask=j < n, other=0.0) * by)
        if LEVELS > _INT8_LEVELS:
            _store_slices(integer, high, low, i * n + j, j < n)
        else:
            tl.store(high + i * n + j, integer.to(tl.int32).to(tl.int8), mask=j < n)


@program
def quantise_gradient_rows(g, column, slices, step, rows, n, BLOCK: tl.constexpr):
    """A row of g · column in two slices, `rows` rows apart."""
    i = tl.program_id(0).to(tl.int64)
    peak = tl.zeros([BLOCK], tl.int32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        scaled = tl.load(g + i * n + j, mask=j < n, other=0.0) * tl.load(
            column + j, mask=j < n, other=0.0
        )
        peak = tl.maximum(peak, _magnitude(scaled))
    largest = _float(tl.max(peak, axis=0))
    tl.store(step + i, _step(largest, _SPLIT_LEVELS))
    by = _multiplier(largest, _SPLIT_LEVELS)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        scaled = tl.load(g + i * n + j, mask=j < n, other=0.0) * tl.load(
            column + j, mask=j < n, other=0.0
        )
        _store_slices(_whole(scaled * by), slices + i * n, slices + (rows + i) * n, j, j < n)


@program
def quantise_levels(
    x, stride, factors, apart, per, out, step, n, LEVELS: tl.constexpr, BLOCK: tl.constexpr
):
    """A row, times factors where there are any (the same for `per` rows), on a grid, in fp32."""
    i = tl.program_id(0).to(tl.int64)
    peak = tl.zeros([BLOCK], tl.int32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + i * stride + j, mask=j < n, other=0.0)
        if per > 0:
            v = v * tl.load(factors + i // per * apart + j, mask=j < n, other=0.0)
        peak = tl.maximum(peak, _magnitude(v))
    largest = _float(tl.max(peak, axis=0))
    tl.store(step + i, _step(largest, LEVELS))
    by = _multiplier(largest, LEVELS)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + i * stride + j, mask=j < n, other=0.0)
        if per > 0:
            v = v * tl.load(factors + i // per * apart + j, mask=j < n, other=0.0)
        tl.store(out + i * n + j, _whole(v * by), mask=j < n)


@program
def row_dot(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    peak = tl.zeros([BLOCK], tl.int32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        left = tl.load(x + i * n + j, mask=j < n, other=0.0)
        peak = tl.maximum(peak, _magnitude(left * tl.load(y + i * n + j, mask=j < n, other=0.0)))
    largest = _float(tl.max(peak, axis=0))
    by = _multiplier(largest, _SUM_LEVELS)
    sums = tl.zeros([BLOCK], tl.int64)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        left = tl.load(x + i * n + j, mask=j < n, other=0.0)
        product = left * tl.load(y + i * n + j, mask=j < n, other=0.0)
        sums += _whole(product * by).to(tl.int64)
    total = tl.sum(sums, axis=0).to(tl.float64) * _step(largest, _SUM_LEVELS).to(tl.float64)
    tl.store(out + i, _one_nan(total.to(tl.float32)))


@program
def rms_norm(x, gain, out, inverse, n, eps, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    peak = _row_peak(x + i * n, n, BLOCK)
    by = _multiplier(peak, _NORM_LEVELS)
    sums = tl.zeros([BLOCK], tl.int64)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        integer = _whole(tl.load(x + i * n + j, mask=j < n, other=0.0) * by).to(tl.int64)
        sums += integer * integer
    step = _step(peak, _NORM_LEVELS).to(tl.float64)
    square = tl.sum(sums, axis=0).to(tl.float64) * (step * step)
    one = tl.full([], 1.0, tl.float64)
    mean = (square * (one / n)).to(tl.float32) + eps
    root = tl.sqrt_rn(mean)
    r = tl.div_rn(tl.zeros_like(root) + 1.0, root)
    tl.store(inverse + i, _one_nan(r))
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + i * n + j, mask=j < n, other=0.0) * r
        v = v * tl.load(gain + j, mask=j < n, other=0.0)
        tl.store(out + i * n + j, _one_nan(v), mask=j < n)


@triton.jit
def _gained_and_unit(g, x, gain, r, j, n):
    gained = tl.load(g + j, mask=j < n, other=0.0) * tl.load(gain + j, mask=j < n, other=0.0)
    return gained, tl.load(x + j, mask=j < n, other=0.0) * r


@program
def rms_norm_gradient(g, x, inverse, gain, dx, n, BLOCK: tl.constexpr):
    """Of x; the gain's is a sum over rows: `column_peaks`, `add_columns` and `finish_columns`."""
    i = tl.program_id(0).to(tl.int64)
    g, x, dx = g + i * n, x + i * n, dx + i * n
    r = tl.load(inverse + i)
    peak = tl.zeros([BLOCK], tl.int32)
    for start in range(0, n, BLOCK):
        gained, unit = _gained_and_unit(g, x, gain, r, start + tl.arange(0, BLOCK), n)
        peak = tl.maximum(peak, _magnitude(gained * unit))
    largest = _float(tl.max(peak, axis=0))
    by = _multiplier(largest, _SUM_LEVELS)
    sums = tl.zeros([BLOCK], tl.int64)
    for start in range(0, n, BLOCK):
        gained, unit = _gained_and_unit(g, x, gain, r, start + tl.arange(0, BLOCK), n)
        sums += _whole((gained * unit) * by).to(tl.int64)
    total = tl.sum(sums, axis=0).to(tl.float64) * _step(largest, _SUM_LEVELS).to(tl.float64)
    one = tl.full([], 1.0, tl.float64)
    mean = (total * (one / n)).to(tl.float32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        gained, unit = _gained_and_unit(g, x, gain, r, j, n)
        tl.store(dx + j, _one_nan((gained - unit * mean) * r), mask=j < n)


@triton.jit
def _top(x, n, BLOCK: tl.constexpr):
    """The largest of n numbers from x on; NaN if any is, and +0 for a zero of either sign."""
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    odd = tl.zeros([BLOCK], tl.int32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + j, mask=j < n, other=float("-inf"))
        top = tl.where(v > top, v, top)
        odd = odd | (v != v).to(tl.int32)
    largest = tl.max(top, axis=0) + 0.0
    return tl.where(tl.max(odd, axis=0) > 0, _nan_like(largest), largest)


@program
def softmax_loss(x, targets, slope, total, picked, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + i)
    is_there = target >= 0
    x, slope = x + i * n, slope + i * n
    top = _top(x, n, BLOCK)
    sums = tl.zeros([BLOCK], tl.int64)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        weight = _exp(_one_nan(tl.load(x + j, mask=j < n, other=0.0) - top))
        sums += tl.where(j < n, _whole_above_0(weight * 2.0**30), 0)
    all_of_it = tl.sum(sums, axis=0).to(tl.float64) * (2.0**-30)
    inverse = _inverse(all_of_it)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        shifted = _one_nan(tl.load(x + j, mask=j < n, other=0.0) - top)
        share = _exp(shifted) * inverse
        share = _one_nan(tl.where(j == target, share - 1.0, share))
        tl.store(slope + j, tl.where(is_there, share, 0.0), mask=j < n)
        tl.store(picked + i + j * 0, shifted, mask=j == target)
    one = tl.full([], 1.0, tl.float64)
    tl.store(total + i, tl.where(is_there, all_of_it, one))
