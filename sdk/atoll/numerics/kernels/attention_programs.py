"""Attention on a GPU in three programs, as in FlashAttention-2 (Dao 2023).

Rules as in `device_functions`.

A program has some queries (`attend`, `query_gradient`) or some keys (`key_gradient`) of one slice
and goes through the tiles of the other, in the order of `attention.Attention`: each has whole rows
or whole columns of every tile, and so their grids. Integers of a grid, at most 511, are fp16, and a
tensor core adds their products up in fp32, where every sum is at most 2^24.

Shapes: q, k, v and their gradients [G, length, width], steps, peak, inverse and delta [G, length].
"""

from __future__ import annotations

import triton
import triton.language as tl

from atoll.numerics.kernels.device_functions import (
    _exp,
    _float,
    _inverse,
    _magnitude,
    _multiplier,
    _nan_like,
    _one_nan,
    _step,
    _whole,
    program,
)


@triton.jit
def _place(length, ROWS: tl.constexpr):
    """Of a program: where its slice begins, which block of it is its own, and of how many."""
    blocks = tl.cdiv(length, ROWS)
    return (tl.program_id(0) // blocks).to(tl.int64) * length, tl.program_id(0) % blocks, blocks


@triton.jit
def _rows(x, i, length, width, D: tl.constexpr):
    """Rows i of a slice, and zeros beyond its length and width."""
    d = tl.arange(0, D)
    mask = (i[:, None] < length) & (d[None, :] < width)
    return tl.load(x + i[:, None] * width + d[None, :], mask=mask, other=0.0)


@triton.jit
def _store_rows(x, i, value, length, width, D: tl.constexpr):
    d = tl.arange(0, D)
    mask = (i[:, None] < length) & (d[None, :] < width)
    tl.store(x + i[:, None] * width + d[None, :], value, mask=mask)


@triton.jit
def _of(x, i, length):
    """A number of each row i."""
    return tl.load(x + i, mask=i < length, other=0.0)


@triton.jit
def _product(a, b):
    """a · bᵀ of integers, where a zero may have either sign: no result depends on it."""
    return tl.dot(a, tl.trans(b))


@triton.jit
def _on_grid(x, levels):
    """Rows on their grids, fp16, and their steps: `grid.quantise`."""
    peak = _float(tl.max(_magnitude(x), axis=1))
    return _whole(x * _multiplier(peak, levels)[:, None]).to(tl.float16), _step(peak, levels)


@program
def attend(
    q, q_step, k, k_step, v, v_step, out, peak, inverse, length, width, levels,
    D: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Queries over all the keys that they see: twice, as weights need the largest score."""
    group, at, blocks = _place(length, ROWS)
    first = (blocks - 1 - at) * ROWS  # the longest first
    q, k, v, out = q + group * width, k + group * width, v + group * width, out + group * width
    q_step, k_step, v_step, peak = q_step + group, k_step + group, v_step + group, peak + group
    i, j = first + tl.arange(0, ROWS), tl.arange(0, TILE)
    queries, qs = _rows(q, i, length, width, D), _of(q_step, i, length)[:, None]
    top = tl.full([ROWS], float("-inf"), tl.float32)
    odd = tl.zeros([ROWS], tl.int32)
    for start in range(0, first + ROWS, TILE):
        keys, ks = _rows(k, start + j, length, width, D), _of(k_step, start + j, length)[None, :]
        score = _product(queries, keys) * qs * ks
        score = tl.where(start + j[None, :] <= i[:, None], score, float("-inf"))
        top = tl.maximum(top, tl.max(score, axis=1))
        odd = odd | tl.max((score != score).to(tl.int32), axis=1)
    top = tl.where(odd > 0, _nan_like(top), top + 0.0)
    total = tl.zeros([ROWS], tl.int64)
    mixed = tl.zeros([ROWS, D], tl.float32)
    for start in range(0, first + ROWS, TILE):
        keys, ks = _rows(k, start + j, length, width, D), _of(k_step, start + j, length)[None, :]
        weight = _one_nan(_exp(_product(queries, keys) * qs * ks - top[:, None]))
        weight = tl.where(start + j[None, :] <= i[:, None], weight, 0.0)
        # At most 2^23 each.
        total += tl.sum(_whole_weight(weight), axis=1).to(tl.int64)
        integers, step = _on_grid(weight * _of(v_step, start + j, length)[None, :], levels)
        mixed += tl.dot(integers, _rows(v, start + j, length, width, D)) * step[:, None]
    by = _inverse(total.to(tl.float64) * (2.0**-23))
    tl.store(peak + i, top, mask=i < length)
    tl.store(inverse + group + i, by, mask=i < length)
    _store_rows(out, i, mixed * by[:, None], length, width, D)


@triton.jit
def _whole_weight(weight):
    """`grid.whole` of weight · 2^23, int32, for weights from 0 to 1 and NaN."""
    rounded = (weight * 2.0**23 + 2.0**23) - 2.0**23
    return tl.where(weight == weight, rounded, 0.0).to(tl.int32)


@triton.jit
def _share_and_slope(scores, shares, qs, ks, gs, vs, top, by, delta, seen):
    """Shares of attention, and slopes of their scores, of either orientation's integers."""
    share = tl.where(seen, _exp(scores * qs * ks - top) * by, 0.0)
    return share, tl.where(seen, share * (shares * (gs * vs) - delta), 0.0)


@program
def query_gradient(
    q, q_step, k, k_step, v, v_step, g, g_step, peak, inverse, delta, dq, length, width, levels,
    D: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Queries' gradients but for the scale, from the keys that they see."""
    group, at, blocks = _place(length, ROWS)
    first = (blocks - 1 - at) * ROWS
    q, k, v, g = q + group * width, k + group * width, v + group * width, g + group * width
    q_step, k_step, v_step, g_step = q_step + group, k_step + group, v_step + group, g_step + group
    i, j = first + tl.arange(0, ROWS), tl.arange(0, TILE)
    queries, qs = _rows(q, i, length, width, D), _of(q_step, i, length)[:, None]
    gradient, gs = _rows(g, i, length, width, D), _of(g_step, i, length)[:, None]
    top, by = _of(peak + group, i, length)[:, None], _of(inverse + group, i, length)[:, None]
    off = _of(delta + group, i, length)[:, None]
    found = tl.zeros([ROWS, D], tl.float32)
    for start in range(0, first + ROWS, TILE):
        keys, ks = _rows(k, start + j, length, width, D), _of(k_step, start + j, length)[None, :]
        values, vs = _rows(v, start + j, length, width, D), _of(v_step, start + j, length)[None, :]
        seen = start + j[None, :] <= i[:, None]
        scores, shares = _product(queries, keys), _product(gradient, values)
        _, slope = _share_and_slope(scores, shares, qs, ks, gs, vs, top, by, off, seen)
        integers, step = _on_grid(slope * ks, levels)
        found += tl.dot(integers, keys) * step[:, None]
    _store_rows(dq + group * width, i, found, length, width, D)


@program
def key_gradient(
    q, q_step, k, k_step, v, v_step, g, g_step, peak, inverse, delta, dk, dv, length, width, levels,
    D: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Keys' and values' gradients, from the queries that see them: a row here is a key."""
    group, at, _ = _place(length, ROWS)
    first = at * ROWS
    q, k, v, g = q + group * width, k + group * width, v + group * width, g + group * width
    q_step, k_step, v_step, g_step = q_step + group, k_step + group, v_step + group, g_step + group
    peak, inverse, delta = peak + group, inverse + group, delta + group
    i, j = first + tl.arange(0, ROWS), tl.arange(0, TILE)
    keys, ks = _rows(k, i, length, width, D), _of(k_step, i, length)[:, None]
    values, vs = _rows(v, i, length, width, D), _of(v_step, i, length)[:, None]
    key, value = tl.zeros([ROWS, D], tl.float32), tl.zeros([ROWS, D], tl.float32)
    for start in range(first // TILE * TILE, length, TILE):
        t = start + j
        queries, qs = _rows(q, t, length, width, D), _of(q_step, t, length)[None, :]
        gradient, gs = _rows(g, t, length, width, D), _of(g_step, t, length)[None, :]
        top, by = _of(peak, t, length)[None, :], _of(inverse, t, length)[None, :]
        seen = (i[:, None] <= t[None, :]) & (t[None, :] < length)
        scores, shares = _product(keys, queries), _product(values, gradient)
        off = _of(delta, t, length)[None, :]
        share, slope = _share_and_slope(scores, shares, qs, ks, gs, vs, top, by, off, seen)
        integers, step = _on_grid(share * gs, levels)
        value += tl.dot(integers, gradient) * step[:, None]
        integers, step = _on_grid(slope * qs, levels)
        key += tl.dot(integers, queries) * step[:, None]
    _store_rows(dk + group * width, i, key, length, width, D)
    _store_rows(dv + group * width, i, value, length, width, D)
