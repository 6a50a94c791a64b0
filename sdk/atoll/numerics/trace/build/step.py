"""What follows the micro-batches: norm, clip, optimisers, digests (SPEC-STEP.md, 14 and 15)."""

from __future__ import annotations

import math

from atoll.numerics.kernels.keccak import DIGEST_BYTES
from atoll.numerics.kernels.muon import ITERATIONS
from atoll.numerics.layout import Shapes, optimiser_of, seat_layout
from atoll.numerics.tables import table_sizes
from atoll.numerics.tensors import chunk_count
from atoll.numerics.trace.build.coding import left_of
from atoll.numerics.trace.build.graph import Region, Value
from atoll.numerics.trace.build.grids import (
    dot,
    f32,
    f64,
    grid_sum,
    int8_rows,
    joined,
    largest,
    rescale,
    transposed,
    view,
)
from atoll.numerics.trace.build.making import CONTEXT, Making, Tree
from atoll.numerics.trace.build.model import micro_batch
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.manifest import Manifest
from atoll.protocol.program import Source

COUNT = "count"
SQUARE_LEVELS = 2**16
"""Of norms of gradients, and of Muon's."""


def optimiser_tree(manifest: Manifest) -> Tree:
    """The tensors under a seat's optimiser root."""
    layout = seat_layout(manifest)
    shapes: Shapes = {COUNT: ()}
    shapes |= {f"m/{name}": shape for name, shape in layout.m.items()}
    shapes |= {f"v/{name}": shape for name, shape in layout.v.items()}
    shapes |= {f"feedback/{name}": shape for name, shape in layout.feedback.items()}
    shapes |= {f"left/{name}": shape for name, shape in layout.left.items()}
    return Tree.of(shapes, {COUNT: "int64"})


def make_step(manifest: Manifest, taken: int | None = None) -> tuple[Making, Value]:
    """The graph of a step, and its result; `taken` is the fragment that it takes in."""
    m = Making.of(manifest, optimiser_tree(manifest), taken)
    g = m.graph
    loss = micro_batch(m)
    with g.within(Region.BODY):
        gradients = {name: g.summed(m.gradients[name]) for name in m.weights.shapes}
    with g.within(Region.END):
        norm = _norm(m, gradients)
        clip = g.add(Op.CLIP, [norm], 1, [f64(float(m.inner.clip))])
        params, slots = _optimised(m, gradients, clip)
        slots |= left_of(m, params)
        roots = [_root(m, m.weights, params, bounded=True)]
        roots.append(_root(m, m.optimiser, slots, bounded=False))
        digest = g.add(Op.STATE_DIGEST, [*roots, CONTEXT], DIGEST_BYTES)
        losses = joined(g, [loss.of(at) for at in range(g.micro_batches)])
        most = largest(g, losses, g.micro_batches)
        inputs = [digest, norm, losses, most]
        result = g.add(Op.RESULT, inputs, 10 + g.micro_batches, [g.micro_batches])
    return m, result


def _norm(m: Making, gradients: dict[str, Value]) -> Value:
    """S4, f64 [1]."""
    g, terms = m.graph, list[Value]()
    for gradient in gradients.values():
        sums = grid_sum(g, gradient, gradient.elements, SQUARE_LEVELS, Op.SUM_SQUARES)
        inputs = [*terms[-1:], *sums]
        terms.append(g.add(Op.NORM_TERM, inputs, 1, [int(len(terms) > 0)]))
    return g.add(Op.NORM, [terms[-1]], 1)


def _optimised(
    m: Making, gradients: dict[str, Value], clip: Value
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Every parameter and what is under the optimiser root after the step (S7)."""
    g = m.graph
    step = _Optimisers(m)
    kinds = {"adamw": step.adamw, "sgd": step.sgd, "muon": step.muon}
    params: dict[str, Value] = {}
    slots = {COUNT: step.count}
    for name, gradient in gradients.items():
        clipped = g.add(Op.SCALE_BY, [gradient, clip], gradient.elements)
        kind = optimiser_of(name, m.shape(name), m.inner)
        params[name], moments = kinds[kind](name, clipped)
        slots |= {f"{slot}/{name}": value for slot, value in moments.items()}
    return params, slots


class _Optimisers:
    """One parameter's step by each of the optimisers: the parameter and its slots after it."""

    def __init__(self, m: Making) -> None:
        self.m = m
        inputs = [Value(Source.STATE, 0, 8, 1)]
        words, tail = [m.optimiser.first[COUNT], m.optimiser.leaves, 1], m.optimiser.prefix(COUNT)
        self.count = m.once(COUNT, lambda: m.graph.add(Op.COUNT, inputs, 1, words, tail=tail))
        self.rate = m.table(Op.RATE, 1, (CONTEXT,), [])

    def adamw(self, name: str, g: Value) -> tuple[Value, dict[str, Value]]:
        """O1 to O3."""
        m, add, inner = self.m, self.m.graph.add, self.m.inner
        offset = table_sizes(m.spec, inner, m.total_steps)[0]
        corrections = m.table(Op.CORRECTIONS, 2, (self.count,), [offset, m.total_steps])
        slots = {}
        for slot, op, text in (("m", Op.ADAMW_M, inner.beta1), ("v", Op.ADAMW_V, inner.beta2)):
            words = [f32(float(text)), f32(1.0 - float(text))]
            slots[slot] = add(op, [m.state(1, f"{slot}/{name}"), g], g.elements, words)
        inputs = [m.state(0, name), slots["m"], slots["v"], corrections, self.rate]
        words = [f32(float(inner.eps)), self._decay(name)]
        return add(Op.ADAMW_P, inputs, g.elements, words), slots

    def sgd(self, name: str, g: Value) -> tuple[Value, dict[str, Value]]:
        """O4 and O5."""
        if self.m.inner.momentum == "0":
            return self._descend(name, g), {}
        moment = self._momentum(self.m.state(1, f"m/{name}"), g, 1.0)
        return self._descend(name, moment), {"m": moment}

    def muon(self, name: str, g: Value) -> tuple[Value, dict[str, Value]]:
        """O6 to O8."""
        keep = float(self.m.inner.momentum)
        moment = self._momentum(self.m.state(1, f"m/{name}"), g, 1.0 - keep)
        ahead = self._momentum(moment, g, 1.0 - keep)
        shape = self.m.shape(name)
        factor = f32(0.2 * math.sqrt(max(shape)))
        step = orthogonalised(self.m, ahead, shape[0], shape[1])
        scaled = self.m.graph.add(Op.SCALE, [step], step.elements, [factor])
        return self._descend(name, scaled), {"m": moment}

    def _momentum(self, moment: Value, g: Value, add: float) -> Value:
        words = [f32(float(self.m.inner.momentum)), f32(add)]
        return self.m.graph.add(Op.MOMENTUM, [moment, g], g.elements, words)

    def _descend(self, name: str, g: Value) -> Value:
        inputs = [self.m.state(0, name), g, self.rate]
        return self.m.graph.add(Op.DESCEND, inputs, g.elements, [self._decay(name)])

    def _decay(self, name: str) -> int:
        """λ: only matrices decay."""
        return f32(float(self.m.inner.weight_decay) if len(self.m.shape(name)) > 1 else 0.0)


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


def _root(m: Making, tree: Tree, tensors: dict[str, Value], *, bounded: bool) -> Value:
    """The root of a SHA-256 tree over the tensors, h [1] in bytes."""
    g, chunks = m.graph, []
    for name in tree.shapes:
        x = tensors[name]
        words, tail = [x.size, int(bounded)], tree.prefix(name)
        bytes_ = DIGEST_BYTES * chunk_count(x.size)
        chunks.append(g.add(Op.CHUNKS, [x], bytes_, words, tail=tail))
    nodes = joined(g, chunks)
    nodes = g.add(Op.TREE_LEAVES, [nodes], nodes.elements)
    count = tree.leaves
    while count > 1:
        above = (count + 1) // 2
        nodes = g.add(Op.TREE_LEVEL, [nodes], DIGEST_BYTES * above, [count])
        count = above
    return g.add(Op.TREE_ROOT, [nodes], DIGEST_BYTES, [tree.leaves])
