"""RMSNorm, rotation and attention (SPEC-STEP.md, 7 to 9), forward and backward.

Shapes: G slices (sequences × query heads), T positions, d head width; t queries and s keys of a
tile. Keys and values have G / group slices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from atoll.numerics.kernels.grid import operand_levels
from atoll.numerics.kernels.interface import TILE
from atoll.numerics.kernels.reference import NORM_LEVELS
from atoll.numerics.tables import table_sizes
from atoll.numerics.trace.build.graph import Graph, Value
from atoll.numerics.trace.build.grids import (
    exact_sum,
    f32,
    f64,
    float_rows,
    grid_sum,
    joined,
    largest,
    rounded_sum,
    transposed,
    view,
)
from atoll.numerics.trace.build.making import Back, Making
from atoll.numerics.trace.opcodes import Op

_Back3: TypeAlias = Callable[[Value], tuple[Value, Value, Value]]
DOT_TERMS = 512
"""The most terms of a DOT_F32."""


def normed(m: Making, x: Value, name: str) -> tuple[Value, Back]:
    """RMSNorm of the rows of x [N, I], I being the gain's (N1 to N6)."""
    g, gain = m.graph, m.weight(f"{name}.weight")
    width, mean = gain.elements, f64(1.0 / gain.elements)
    squares, step = grid_sum(g, x, width, NORM_LEVELS, Op.SUM_SQUARES)
    words = [mean, f32(float(m.spec.norm_eps))]
    r = g.add(Op.RSTD, [squares, step], squares.elements, words)
    y = g.add(Op.NORMED, [x, r, gain], x.elements, [width])

    def back(gy: Value) -> Value:
        count, rows = x.elements, [width]
        u = g.add(Op.MUL_ROWS, [x, r], count, rows)
        h = g.add(Op.MUL_COLUMNS, [gy, gain], count, rows)
        a = exact_sum(g, g.add(Op.MUL, [h, u], count), width, 1.0 / width)
        gu = g.add(Op.MUL, [gy, u], count)
        m.meet(f"{name}.weight", exact_sum(g, transposed(g, gu, width), count // width))
        return g.add(Op.NORM_DX, [h, u, a, r], count, rows)

    return y, back


def rotated(m: Making, x: Value) -> tuple[Value, Back]:
    """x [B, heads, T, d] turned by position (R1, R2)."""
    g, spec = m.graph, m.spec
    offset = sum(table_sizes(spec, m.inner, m.total_steps)[:2])
    pairs = spec.seq * spec.head_dim // 2
    tables = [m.table(op, pairs, (), [offset, pairs]) for op in (Op.COSINES, Op.SINES)]

    def turn(y: Value, sign: float) -> Value:
        words = [spec.seq, spec.head_dim, f32(sign)]
        return g.add(Op.ROTATE, [y, *tables], y.elements, words)

    return turn(x, 1.0), lambda gy: turn(gy, -1.0)


def to_heads(m: Making, x: Value, heads: int) -> Value:
    """[B, T, heads · d] as [B, heads, T, d]."""
    length, width = m.spec.seq, m.spec.head_dim
    dims = m.inner.micro_batch, heads, length, width
    return view(m.graph, x, dims, (length * heads * width, width, heads * width, 1))


def from_heads(m: Making, x: Value, heads: int) -> Value:
    """[B, heads, T, d] as [B, T, heads · d]."""
    length, width = m.spec.seq, m.spec.head_dim
    dims = m.inner.micro_batch, length, heads, width
    return view(m.graph, x, dims, (heads * length * width, width, length * width, 1))


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Of one attention."""

    slices: int
    length: int
    width: int
    group: int

    @property
    def levels(self) -> int:
        return operand_levels(max(self.width, min(TILE, self.length)))

    def tiles(self) -> list[tuple[int, int]]:
        """First position and how many, of each."""
        starts = range(0, self.length, TILE)
        return [(at, min(TILE, self.length - at)) for at in starts]


@dataclass(frozen=True, slots=True)
class _Operand:
    """One of q, k, v and their gradients on its grid.

    Attributes:
        integers: f32 [slices, T, d]; turned: the same, [slices, d, T]; step: [slices, T].
        group: query slices that read one of its slices.
    """

    integers: Value
    turned: Value
    step: Value
    group: int


@dataclass(frozen=True, slots=True)
class _Tile:
    """What backward reads of a tile of queries: weights [G, t, seen] and r [G, t]."""

    weights: Value
    inverse: Value
    seen: int


def _operand(g: Graph, x: Value, sizes: _Sizes, group: int) -> _Operand:
    integers, step = float_rows(g, x, sizes.width, sizes.levels)
    dims = x.elements // (sizes.length * sizes.width), sizes.width, sizes.length
    turned = view(g, integers, dims, (sizes.length * sizes.width, 1, sizes.width))
    return _Operand(integers, turned, step, group)


def attention(m: Making, q: Value, k: Value, v: Value) -> tuple[Value, _Back3]:
    """Causal attention of q [B, H, T, d] and k, v [B, K, T, d] (A1 to A12)."""
    g, spec = m.graph, m.spec
    group = spec.heads // spec.kv_heads
    sizes = _Sizes(m.inner.micro_batch * spec.heads, spec.seq, spec.head_dim, group)
    factor = f32(1.0 / math.sqrt(spec.head_dim))
    queries = _operand(g, q, sizes, 1)
    scaled = g.add(Op.SCALE, [queries.step], queries.step.elements, [factor])
    queries = _Operand(queries.integers, queries.turned, scaled, 1)
    keys, values = (_operand(g, x, sizes, group) for x in (k, v))
    forward = _Forward(g, sizes, queries, keys, values)
    outputs, tiles = zip(*(forward.attend(*tile) for tile in sizes.tiles()), strict=True)
    output = joined(g, outputs, sizes.slices)

    def back(gy: Value) -> tuple[Value, Value, Value]:
        backward = _Backward(forward, _operand(g, gy, sizes, 1), _delta(g, gy, output, sizes))
        dq, dk, dv = backward.gradients(list(tiles))
        dq = g.add(Op.SCALE, [dq], dq.elements, [factor])
        return dq, _summed(g, dk, sizes), _summed(g, dv, sizes)

    return output, back


def _delta(g: Graph, gy: Value, output: Value, sizes: _Sizes) -> Value:
    """e of A7, [G, T]."""
    return exact_sum(g, g.add(Op.MUL, [gy, output], gy.elements), sizes.width)


def _summed(g: Graph, x: Value, sizes: _Sizes) -> Value:
    """A12's sums over the query heads of a key head: [G, T, d] to [G / group, T, d]."""
    row = sizes.length * sizes.width
    if sizes.group == 1:
        return x
    dims, strides = (sizes.slices // sizes.group, row), (sizes.group * row, 1)
    members = [view(g, x, dims, strides, row * at) for at in range(sizes.group)]
    total = members[0]
    for member in members[1:]:
        total = g.add(Op.ADD, [total, member], total.elements)
    return total


class _Forward:
    """A2 to A6."""

    def __init__(
        self, g: Graph, sizes: _Sizes, queries: _Operand, keys: _Operand, values: _Operand
    ) -> None:
        self.g, self.sizes = g, sizes
        self.queries, self.keys, self.values = queries, keys, values

    def attend(self, first: int, count: int) -> tuple[Value, _Tile]:
        """The output [G, t, d] of a tile of queries."""
        g, sizes, seen = self.g, self.sizes, first + count
        z = self._scores(first, count)
        rows, elements = sizes.slices * count, sizes.slices * count * seen
        peak = largest(g, z, seen, Op.MAX)
        words = [count, seen, first, 0]
        weights = g.add(Op.ATTENTION_WEIGHT, [z, peak], elements, words)
        sums = rounded_sum(g, weights, seen, 2.0**23)
        inverse = g.add(Op.INVERSE_TOTAL, [sums], rows, [f64(2.0**-23)])
        output: Value | None = None
        for key, width in sizes.tiles():
            if key <= first:
                output = self._mixed(weights, output, (count, seen), (key, width))
        assert output is not None
        y = g.add(Op.MUL_ROWS, [output, inverse], output.elements, [sizes.width])
        return y, _Tile(weights, inverse, seen)

    def _scores(self, first: int, count: int) -> Value:
        sizes, seen = self.sizes, first + count
        ints = tile_dot(self.g, sizes, (self.queries, first, count), (self.keys, 0, seen))
        words = [count, seen, sizes.length, self.keys.group, first, 0]
        inputs = [ints, self.queries.step, self.keys.step]
        return self.g.add(Op.SCORE, inputs, ints.elements, words)

    def _mixed(
        self,
        weights: Value,
        output: Value | None,
        rows: tuple[int, int],
        keys: tuple[int, int],
    ) -> Value:
        """A5 of one tile of keys."""
        (count, seen), (key, width) = rows, keys
        strides = key, count * seen, seen, 1
        x = weights, count, width, strides
        return weigh_and_add(self.g, self.sizes, x, (self.values, key), output)


def tile_dot(
    g: Graph, sizes: _Sizes, rows: tuple[_Operand, int, int], columns: tuple[_Operand, int, int]
) -> Value:
    """Σ over d of two tiles' integers, f32 [G, t, s]."""
    (a, first, t), (b, key, s) = rows, columns
    d, slice_ = sizes.width, sizes.length * sizes.width
    parts = []
    for at in range(0, d, DOT_TERMS):
        terms = min(DOT_TERMS, d - at)
        words = [t, s, terms, b.group, first * d + at, slice_, d, key * d + at, slice_, d]
        parts.append(g.add(Op.DOT_F32, [a.integers, b.integers], sizes.slices * t * s, words))
    total = parts[0]
    for part in parts[1:]:  # of integers within 2^24: exact in any order
        total = g.add(Op.ADD, [total, part], total.elements)
    return total


def weigh_and_add(
    g: Graph,
    sizes: _Sizes,
    rows: tuple[Value, int, int, tuple[int, int, int, int]],
    operand: tuple[_Operand, int],
    before: Value | None,
) -> Value:
    """before + 32(Σ n · operand) · s, n and s being the grid of the rows of x · operand's step.

    A5, A9, A10, A11: x is read by its strides as [G, m, n], the operand from a position on.
    """
    (x, m, n, strides), (by, first) = rows, operand
    words = [m, n, by.group, *strides, first, sizes.length, 0, 1]
    weighed = g.add(Op.WEIGHTED, [x, by.step], sizes.slices * m * n, words)
    integers, step = float_rows(g, weighed, n, sizes.levels)
    slice_ = sizes.length * sizes.width
    words = [m, sizes.width, n, by.group, 0, m * n, n, first, slice_, sizes.length]
    elements = sizes.slices * m * sizes.width
    ints = g.add(Op.DOT_F32, [integers, by.turned], elements, words)
    inputs = [ints, step] if before is None else [before, ints, step]
    return g.add(Op.ADD_SCALED, inputs, elements, [sizes.width, int(before is None)])


class _Backward:
    """A8 to A11."""

    def __init__(self, forward: _Forward, output: _Operand, delta: Value) -> None:
        self.f, self.output, self.delta = forward, output, delta

    def gradients(self, tiles: list[_Tile]) -> tuple[Value, Value, Value]:
        """dq, dk and dv, [G, T, d] each, before A12."""
        sizes = self.f.sizes
        dqs: list[Value] = []
        dks: dict[int, Value] = {}
        dvs: dict[int, Value] = {}
        for tile, (first, count) in zip(tiles, sizes.tiles(), strict=True):
            dq: Value | None = None
            for key, width in sizes.tiles():
                if key <= first:
                    square = _Square(tile, first, count, key, width)
                    share, slope = self._slopes(square)
                    dvs[key] = self._columns(share, square, self.output, dvs.get(key))
                    dq = self._rows(slope, square, dq)
                    dks[key] = self._columns(slope, square, self.f.queries, dks.get(key))
            assert dq is not None
            dqs.append(dq)
        g, slices = self.f.g, sizes.slices
        return (
            joined(g, dqs, slices),
            joined(g, list(dks.values()), slices),
            joined(g, list(dvs.values()), slices),
        )

    def _slopes(self, at: _Square) -> tuple[Value, Value]:
        """P and Z of A8, [G, t, s]."""
        g, sizes, values = self.f.g, self.f.sizes, self.f.values
        t, s, length, places = at.count, at.width, sizes.length, [at.first, at.key]
        elements = sizes.slices * t * s
        inputs = [at.tile.weights, at.tile.inverse]
        share = g.add(Op.SHARE, inputs, elements, [t, s, at.tile.seen, *places])
        ints = tile_dot(g, sizes, (self.output, at.first, t), (values, at.key, s))
        words = [t, s, length, values.group, *places]
        inputs = [ints, self.output.step, values.step]
        d_share = g.add(Op.SHARE_GRADIENT, inputs, elements, words)
        words = [t, s, length, *places]
        return share, g.add(Op.SLOPE, [share, d_share, self.delta], elements, words)

    def _columns(self, x: Value, at: _Square, by: _Operand, before: Value | None) -> Value:
        """A9 and A11: sums over the tile's queries."""
        strides = 0, at.count * at.width, 1, at.width
        operand = by, at.first
        rows = x, at.width, at.count, strides
        return weigh_and_add(self.f.g, self.f.sizes, rows, operand, before)

    def _rows(self, x: Value, at: _Square, before: Value | None) -> Value:
        """A10: sums over the tile's keys."""
        strides = 0, at.count * at.width, at.width, 1
        operand = self.f.keys, at.key
        rows = x, at.count, at.width, strides
        return weigh_and_add(self.f.g, self.f.sizes, rows, operand, before)


@dataclass(frozen=True, slots=True)
class _Square:
    """A tile of queries by one of keys: the forward of its queries, and where it stands."""

    tile: _Tile
    first: int
    count: int
    key: int
    width: int
