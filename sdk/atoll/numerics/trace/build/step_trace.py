"""What follows the micro-batches: norm, clip, optimisers, digests (SPEC-STEP.md, 14 and 15)."""

from __future__ import annotations

from atoll.numerics.kernels.keccak import DIGEST_BYTES
from atoll.numerics.rollouts import IDS
from atoll.numerics.state_layout import Shapes, optimiser_of, seat_layout
from atoll.numerics.tensors import chunk_count
from atoll.numerics.trace.build.coding import residual_of
from atoll.numerics.trace.build.graph import Graph, Region, Value
from atoll.numerics.trace.build.grids import (
    f64,
    grid_sum,
    joined,
    largest,
    total,
)
from atoll.numerics.trace.build.making import CONTEXT, Making, StateTree
from atoll.numerics.trace.build.model_trace import micro_batch
from atoll.numerics.trace.build.optimisers import COUNT, SQUARE_LEVELS, TRACED, Stepping
from atoll.numerics.trace.build.rollout_trace import SampledStep, sampled_micro_batch
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.manifest import Manifest


def optimiser_tree(manifest: Manifest) -> StateTree:
    """The tensors under a seat's optimiser root."""
    layout = seat_layout(manifest)
    shapes: Shapes = {COUNT: ()}
    shapes |= {f"m/{name}": shape for name, shape in layout.m.items()}
    shapes |= {f"v/{name}": shape for name, shape in layout.v.items()}
    shapes |= {f"feedback/{name}": shape for name, shape in layout.feedback.items()}
    shapes |= {f"left/{name}": shape for name, shape in layout.residual.items()}
    return StateTree.of(shapes, {COUNT: "int64"})


def make_step(manifest: Manifest, taken: int | None = None) -> tuple[Making, Value]:
    """The graph of a step, and its result; `taken` is the fragment that it takes in."""
    m = Making.of(manifest, optimiser_tree(manifest), taken)
    g = m.graph
    sampled = None if manifest.task is None else sampled_micro_batch(m)
    loss = micro_batch(m) if sampled is None else sampled.loss
    with g.within(Region.BODY):
        lanes = {name: g.summed(m.gradients[name]) for name in m.weights.shapes}
    with g.within(Region.END):
        gradients = {name: g.chained(sums) for name, sums in lanes.items()}
        norm = _norm(m, gradients)
        clip = g.add(Op.CLIP, [norm], 1, [f64(float(m.inner.clip))])
        params, slots = _optimised(m, gradients, clip)
        slots |= residual_of(m, params)
        roots = [_root(m, m.weights, params, bounded=True)]
        roots.append(_root(m, m.optimiser, slots, bounded=False))
        return m, _result(m, roots, [norm, loss], sampled)


def _result(
    m: Making, roots: list[Value], outcome: list[Value], sampled: SampledStep | None
) -> Value:
    """The step's last node, from the roots of params and optimiser, norm and loss."""
    g, count, (norm, loss) = m.graph, m.graph.micro_batches, outcome
    if sampled is None:
        digest = g.add(Op.STATE_DIGEST, [*roots, CONTEXT], DIGEST_BYTES)
    else:
        ids = _root(m, sampled.tree, {IDS: sampled.all_ids(g)}, bounded=False)
        digest = g.add(Op.SAMPLED_DIGEST, [*roots, ids, CONTEXT], DIGEST_BYTES)
    losses = _of_all(g, loss)
    inputs = [digest, norm, losses, largest(g, losses, count)]
    if sampled is None:
        return g.add(Op.RESULT, inputs, 10 + count, [count])
    inputs += [_of_all(g, sampled.drawn), total(g, _of_all(g, sampled.infinite), count)]
    return g.add(Op.SAMPLED_RESULT, inputs, 10 + 3 * count, [count])


def _of_all(g: Graph, value: Value) -> Value:
    """What every micro-batch has of it, one after another."""
    return joined(g, [value.of(at) for at in range(g.micro_batches)])


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
    step = Stepping(m)
    params: dict[str, Value] = {}
    slots = {COUNT: step.count}
    for name, gradient in gradients.items():
        clipped = g.add(Op.SCALE_BY, [gradient, clip], gradient.elements)
        kind = optimiser_of(name, m.shape(name), m.inner)
        params[name], moments = TRACED[kind](step, name, clipped)
        slots |= {f"{slot}/{name}": value for slot, value in moments.items()}
    return params, slots


def _root(m: Making, tree: StateTree, tensors: dict[str, Value], *, bounded: bool) -> Value:
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
