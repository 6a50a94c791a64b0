"""What a GPU runs of `fused`: the chains of operations between integer products, in Triton.

Rules of this file: one operator is one IEEE operation, since every program is launched without
contraction (`fused.launch`), and divisions and roots are the correctly rounded ones. Sums are of
integers, by atomic additions where several programs have a share, so that no order matters; maxima
are taken on the words of magnitudes, which order as the magnitudes do, with NaN above them all. NaN
is written as one word, since GPUs have another than CPUs. Rows are contiguous unless a stride is
given. Blocks are powers of two, and what lies beyond a row's end is read as 0.

Tillet et al., "Triton: an intermediate language and compiler for tiled neural network
computations", MAPL 2019.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import triton
import triton.language as tl

from atoll.numerics.kernels import elementary, grid, reference

Program = Any
"""A compiled function of Triton's: `program[(how many,)](arguments)`."""

_NAN: Final = tl.constexpr(0x7FC00000)
_MAGNITUDE: Final = tl.constexpr(0x7FFFFFFF)
_EVEN: Final = tl.constexpr(1.5 * 2.0**23)
"""Added and subtracted again it rounds |x| up to 2^22 to the nearest integer, half to even."""
_EVEN_ABOVE_0: Final = tl.constexpr(2.0**23)
"""The same for x from 0 up to 2^23; fp32 above is whole anyhow."""
_FLOOR: Final = tl.constexpr(grid.FLOOR)
_FLUSH: Final = tl.constexpr(reference.FLUSH)
_INT8_LEVELS: Final = tl.constexpr(float(grid.INT8_LEVELS))
_SPLIT_LEVELS: Final = tl.constexpr(float(grid.SPLIT_LEVELS))
_SPLIT_BASE: Final = tl.constexpr(float(grid.SPLIT_BASE))
_SPLIT_PART: Final = tl.constexpr(1.0 / grid.SPLIT_BASE)
_BASE: Final = tl.constexpr(grid.SPLIT_BASE)
_BASE_SQUARED: Final = tl.constexpr(grid.SPLIT_BASE**2)
_SUM_LEVELS: Final = tl.constexpr(float(grid.SUM_LEVELS))
_NORM_LEVELS: Final = tl.constexpr(float(reference.NORM_LEVELS))
_SQUARE_LEVELS: Final = tl.constexpr(float(grid.SQUARE_LEVELS))
_LOG2E: Final = tl.constexpr(elementary._LOG2E)
_LN2_HIGH: Final = tl.constexpr(elementary._LN2_HIGH)
_LN2_LOW: Final = tl.constexpr(elementary._LN2_LOW)
_EXP_0, _EXP_1, _EXP_2, _EXP_3, _EXP_4, _EXP_5 = (tl.constexpr(c) for c in elementary._EXP)
_UNDERFLOW: Final = tl.constexpr(elementary.EXP_UNDERFLOW)

# What of a matrix x a program is about: x, x · row, or x · (other · row).
AS_IT_IS: Final = tl.constexpr(0)
BY_ROW: Final = tl.constexpr(1)
BY_OTHER_AND_ROW: Final = tl.constexpr(2)


def program(function: Callable[..., Any]) -> Program:
    """One that knows nothing of its sizes but its blocks: what some were tried with, others run."""
    parameters = inspect.signature(function).parameters.values()
    sizes = [p.name for p in parameters if p.annotation is inspect.Parameter.empty]
    return triton.jit(do_not_specialize=sizes)(function)


# ---- one number --------------------------------------------------------------------------------


@triton.jit
def _magnitude(x):
    """Its bits but the sign, int32."""
    return x.to(tl.int32, bitcast=True) & _MAGNITUDE


@triton.jit
def _nan_like(x):
    return (tl.zeros_like(x).to(tl.int32) + _NAN).to(tl.float32, bitcast=True)


@triton.jit
def _one_nan(x):
    return tl.where(x == x, x, _nan_like(x))


@triton.jit
def _whole(x):
    """`grid.whole` of fp32 up to 2^22."""
    return tl.where(x == x, (x + _EVEN) - _EVEN, 0.0)


@triton.jit
def _whole_above_0(x):
    """`grid.whole` of fp32 from 0 to 2^30, as int64."""
    rounded = tl.where(x < _EVEN_ABOVE_0, (x + _EVEN_ABOVE_0) - _EVEN_ABOVE_0, x)
    return tl.where(x == x, rounded, 0.0).to(tl.int64)


@triton.jit
def _wide(peak):
    return tl.where(peak < _FLOOR, _FLOOR, peak).to(tl.float64)


@triton.jit
def _multiplier(peak, levels):
    """Onto the grid of so many levels; `_step` is off it: `grid.steps`."""
    one = tl.full([], 1.0, tl.float64)
    return ((one / _wide(peak)) * levels).to(tl.float32)


@triton.jit
def _step(peak, levels):
    one = tl.full([], 1.0, tl.float64)
    return _one_nan((_wide(peak) * (one / levels)).to(tl.float32))


@triton.jit
def _exp(x):
    """`elementary.exp`."""
    inside = tl.where(x < _UNDERFLOW, _UNDERFLOW, tl.where(x > 89.0, 89.0, x))
    power = _whole(inside * _LOG2E)
    rest = inside - power * _LN2_HIGH
    rest = rest - power * _LN2_LOW
    y = tl.zeros_like(rest) + _EXP_0
    y = y * rest + _EXP_1
    y = y * rest + _EXP_2
    y = y * rest + _EXP_3
    y = y * rest + _EXP_4
    y = y * rest + _EXP_5
    y = y * (rest * rest) + rest + 1.0
    half_scale = ((power.to(tl.int32) + 126) << 23).to(tl.float32, bitcast=True)
    return tl.where(x < _UNDERFLOW, 0.0, y * half_scale * 2.0)


@triton.jit
def _sigmoid(x):
    y = _exp(-x) + 1.0
    return tl.div_rn(tl.zeros_like(y) + 1.0, y)


@triton.jit
def _flushed(x):
    return _one_nan(tl.where(tl.abs(x) < _FLUSH, 0.0, x))


@triton.jit
def _inverse(total):
    """1 / total of fp64, as fp32."""
    one = tl.full([], 1.0, tl.float64)
    return (one / total).to(tl.float32)


@triton.jit
def _float(word):
    return word.to(tl.float32, bitcast=True)


# ---- one row -----------------------------------------------------------------------------------


@triton.jit
def _row_peak(x, n, BLOCK: tl.constexpr):
    """The largest magnitude of n numbers from x on, NaN above all."""
    peak = tl.zeros([BLOCK], tl.int32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        peak = tl.maximum(peak, _magnitude(tl.load(x + j, mask=j < n, other=0.0)))
    return _float(tl.max(peak, axis=0))


@triton.jit
def _store_slices(integer, high, low, at, mask):
    """A whole number as two slices of int8, as `grid.quantise_split` does."""
    top = (integer * _SPLIT_PART + _EVEN) - _EVEN
    tl.store(high + at, top.to(tl.int32).to(tl.int8), mask=mask)
    tl.store(low + at, (integer - top * _SPLIT_BASE).to(tl.int32).to(tl.int8), mask=mask)


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


# ---- columns -----------------------------------------------------------------------------------


@triton.jit
def _tile(x, other, row, i, j, mask, n, OF: tl.constexpr):
    """Elements [i, j] of x, x · row or x · (other · row)."""
    at = i[:, None] * n + j[None, :]
    v = tl.load(x + at, mask=mask, other=0.0)
    if OF == BY_ROW:
        v = v * tl.load(row + i[:, None], mask=mask, other=0.0)
    if OF == BY_OTHER_AND_ROW:
        v = v * (
            tl.load(other + at, mask=mask, other=0.0)
            * tl.load(row + i[:, None], mask=mask, other=0.0)
        )
    return v


@program
def column_peaks(
    x, other, row, peaks, rows, n, OF: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Raises peaks [n], words of magnitudes, to the columns' largest."""
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    mask = (i[:, None] < rows) & (j[None, :] < n)
    words = _magnitude(_tile(x, other, row, i, j, mask, n, OF))
    tl.atomic_max(peaks + j, tl.max(words, axis=0), mask=j < n)


@program
def column_grids(peaks, by, step, n, LEVELS: tl.constexpr, BLOCK: tl.constexpr):
    """What brings the columns onto their grids, and their steps."""
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    peak = _float(tl.load(peaks + j, mask=j < n, other=0))
    tl.store(by + j, _multiplier(peak, LEVELS), mask=j < n)
    tl.store(step + j, _step(peak, LEVELS), mask=j < n)


@program
def quantise_gradient_columns(
    g, row, by, slices, rows, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """g · row on its columns' grids, in two slices of [n, rows]: transposed, for products."""
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    mask = (i[:, None] < rows) & (j[None, :] < n)
    onto = tl.load(by + j, mask=j < n, other=0.0)[None, :]
    integer = _whole(_tile(g, g, row, i, j, mask, n, BY_ROW) * onto)
    _store_slices(integer, slices, slices + n * rows, j[None, :] * rows + i[:, None], mask)


@program
def add_columns(
    x, other, row, ids, by, sums, rows, n,
    OF: tl.constexpr, HAS_IDS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Adds each column's integers to sums [n], or to sums [ids[i], n]."""
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    mask = (i[:, None] < rows) & (j[None, :] < n)
    onto = tl.load(by + j, mask=j < n, other=0.0)[None, :]
    integer = _whole(_tile(x, other, row, i, j, mask, n, OF) * onto).to(tl.int64)
    if HAS_IDS:
        to = tl.load(ids + i, mask=i < rows, other=0)
        tl.atomic_add(sums + to[:, None] * n + j[None, :], integer, mask=mask)
    else:
        tl.atomic_add(sums + j, tl.sum(integer, axis=0), mask=j < n)


@program
def finish_columns(sums, step, out, n, BLOCK: tl.constexpr):
    """A row of sums off its columns' grids."""
    i, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK
    j = at + tl.arange(0, BLOCK)
    off = tl.load(step + j, mask=j < n, other=0.0).to(tl.float64)
    total = tl.load(sums + i * n + j, mask=j < n, other=0).to(tl.float64) * off
    tl.store(out + i * n + j, _one_nan(total.to(tl.float32)), mask=j < n)


# ---- element by element ------------------------------------------------------------------------


@program
def rescale(sums, stride, row, column, out, n, BLOCK: tl.constexpr):
    i, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK
    j = at + tl.arange(0, BLOCK)
    value = tl.load(sums + i * stride + j, mask=j < n, other=0).to(tl.float32)
    by = tl.load(row + i) * tl.load(column + j, mask=j < n, other=0.0)
    tl.store(out + i * n + j, _one_nan(value * by), mask=j < n)


@program
def rescale_stacked(sums, stride, row, out, rows, n, BLOCK: tl.constexpr):
    i, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK
    j = at + tl.arange(0, BLOCK)
    high = tl.load(sums + i * stride + j, mask=j < n, other=0).to(tl.float32)
    low = tl.load(sums + (rows + i) * stride + j, mask=j < n, other=0).to(tl.float32)
    value = (high * _SPLIT_BASE + low) * tl.load(row + i)
    tl.store(out + i * n + j, _one_nan(value), mask=j < n)


@program
def rescale_split(high, middle, middle2, row, column, out, n, BLOCK: tl.constexpr):
    i, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK
    j = at + tl.arange(0, BLOCK)
    top = tl.load(high + i * n + j, mask=j < n, other=0).to(tl.int64)
    both = tl.load(middle + i * n + j, mask=j < n, other=0).to(tl.int64)
    both += tl.load(middle2 + i * n + j, mask=j < n, other=0)
    value = (top * _BASE_SQUARED + both * _BASE).to(tl.float64).to(tl.float32)  # below 2^53
    by = tl.load(row + i) * tl.load(column + j, mask=j < n, other=0.0)
    tl.store(out + i * n + j, _one_nan(value * by), mask=j < n)


@program
def rotate(
    x, stride_b, stride_h, stride_t, cosines, sines, out, heads, positions, half, sign,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One position of a head: pairs (x[i], x[i + half])."""
    i = tl.program_id(0).to(tl.int64)
    t, b, h = i % positions, i // positions // heads, i // positions % heads
    x, out = x + b * stride_b + h * stride_h + t * stride_t, out + i * 2 * half
    j = tl.arange(0, BLOCK)
    u = tl.load(x + j, mask=j < half, other=0.0)
    v = tl.load(x + half + j, mask=j < half, other=0.0)
    c = tl.load(cosines + t * half + j, mask=j < half, other=0.0)
    s = tl.load(sines + t * half + j, mask=j < half, other=0.0) * sign
    tl.store(out + j, _one_nan(u * c - v * s), mask=j < half)
    tl.store(out + half + j, _one_nan(v * c + u * s), mask=j < half)


@program
def swiglu(gate, gate_stride, up, up_stride, out, n, BLOCK: tl.constexpr):
    i, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK
    j = at + tl.arange(0, BLOCK)
    a = tl.load(gate + i * gate_stride + j, mask=j < n, other=0.0)
    b = tl.load(up + i * up_stride + j, mask=j < n, other=0.0)
    tl.store(out + i * n + j, _one_nan(a * _sigmoid(a) * b), mask=j < n)


@program
def swiglu_gradient(g, gate, gate_stride, up, up_stride, dgate, dup, n, BLOCK: tl.constexpr):
    i, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK
    j = at + tl.arange(0, BLOCK)
    a = tl.load(gate + i * gate_stride + j, mask=j < n, other=0.0)
    b = tl.load(up + i * up_stride + j, mask=j < n, other=0.0)
    d = tl.load(g + i * n + j, mask=j < n, other=0.0)
    s = _sigmoid(a)
    silu = a * s
    slope = s + silu * (1.0 - s)
    tl.store(dgate + i * n + j, _one_nan(d * b * slope), mask=j < n)
    tl.store(dup + i * n + j, _one_nan(d * silu), mask=j < n)


@program
def squared_relu(x, g, out, n, IS_GRADIENT: tl.constexpr, BLOCK: tl.constexpr):
    j = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + j, mask=j < n, other=0.0)
    positive = tl.where(v < 0, 0.0, v)
    if IS_GRADIENT:
        y = tl.load(g + j, mask=j < n, other=0.0) * (positive * 2.0)
    else:
        y = positive * positive
    tl.store(out + j, _one_nan(y), mask=j < n)


@program
def drop(x, out, n, first, key0, key1, step, site, threshold, scale, BLOCK: tl.constexpr):
    """`philox.kept`: an element's word of its block of four."""
    j = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    element = first + j
    block = element // 4
    zero = (block * 0).to(tl.uint32)
    c0, c1, c2, c3 = tl.philox_impl(
        block.to(tl.uint32), (block >> 32).to(tl.uint32),
        zero + step.to(tl.uint32), zero + site.to(tl.uint32),
        zero + key0.to(tl.uint32), zero + key1.to(tl.uint32),
    )  # fmt: skip
    lane = element % 4
    word = tl.where(lane == 0, c0, tl.where(lane == 1, c1, tl.where(lane == 2, c2, c3)))
    v = _one_nan(tl.load(x + j, mask=j < n, other=0.0) * scale)
    tl.store(out + j, tl.where(word >= threshold.to(tl.uint32), v, 0.0), mask=j < n)


# ---- attention ---------------------------------------------------------------------------------


@program
def attention_weights(
    scores, q_step, q_stride, k_step, k_stride, out, peak, inverse, queries, keys, first,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A query's weights, its largest score and the inverse of its total."""
    i = tl.program_id(0).to(tl.int64)
    group, query = i // queries, i % queries
    seen = tl.minimum(first + query + 1, keys)
    scores, out, k_step = scores + i * keys, out + i * keys, k_step + group * k_stride
    qs = tl.load(q_step + group * q_stride + query)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    odd = tl.zeros([BLOCK], tl.int32)
    for start in range(0, seen, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = _scaled(scores, k_step, qs, j, seen)
        top = tl.where((v > top) & (j < seen), v, top)
        odd = odd | ((v != v) & (j < seen)).to(tl.int32)
    largest = tl.max(top, axis=0) + 0.0
    largest = tl.where(tl.max(odd, axis=0) > 0, _nan_like(largest), largest)
    sums = tl.zeros([BLOCK], tl.int64)
    for start in range(0, keys, BLOCK):
        j = start + tl.arange(0, BLOCK)
        weight = _one_nan(_exp(_scaled(scores, k_step, qs, j, seen) - largest))
        weight = tl.where(j < seen, weight, 0.0)
        sums += _whole_above_0(weight * 2.0**23)
        tl.store(out + j, weight, mask=j < keys)
    total = tl.sum(sums, axis=0).to(tl.float64) * (2.0**-23)
    tl.store(peak + i, largest)
    tl.store(inverse + i, _inverse(total))


@triton.jit
def _scaled(scores, k_step, qs, j, seen):
    """Off their grids; a product of integers may give a zero of either sign, and +0 makes it +0."""
    v = (tl.load(scores + j, mask=j < seen, other=0.0) + 0.0) * qs
    return v * tl.load(k_step + j, mask=j < seen, other=0.0)


@triton.jit
def _share_and_slope(
    scores, shares, q_step, k_step, peak, inverse, g_step, v_step, delta, row_stride, key_stride,
    i, j, queries, keys, first,
):  # fmt: skip
    """Of queries i and keys j of a slice: its share of attention, and the slope of its scores."""
    group = tl.program_id(0).to(tl.int64)
    mask = (i[:, None] < queries) & (j[None, :] < keys)
    at = (group * queries + i[:, None]) * keys + j[None, :]
    r, c = group * row_stride + i, group * key_stride
    in_rows, in_columns = i < queries, j < keys
    qs = tl.load(q_step + r, mask=in_rows, other=0.0)[:, None]
    ks = tl.load(k_step + c + j, mask=in_columns, other=0.0)[None, :]
    v = _exp(
        (tl.load(scores + at, mask=mask, other=0.0) + 0.0) * qs * ks
        - tl.load(peak + r, mask=in_rows, other=0.0)[:, None]
    )
    seen = mask & (j[None, :] <= first + i[:, None])
    share = tl.where(seen, v * tl.load(inverse + r, mask=in_rows, other=0.0)[:, None], 0.0)
    gs = tl.load(g_step + r, mask=in_rows, other=0.0)[:, None]
    vs = tl.load(v_step + c + j, mask=in_columns, other=0.0)[None, :]
    d = (tl.load(shares + at, mask=mask, other=0.0) + 0.0) * (gs * vs)
    d = d - tl.load(delta + r, mask=in_rows, other=0.0)[:, None]
    return share, tl.where(seen, share * d, 0.0), gs, qs, ks, at, mask


@program
def attention_gradient_rows(
    scores, shares, q_step, k_step, peak, inverse, g_step, v_step, delta, row_stride, key_stride,
    row, row_step, peaks, queries, keys, first, groups,
    LEVELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Rows of dS · k_step of a tile, and the peaks of the other two's columns: two words a key."""
    group = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    share, slope, gs, qs, ks, at, mask = _share_and_slope(
        scores, shares, q_step, k_step, peak, inverse, g_step, v_step, delta,
        row_stride, key_stride, i, j, queries, keys, first,
    )  # fmt: skip
    to = peaks + group * keys + j
    tl.atomic_max(to, tl.max(_magnitude(share * gs), axis=0), mask=j < keys)
    to += groups * keys
    tl.atomic_max(to, tl.max(_magnitude(slope * qs), axis=0), mask=j < keys)
    scaled = slope * ks
    largest = _float(tl.max(_magnitude(scaled), axis=1))
    tl.store(row_step + group * queries + i, _step(largest, LEVELS), mask=i < queries)
    tl.store(row + at, _whole(scaled * _multiplier(largest, LEVELS)[:, None]), mask=mask)


@program
def attention_gradient_columns(
    scores, shares, q_step, k_step, peak, inverse, g_step, v_step, delta, row_stride, key_stride,
    mixed, column, by, queries, keys, first, groups, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The other two, P · g_step and dS · q_step, on their columns' grids."""
    group = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    share, slope, gs, qs, _, at, mask = _share_and_slope(
        scores, shares, q_step, k_step, peak, inverse, g_step, v_step, delta,
        row_stride, key_stride, i, j, queries, keys, first,
    )  # fmt: skip
    by += group * keys + j
    onto = tl.load(by, mask=j < keys, other=0.0)[None, :]
    tl.store(mixed + at, _whole(share * gs * onto), mask=mask)
    onto = tl.load(by + groups * keys, mask=j < keys, other=0.0)[None, :]
    tl.store(column + at, _whole(slope * qs * onto), mask=mask)


# ---- optimiser ---------------------------------------------------------------------------------


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
