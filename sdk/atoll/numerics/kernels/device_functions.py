"""What a GPU computes of a number or of a row, in Triton: what `*_programs` are made of.

Rules of this file and of these: one operator is one IEEE operation, since every program is launched
without contraction (`fused.launch`), and divisions and roots are the correctly rounded ones. Sums
are of integers, by atomic additions where several programs have a share, so that no order matters;
maxima are taken on the words of magnitudes, which order as the magnitudes do, with NaN above them
all. NaN is written as one word, since GPUs have another than CPUs. Rows are contiguous unless a
stride is given. Blocks are powers of two, and what lies beyond a row's end is read as 0.

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
_SPLIT_BASE: Final = tl.constexpr(float(grid.SPLIT_BASE))
_SPLIT_PART: Final = tl.constexpr(1.0 / grid.SPLIT_BASE)
_LOG2E: Final = tl.constexpr(elementary._LOG2E)
_LN2_HIGH: Final = tl.constexpr(elementary._LN2_HIGH)
_LN2_LOW: Final = tl.constexpr(elementary._LN2_LOW)
_EXP_0, _EXP_1, _EXP_2, _EXP_3, _EXP_4, _EXP_5 = (tl.constexpr(c) for c in elementary._EXP)
_UNDERFLOW: Final = tl.constexpr(elementary.EXP_UNDERFLOW)


def program(function: Callable[..., Any]) -> Program:
    """One that knows nothing of its sizes but its blocks: what some were tried with, others run."""
    parameters = inspect.signature(function).parameters.values()
    sizes = [p.name for p in parameters if p.annotation is inspect.Parameter.empty]
    return triton.jit(do_not_specialize=sizes)(function)


# ---- one number ----------------------------------------------------------------------------------


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


# ---- one row -------------------------------------------------------------------------------------


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
