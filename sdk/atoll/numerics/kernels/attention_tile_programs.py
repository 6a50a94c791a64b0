"""What a GPU runs of `fused` in attention's tiles, between their integer products.

Rules as in `device_functions`; `attention_programs` has attention whole.
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
    _whole_above_0,
    program,
)


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
