"""Attention (SPEC-STEP.md, 9), forward and backward, a tile of queries by a tile of keys at a time.

Shapes: G slices (sequences × query heads), T positions, d head width; t queries and s keys of a
tile. Keys and values have G / group slices (grouped-query attention).

FlashAttention (Dao et al. 2022) keeps a running maximum and rescales what it has summed, which
rounds once a tile. Here a row's maximum is over all keys that it sees, before anything is weighed,
and its weights are summed as integers. How the keys are cut then shows only where a tile has a grid
of its own (A5, A9 to A11), and the tiles of those are added in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from atoll.numerics.kernels.grid import operand_levels
from atoll.numerics.kernels.interface import TILE
from atoll.numerics.trace.build.graph import Graph, Value
from atoll.numerics.trace.build.grids import (
    exact_sum,
    f32,
    f64,
    float_rows,
    joined,
    largest,
    rounded_sum,
    view,
)
from atoll.numerics.trace.build.making import Making
from atoll.numerics.trace.opcodes import Op

DOT_TERMS = 512
"""The most terms of a DOT_F32, which may read 4 KiB of an operand for an element."""


@dataclass(frozen=True, slots=True)
class AttentionGradients:
    """Of the queries [B, H, T, d], and of the keys and values [B, K, T, d]."""

    q: Value
    k: Value
    v: Value


AttentionBack: TypeAlias = Callable[[Value], AttentionGradients]


def attention(m: Making, *, q: Value, k: Value, v: Value) -> tuple[Value, AttentionBack]:
    """Causal attention of q [B, H, T, d] and k, v [B, K, T, d] (A1 to A12)."""
    g, sizes = m.graph, _Sizes.of(m)
    factor = f32(1.0 / math.sqrt(m.spec.head_dim))
    queries = _operand(g, q, sizes, group=1)
    # The factor goes to the grid's step: the integers, and so their products, stay as they are.
    scaled = g.add(Op.SCALE, [queries.step], queries.step.elements, [factor])
    queries = replace(queries, step=scaled)
    keys, values = (_operand(g, x, sizes, group=sizes.group) for x in (k, v))
    forward = _Forward(_Tiles(g, sizes), queries, keys, values)
    rows = [forward.attend(span) for span in sizes.spans()]
    output = joined(g, [each.output for each in rows], sizes.slices)

    def back(gy: Value) -> AttentionGradients:
        operand = _operand(g, gy, sizes, group=1)
        gradients = _Backward(forward, operand, _delta(g, gy, output, sizes)).gradients(rows)
        return AttentionGradients(
            q=g.add(Op.SCALE, [gradients.q], gradients.q.elements, [factor]),
            k=_summed_by_group(g, gradients.k, sizes),
            v=_summed_by_group(g, gradients.v, sizes),
        )

    return output, back


# --- shapes ---


@dataclass(frozen=True, slots=True)
class _Span:
    """Consecutive positions: a tile's queries, or its keys."""

    first: int
    count: int

    @property
    def end(self) -> int:
        return self.first + self.count


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Of one attention.

    Attributes:
        group: query heads that share a head of keys and values.
    """

    slices: int
    length: int
    width: int
    group: int

    @classmethod
    def of(cls, m: Making) -> _Sizes:
        spec = m.spec
        return cls(
            slices=m.inner.micro_batch * spec.heads,
            length=spec.seq,
            width=spec.head_dim,
            group=spec.heads // spec.kv_heads,
        )

    @property
    def slice_elements(self) -> int:
        return self.length * self.width

    @property
    def levels(self) -> int:
        """Of the grids: the longest sum of products stays within 2²⁴, and so exact in fp32."""
        return operand_levels(max(self.width, min(TILE, self.length)))

    def spans(self) -> list[_Span]:
        """The positions, a tile at a time."""
        starts = range(0, self.length, TILE)
        return [_Span(at, min(TILE, self.length - at)) for at in starts]

    def seen_by(self, queries: _Span) -> list[_Span]:
        """The tiles of keys that a tile of queries reads: those up to its own, as it is causal.

        Tiles of queries and of keys begin at the same positions, so none has to be cut.
        """
        return [keys for keys in self.spans() if keys.first <= queries.first]


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

    def at(self, span: _Span) -> _Rows:
        """Its rows of these positions."""
        return _Rows(self, span)


@dataclass(frozen=True, slots=True)
class _Rows:
    """An operand's rows of a tile, of every slice."""

    operand: _Operand
    span: _Span


@dataclass(frozen=True, slots=True)
class _Strided:
    """A value read as [G, rows, columns]: where it begins, and elements from one to the next."""

    value: Value
    rows: int
    columns: int
    first: int
    slice_stride: int
    row_stride: int
    column_stride: int

    @property
    def strides(self) -> tuple[int, ...]:
        """As words of an operation."""
        return self.first, self.slice_stride, self.row_stride, self.column_stride


def _operand(g: Graph, x: Value, sizes: _Sizes, *, group: int) -> _Operand:
    integers, step = float_rows(g, x, sizes.width, sizes.levels)
    dims = x.elements // sizes.slice_elements, sizes.width, sizes.length
    turned = view(g, integers, dims, (sizes.slice_elements, 1, sizes.width))
    return _Operand(integers, turned, step, group)


def _delta(g: Graph, gy: Value, output: Value, sizes: _Sizes) -> Value:
    """e of A7, [G, T]."""
    return exact_sum(g, g.add(Op.MUL, [gy, output], gy.elements), sizes.width)


def _summed_by_group(g: Graph, x: Value, sizes: _Sizes) -> Value:
    """A12's sums over the query heads of a key head: [G, T, d] to [G / group, T, d]."""
    if sizes.group == 1:
        return x
    row = sizes.slice_elements
    dims, strides = (sizes.slices // sizes.group, row), (sizes.group * row, 1)
    members = [view(g, x, dims, strides, row * at) for at in range(sizes.group)]
    return _added(g, members)


def _added(g: Graph, parts: list[Value]) -> Value:
    """Their sum, in their order."""
    total = parts[0]
    for part in parts[1:]:
        total = g.add(Op.ADD, [total, part], total.elements)
    return total


# --- products of tiles ---


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Products of operands' rows, on integers that fp32 holds exactly."""

    g: Graph
    sizes: _Sizes

    def dot(self, rows: _Rows, columns: _Rows) -> Value:
        """Σ over d of two tiles' integers, f32 [G, t, s]."""
        a, b, sizes = rows.operand, columns.operand, self.sizes
        t, s, d, slice_ = rows.span.count, columns.span.count, sizes.width, sizes.slice_elements
        parts = []
        for at in range(0, d, DOT_TERMS):
            terms = min(DOT_TERMS, d - at)
            of_a = rows.span.first * d + at, slice_, d
            of_b = columns.span.first * d + at, slice_, d
            words = [t, s, terms, b.group, *of_a, *of_b]
            elements = sizes.slices * t * s
            parts.append(self.g.add(Op.DOT_F32, [a.integers, b.integers], elements, words))
        return _added(self.g, parts)  # of integers within 2²⁴: exact in any order

    def weigh_and_add(self, x: _Strided, rows: _Rows, before: Value | None) -> Value:
        """before + 32(Σ n · rows) · s, n and s being the grid of the rows of x · the rows' step.

        A5, A9, A10, A11. The step is a number for each of the operand's rows, so it cannot be taken
        out of a sum over them: it goes into the weights, which then have a grid of their own.
        """
        g, sizes, by = self.g, self.sizes, rows.operand
        m, n, first = x.rows, x.columns, rows.span.first
        words = [m, n, by.group, *x.strides, first, sizes.length, 0, 1]
        weighed = g.add(Op.WEIGHTED, [x.value, by.step], sizes.slices * m * n, words)
        integers, step = float_rows(g, weighed, n, sizes.levels)
        of_integers, of_turned = (0, m * n, n), (first, sizes.slice_elements, sizes.length)
        words = [m, sizes.width, n, by.group, *of_integers, *of_turned]
        elements = sizes.slices * m * sizes.width
        sums = g.add(Op.DOT_F32, [integers, by.turned], elements, words)
        inputs = [sums, step] if before is None else [before, sums, step]
        return g.add(Op.ADD_SCALED, inputs, elements, [sizes.width, int(before is None)])


# --- forward ---


@dataclass(frozen=True, slots=True)
class _AttendedRows:
    """What a tile of queries gave.

    Attributes:
        output: [G, t, d].
        weights: not yet divided by their sum, [G, t, s] of all keys that are seen; inverse: one
            over that sum, [G, t].
    """

    output: Value
    weights: Value
    inverse: Value


@dataclass(frozen=True, slots=True)
class _Forward:
    """A2 to A6."""

    tiles: _Tiles
    queries: _Operand
    keys: _Operand
    values: _Operand

    def attend(self, queries: _Span) -> _AttendedRows:
        """The output of a tile of queries, and what backward reads of it."""
        g, sizes = self.tiles.g, self.tiles.sizes
        count, seen = queries.count, queries.end
        scores = self._scores(queries)
        peak = largest(g, scores, seen, Op.MAX)
        words = [count, seen, queries.first, 0]
        weights = g.add(Op.ATTENTION_WEIGHT, [scores, peak], sizes.slices * count * seen, words)
        sums = rounded_sum(g, weights, seen, 2.0**23)
        inverse = g.add(Op.INVERSE_TOTAL, [sums], sizes.slices * count, [f64(2.0**-23)])
        mixed: Value | None = None
        for keys in sizes.seen_by(queries):
            mixed = self._mixed(weights, queries, keys, mixed)
        assert mixed is not None
        # Last, as FlashAttention does: d products a query in place of one a key that it sees.
        output = g.add(Op.MUL_ROWS, [mixed, inverse], mixed.elements, [sizes.width])
        return _AttendedRows(output, weights, inverse)

    def _scores(self, queries: _Span) -> Value:
        """A2 and A3, against all keys that are seen."""
        seen = _Span(0, queries.end)
        dots = self.tiles.dot(self.queries.at(queries), self.keys.at(seen))
        length, group = self.tiles.sizes.length, self.keys.group
        words = [queries.count, seen.count, length, group, queries.first, 0]
        inputs = [dots, self.queries.step, self.keys.step]
        return self.tiles.g.add(Op.SCORE, inputs, dots.elements, words)

    def _mixed(self, weights: Value, queries: _Span, keys: _Span, before: Value | None) -> Value:
        """A5 of one tile of keys."""
        columns = _Strided(
            weights,
            rows=queries.count,
            columns=keys.count,
            first=keys.first,
            slice_stride=queries.count * queries.end,
            row_stride=queries.end,
            column_stride=1,
        )
        return self.tiles.weigh_and_add(columns, self.values.at(keys), before)


# --- backward ---


@dataclass(frozen=True, slots=True)
class _Tile:
    """A tile of queries by one of keys, with what forward kept of the queries."""

    attended: _AttendedRows
    queries: _Span
    keys: _Span

    @property
    def shape(self) -> list[int]:
        return [self.queries.count, self.keys.count]

    @property
    def corner(self) -> list[int]:
        return [self.queries.first, self.keys.first]


@dataclass(frozen=True, slots=True)
class _Backward:
    """A8 to A11. A trace has every weight of forward, so none is worked out anew, as kernels do.

    Attributes:
        output: the output's gradient on its grid; delta: e of A7.
    """

    forward: _Forward
    output: _Operand
    delta: Value

    def gradients(self, rows: list[_AttendedRows]) -> AttentionGradients:
        """dq, dk and dv, [G, T, d] each, before A12."""
        tiles, sizes = self.forward.tiles, self.forward.tiles.sizes
        dqs: list[Value] = []
        dks: dict[_Span, Value] = {}
        dvs: dict[_Span, Value] = {}
        for attended, queries in zip(rows, sizes.spans(), strict=True):
            dq: Value | None = None
            for keys in sizes.seen_by(queries):
                tile = _Tile(attended, queries, keys)
                share = self._share(tile)
                slope = self._slope(tile, share)
                dvs[keys] = self._down(share, tile, self.output, dvs.get(keys))
                dq = self._across(slope, tile, dq)
                dks[keys] = self._down(slope, tile, self.forward.queries, dks.get(keys))
            assert dq is not None
            dqs.append(dq)
        parts = (dqs, list(dks.values()), list(dvs.values()))
        dq, dk, dv = (joined(tiles.g, each, sizes.slices) for each in parts)
        return AttentionGradients(q=dq, k=dk, v=dv)

    def _share(self, tile: _Tile) -> Value:
        """P of A8, [G, t, s]: the weights, divided by their sum."""
        words = [*tile.shape, tile.queries.end, *tile.corner]
        inputs = [tile.attended.weights, tile.attended.inverse]
        return self.forward.tiles.g.add(Op.SHARE, inputs, self._elements(tile), words)

    def _slope(self, tile: _Tile, share: Value) -> Value:
        """Z of A8, [G, t, s]: the gradient of the scores."""
        tiles, values = self.forward.tiles, self.forward.values
        length, elements = tiles.sizes.length, self._elements(tile)
        dots = tiles.dot(self.output.at(tile.queries), values.at(tile.keys))
        words = [*tile.shape, length, values.group, *tile.corner]
        inputs = [dots, self.output.step, values.step]
        d_share = tiles.g.add(Op.SHARE_GRADIENT, inputs, elements, words)
        words = [*tile.shape, length, *tile.corner]
        return tiles.g.add(Op.SLOPE, [share, d_share, self.delta], elements, words)

    def _elements(self, tile: _Tile) -> int:
        return self.forward.tiles.sizes.slices * math.prod(tile.shape)

    def _down(self, x: Value, tile: _Tile, by: _Operand, before: Value | None) -> Value:
        """A9 and A11: sums over the tile's queries, so x [G, t, s] is read as [G, s, t]."""
        t, s = tile.shape
        turned = _Strided(
            x, rows=s, columns=t, first=0, slice_stride=t * s, row_stride=1, column_stride=s
        )
        return self.forward.tiles.weigh_and_add(turned, by.at(tile.queries), before)

    def _across(self, x: Value, tile: _Tile, before: Value | None) -> Value:
        """A10: sums over the tile's keys."""
        t, s = tile.shape
        plain = _Strided(
            x, rows=t, columns=s, first=0, slice_stride=t * s, row_stride=s, column_stride=1
        )
        return self.forward.tiles.weigh_and_add(plain, self.forward.keys.at(tile.keys), before)
