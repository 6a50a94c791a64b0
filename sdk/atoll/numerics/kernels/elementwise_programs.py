"""What a GPU runs of `fused` element by element between integer products.

Rules as in `device_functions`.
"""

from __future__ import annotations

from typing import Final

import triton.language as tl

from atoll.numerics.kernels import grid
from atoll.numerics.kernels.device_functions import (
    _SPLIT_BASE,
    _one_nan,
    _sigmoid,
    program,
)

_BASE: Final = tl.constexpr(grid.SPLIT_BASE)
_BASE_SQUARED: Final = tl.constexpr(grid.SPLIT_BASE**2)


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
