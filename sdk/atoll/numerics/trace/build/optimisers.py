"""The inner optimisers as a trace: nodes of a parameter and its slots after a step (SPEC-STEP, 15).

Rule of this file: the same operations, in the same order, as `atoll.numerics.optimisers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from atoll.numerics.kernels.muon import ITERATIONS
from atoll.numerics.schedule_tables import table_sizes
from atoll.numerics.trace.build.graph import Value
from atoll.numerics.trace.build.grids import (
    dot,
    f32,
    float_rows,
    grid_sum,
    int8_rows,
    rescale,
    transposed,
    view,
)
from atoll.numerics.trace.build.making import CONTEXT, Making
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.program import Source

COUNT = "count"
SQUARE_LEVELS = 2**16
"""Of norms of gradients, and of Muon's."""
Stepped: TypeAlias = tuple[Value, dict[str, Value]]
"""The parameter, and its slots by name."""


class Stepping:
    """What the optimisers of a step's parameters share."""

    def __init__(self, m: Making) -> None:
        self.m = m
        inputs = [Value(Source.STATE, 0, 8, 1)]
        words, tail = [m.optimiser.first[COUNT], m.optimiser.leaves, 1], m.optimiser.prefix(COUNT)
        self.count = m.once(COUNT, lambda: m.graph.add(Op.COUNT, inputs, 1, words, tail=tail))
        self.rate = m.table(Op.RATE, 1, (CONTEXT,), [])

    def momentum(self, moment: Value, g: Value, *, keep: float, add: float) -> Value:
        """O4, O6 and O9: what is kept of the moment, and the gradient."""
        words = [f32(keep), f32(add)]
        return self.m.graph.add(Op.MOMENTUM, [moment, g], g.elements, words)

    def descend(self, name: str, g: Value) -> Value:
        """O5, O8 and O11: the parameter after a step along g."""
        inputs = [self.m.state(0, name), g, self.rate]
        return self.m.graph.add(Op.DESCEND, inputs, g.elements, [self.decay(name)])

    def decay(self, name: str) -> int:
        """λ: only matrices decay."""
        return f32(float(self.m.inner.weight_decay) if len(self.m.shape(name)) > 1 else 0.0)


def adamw(of: Stepping, name: str, g: Value) -> Stepped:
    """O1 to O3."""
    m, add, inner = of.m, of.m.graph.add, of.m.inner
    offset = table_sizes(m.spec, inner, m.total_steps)[0]
    corrections = m.table(Op.CORRECTIONS, 2, (of.count,), [offset, m.total_steps])
    slots = {}
    for slot, op, text in (("m", Op.ADAMW_M, inner.beta1), ("v", Op.ADAMW_V, inner.beta2)):
        words = [f32(float(text)), f32(1.0 - float(text))]
        slots[slot] = add(op, [m.state(1, f"{slot}/{name}"), g], g.elements, words)
    inputs = [m.state(0, name), slots["m"], slots["v"], corrections, of.rate]
    words = [f32(float(inner.eps)), of.decay(name)]
    return add(Op.ADAMW_P, inputs, g.elements, words), slots


def sgd(of: Stepping, name: str, g: Value) -> Stepped:
    """O4 and O5."""
    keep = of.m.inner.momentum
    if keep == "0":
        return of.descend(name, g), {}
    moment = of.momentum(of.m.state(1, f"m/{name}"), g, keep=float(keep), add=1.0)
    return of.descend(name, moment), {"m": moment}


def muon(of: Stepping, name: str, g: Value) -> Stepped:
    """O6 to O8."""
    keep = float(of.m.inner.momentum)
    moment = of.momentum(of.m.state(1, f"m/{name}"), g, keep=keep, add=1.0 - keep)
    ahead = of.momentum(moment, g, keep=keep, add=1.0 - keep)
    shape = of.m.shape(name)
    factor = f32(0.2 * math.sqrt(max(shape)))
    step = orthogonalised(of.m, ahead, shape[0], shape[1])
    scaled = of.m.graph.add(Op.SCALE, [step], step.elements, [factor])
    return of.descend(name, scaled), {"m": moment}


def lion(of: Stepping, name: str, g: Value) -> Stepped:
    """O9 to O11."""
    kept, inner = of.m.state(1, f"m/{name}"), of.m.inner
    mixed, moment = (
        of.momentum(kept, g, keep=beta, add=1.0 - beta)
        for beta in (float(inner.beta1), float(inner.beta2))
    )
    # A grid of one level, for every number alone, has signs for integers.
    signs, _ = float_rows(of.m.graph, mixed, 1, 1)
    return of.descend(name, signs), {"m": moment}


def orthogonalised(m: Making, matrix: Value, rows: int, columns: int) -> Value:
    """Q1 to Q7 of a matrix [rows, columns]."""
    g, count = m.graph, matrix.elements
    sums = grid_sum(g, matrix, count, SQUARE_LEVELS, Op.SUM_SQUARES)
    factor = g.add(Op.MUON_SCALE, list(sums), 1)
    x = g.add(Op.MUL_ROWS, [matrix, factor], count, [count])
    if rows <= columns:
        return _iterated(m, x, rows, columns)
    return transposed(g, _iterated(m, transposed(g, x, columns), columns, rows), rows)


def _iterated(m: Making, x: Value, s: int, length: int) -> Value:
    """Q3 to Q7, five times, of X [S, L]."""
    g = m.graph
    for _ in range(ITERATIONS):
        integers, step = int8_rows(g, x, length)
        gram = rescale(g, dot(g, integers, integers, length), s, step, step)
        diagonal = view(g, gram, (s,), (s + 1,))
        rest = g.add(Op.ZERO_DIAGONAL, [gram], s * s, [s])
        squares, square_step = int8_rows(g, rest, s)
        square = rescale(g, dot(g, squares, squares, s), s, square_step, square_step)
        along = g.add(Op.MUON_ALONG, [diagonal, square], s, [s])
        across = g.add(Op.MUON_ACROSS, [rest, diagonal, square], s * s, [s])
        stepped = g.add(Op.MUL_COLUMNS, [across, step], s * s, [s])
        weights, weight_step = int8_rows(g, stepped, s)
        sums = dot(g, weights, transposed(g, integers, length), s)
        x = g.add(Op.ADVANCE, [x, along, sums, weight_step], s * length, [length, sums.width])
    return x


TRACED: Mapping[str, Callable[[Stepping, str, Value], Stepped]] = MappingProxyType(
    {"adamw": adamw, "lion": lion, "muon": muon, "sgd": sgd}
)
