"""What a GPU runs of `fused` by columns: their grids, and sums over rows.

Rules as in `device_functions`.
"""

from __future__ import annotations

from typing import Final

import triton
import triton.language as tl

from atoll.numerics.kernels.device_functions import (
    _float,
    _magnitude,
    _multiplier,
    _one_nan,
    _step,
    _store_slices,
    _whole,
    program,
)

# What of a matrix x a program is about: x, x · row, or x · (other · row).
AS_IT_IS: Final = tl.constexpr(0)
BY_ROW: Final = tl.constexpr(1)
BY_OTHER_AND_ROW: Final = tl.constexpr(2)


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
