"""Grids, exact sums and products: what the chapters of SPEC-STEP.md have in common.

Rule of this file: an operation reads at most 4 KiB of an operand for an element, so whatever runs
along a line is worked out in blocks, again and again until one number is left; every such tree of
blocks gives the same, since maxima and integer sums do not depend on order.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from atoll.numerics.trace.build.graph import Graph, Value
from atoll.numerics.trace.integers import GRID_BLOCK, I64_BLOCK, MAX_BLOCK, dot_block
from atoll.numerics.trace.opcodes import Op

FAN = 32
"""Inputs of a CONCAT: so many of a template are shown in one transaction."""


def f32(x: float) -> int:
    """The bits of x rounded to binary32, as a word."""
    return int.from_bytes(struct.pack(">f", x), "big")


def f64(x: float) -> int:
    """The bits of x as a word."""
    return int.from_bytes(struct.pack(">d", x), "big")


def blocks(columns: int, block: int) -> int:
    """How many blocks a line has."""
    return -(-columns // block)


def view(g: Graph, x: Value, dims: Sequence[int], strides: Sequence[int], offset: int = 0) -> Value:
    """x by up to four dimensions, strides and offset in elements."""
    full = [1] * (4 - len(dims)) + list(dims), [0] * (4 - len(dims)) + list(strides)
    words = [x.width, *full[0], offset, *full[1]]
    return g.add(Op.VIEW, [x], prod(dims), words)


def transposed(g: Graph, x: Value, columns: int) -> Value:
    """x [R, columns] as [columns, R]."""
    rows = x.elements // columns
    return view(g, x, (columns, rows), (1, columns))


def joined(g: Graph, parts: Sequence[Value], rows: int = 1) -> Value:
    """Columns [rows, cᵢ] side by side; of one part itself."""
    while len(parts) > 1:
        parts = [
            _concat(g, parts[i : i + FAN], rows) if len(parts[i : i + FAN]) > 1 else parts[i]
            for i in range(0, len(parts), FAN)
        ]
    return parts[0]


def _concat(g: Graph, parts: Sequence[Value], rows: int) -> Value:
    columns = [part.elements // rows for part in parts]
    width = parts[0].width
    return g.add(Op.CONCAT, parts, rows * sum(columns), [width, *columns])


def largest(g: Graph, x: Value, columns: int, op: Op = Op.MAX_ABS) -> Value:
    """The largest of each row [R], of magnitudes or, with MAX, of the numbers."""
    rows = x.elements // columns
    while True:
        count = blocks(columns, MAX_BLOCK)
        x = g.add(op, [x], rows * count, [columns, MAX_BLOCK])
        if count == 1:
            return x
        columns = count


def total(g: Graph, sums: Value, columns: int) -> Value:
    """The sum of each row of i64 [R, columns]."""
    rows = sums.elements // columns
    while columns > 1:
        count = blocks(columns, I64_BLOCK)
        sums = g.add(Op.SUM_I64, [sums], rows * count, [columns, I64_BLOCK])
        columns = count
    return sums


def grid(g: Graph, x: Value, columns: int, levels: int) -> tuple[Value, Value]:
    """`up` and step [R] of the rows of x (chapter 2, lines 1 to 3)."""
    m = largest(g, x, columns)
    up = g.add(Op.GRID_UP, [m], m.elements, [levels])
    return up, g.add(Op.GRID_STEP, [m], m.elements, [levels])


def int8_rows(g: Graph, x: Value, columns: int) -> tuple[Value, Value]:
    """The int8 grid of the rows: integers i8 and steps."""
    up, step = grid(g, x, columns, 127)
    return g.add(Op.QUANTISE_I8, [x, up], x.elements, [columns]), step


def float_rows(g: Graph, x: Value, columns: int, levels: int) -> tuple[Value, Value]:
    """A grid of the rows whose integers are held in f32, and steps."""
    up, step = grid(g, x, columns, levels)
    return g.add(Op.QUANTISE_F32, [x, up], x.elements, [columns]), step


def split_rows(g: Graph, x: Value, columns: int) -> tuple[Value, Value, Value]:
    """The split grid of the rows: high and low slices i8, and steps."""
    up, step = grid(g, x, columns, 32384)
    high = g.add(Op.SPLIT_HIGH, [x, up], x.elements, [columns])
    low = g.add(Op.SPLIT_LOW, [x, up], x.elements, [columns])
    return high, low, step


def grid_sum(
    g: Graph, x: Value, columns: int, levels: int, op: Op = Op.SUM_GRID
) -> tuple[Value, Value]:
    """Σ n of each row i64 [R], or Σ n² with SUM_SQUARES, and the steps."""
    up, step = grid(g, x, columns, levels)
    count = blocks(columns, GRID_BLOCK)
    sums = g.add(op, [x, up], step.elements * count, [columns, GRID_BLOCK])
    return total(g, sums, count), step


def exact_sum(g: Graph, x: Value, columns: int, factor: float = 1.0) -> Value:
    """32(S(row) · factor) of each row [R]."""
    sums, step = grid_sum(g, x, columns, 2**22)
    return g.add(Op.EXACT_SUM, [sums, step], sums.elements, [f64(factor)])


def power_sums(g: Graph, x: Value, *, rows: int, columns: int) -> list[Value]:
    """Sums of the rows [R] and of the columns [C] of x [R, C], on one grid of a power of two."""
    top = largest(g, x, x.elements)
    up, step = (g.add(Op.POWER_GRID, [top], 1, [direction]) for direction in (1, 0))
    of_rows = _power_sum(g, x, columns, up=up, step=step)
    return [of_rows, _power_sum(g, transposed(g, x, columns), rows, up=up, step=step)]


def _power_sum(g: Graph, x: Value, columns: int, *, up: Value, step: Value) -> Value:
    rows, count = x.elements // columns, blocks(columns, GRID_BLOCK)
    up, step = (view(g, each, (rows,), (0,)) for each in (up, step))
    sums = g.add(Op.SUM_GRID, [x, up], rows * count, [columns, GRID_BLOCK])
    return g.add(Op.EXACT_SUM, [total(g, sums, count), step], rows, [f64(1.0)])


def rounded_sum(g: Graph, x: Value, columns: int, factor: float) -> Value:
    """Σ rint(x · factor) of each row, i64 [R]."""
    rows, count = x.elements // columns, blocks(columns, GRID_BLOCK)
    words = [columns, GRID_BLOCK, f32(factor)]
    sums = g.add(Op.SUM_ROUND, [x], rows * count, words)
    return total(g, sums, count)


def dot(g: Graph, a: Value, b: Value, inner: int) -> Value:
    """Σ a[r, k] · b[s, k] of i8 [R, inner] and [S, inner]: i32, or i64 where it is of blocks."""
    rows, columns = a.elements // inner, b.elements // inner
    block = dot_block(inner)
    count = blocks(inner, block)
    sums = g.add(Op.DOT_I8, [a, b], rows * columns * count, [columns, inner, block])
    if count == 1:
        return sums
    again = blocks(count, MAX_BLOCK)
    wide = g.add(Op.SUM_I32, [sums], rows * columns * again, [count, MAX_BLOCK])
    return total(g, wide, again)


def rescale(g: Graph, sums: Value, columns: int, row: Value, column: Value | None = None) -> Value:
    """32(Σ) · (row · column), or · row without a column."""
    inputs = [sums, row] if column is None else [sums, row, column]
    words = [columns, sums.width, int(column is not None)]
    return g.add(Op.RESCALE, inputs, sums.elements, words)


def rescale_stacked(g: Graph, high: Value, low: Value, columns: int, row: Value) -> Value:
    """(32(high) · 254 + 32(low)) · row."""
    words = [columns, high.width]
    return g.add(Op.RESCALE_STACKED, [high, low, row], high.elements, words)


@dataclass(frozen=True, slots=True)
class Split:
    """Integers of a split grid: the high part of each, and the low one."""

    high: Value
    low: Value


def split_dot(g: Graph, a: Split, b: Split, inner: int) -> Value:
    """P of two split grids [R, inner] and [S, inner]: i64 [R, S]."""
    parts = [
        dot(g, a.high, b.high, inner), dot(g, a.high, b.low, inner), dot(g, a.low, b.high, inner)
    ]  # fmt: skip
    return g.add(Op.COMBINE_SPLIT, parts, parts[0].elements, [parts[0].width])
