"""Linears, adapters, the head (SPEC-STEP.md, 5 and 6), forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from atoll.numerics.state_layout import DOWN, UP
from atoll.numerics.trace.build.graph import Graph, Value
from atoll.numerics.trace.build.grids import (
    Split,
    dot,
    exact_sum,
    f32,
    int8_rows,
    joined,
    rescale,
    rescale_stacked,
    split_dot,
    split_rows,
    transposed,
    view,
)
from atoll.numerics.trace.build.making import Back, Making
from atoll.numerics.trace.opcodes import Op


@dataclass(frozen=True, slots=True)
class Stacked:
    """Weights [Oᵢ, I] that read one input, as integers: one below the other.

    Attributes:
        integers: i8 [O, I]; turned: the same, [I, O]; step: [O].
        outputs: Oᵢ of each.
    """

    names: tuple[str, ...]
    integers: Value
    turned: Value
    step: Value
    inputs: int
    outputs: tuple[int, ...]


def _stacked(m: Making, names: Sequence[str]) -> Stacked:
    """Worked out once a step: weights are the same for every micro-batch."""
    g, key = m.graph, tuple(names)
    shapes = [m.shape(name) for name in names]
    inputs = shapes[0][1]

    def make() -> Stacked:
        weights = [m.weight(name) for name in names]
        integers, step = int8_rows(g, joined(g, weights), inputs)
        turned = transposed(g, integers, inputs)
        return Stacked(key, integers, turned, step, inputs, tuple(shape[0] for shape in shapes))

    return m.once(("linear", key), make)


def cut(g: Graph, x: Value, widths: Sequence[int]) -> list[Value]:
    """Columns [N, Σ widths] as they stand side by side."""
    if len(widths) == 1:
        return [x]
    columns, parts, at = sum(widths), [], 0
    for width in widths:
        parts.append(view(g, x, (x.elements // columns, width), (columns, 1), at))
        at += width
    return parts


def product(
    m: Making, x: Value, names: Sequence[str]
) -> tuple[list[Value], Callable[[Sequence[Value]], Value]]:
    """x · Wᵀ of weights that read x [N, I] (L1 to L5): outputs [N, Oᵢ], and backward.

    Backward takes the outputs' gradients, and gives that of x.
    """
    g, w = m.graph, _stacked(m, names)
    xi, sx = int8_rows(g, x, w.inputs)
    width = sum(w.outputs)
    y = rescale(g, dot(g, xi, w.integers, w.inputs), width, sx, w.step)

    def back(gradients: Sequence[Value]) -> Value:
        gy = joined(g, gradients, m.tokens)
        folded = g.add(Op.MUL_COLUMNS, [gy, w.step], gy.elements, [width])
        high, low, step = split_rows(g, folded, width)
        sums = dot(g, high, w.turned, width), dot(g, low, w.turned, width)
        dx = rescale_stacked(g, *sums, w.inputs, step)
        _meet_weights(m, w, gy, integers=xi, steps=sx)
        return dx

    return cut(g, y, w.outputs), back


def _meet_weights(m: Making, w: Stacked, gy: Value, *, integers: Value, steps: Value) -> None:
    """L3's C and L5, from the gradient of the output and the integers and steps of the input."""
    g, width = m.graph, sum(w.outputs)
    folded = g.add(Op.MUL_ROWS, [gy, steps], gy.elements, [width])
    high, low, step = split_rows(g, transposed(g, folded, width), m.tokens)
    turned = transposed(g, integers, w.inputs)
    sums = dot(g, high, turned, m.tokens), dot(g, low, turned, m.tokens)
    dw = rescale_stacked(g, *sums, w.inputs, step)
    if len(w.names) == 1:
        m.meet(w.names[0], dw)
        return
    at = 0
    for name, outputs in zip(w.names, w.outputs, strict=True):
        count = outputs * w.inputs
        m.meet(name, view(g, dw, (count,), (1,), at))
        at += count


def linears(
    m: Making, x: Value, names: Sequence[str]
) -> tuple[list[Value], Callable[[Sequence[Value]], Value]]:
    """Linears of one input, by name without ".weight", with their adapters (L7 to L10)."""
    outputs, base_back = product(m, x, [f"{name}.weight" for name in names])
    adapted = [at for at, name in enumerate(names) if name + DOWN in m.weights.shapes]
    if not adapted:
        return outputs, base_back
    g, factor = m.graph, [f32(_scale(m))]
    downs, down_back = product(m, x, [names[at] + DOWN for at in adapted])
    ups = {}
    for at, low in zip(adapted, downs, strict=True):
        (z,), ups[at] = product(m, low, [names[at] + UP])
        added = g.add(Op.SCALE, [z], z.elements, factor)
        outputs[at] = g.add(Op.ADD, [outputs[at], added], z.elements)

    def back(gradients: Sequence[Value]) -> Value:
        scaled = {
            at: g.add(Op.SCALE, [gradients[at]], gradients[at].elements, factor) for at in adapted
        }
        dx = down_back([ups[at]([scaled[at]]) for at in adapted])
        return g.add(Op.ADD, [base_back(gradients), dx], dx.elements)

    return outputs, back


def _scale(m: Making) -> float:
    if m.manifest.lora is None:
        raise ValueError("a job without adapters has no scale of them")
    return m.manifest.lora.scale


def biased(m: Making, y: Value, name: str) -> tuple[Value, Back]:
    """y [N, O] + bias [O] (L6)."""
    g, bias = m.graph, m.weight(name)
    width = bias.elements

    def back(gy: Value) -> Value:
        m.meet(name, exact_sum(g, transposed(g, gy, width), m.tokens))
        return gy

    return g.add(Op.ADD_ROW, [y, bias], y.elements, [width]), back


def head(m: Making, x: Value, name: str) -> tuple[Value, Back]:
    """Logits [N, V] of x [N, D] (H1 to H5)."""
    g, width, vocab = m.graph, m.spec.width, m.spec.vocab
    w = _head_weight(m, name)
    xh, xl, sx = split_rows(g, x, width)
    logits = rescale(g, split_dot(g, Split(xh, xl), w.slices, width), vocab, sx, w.step)

    def back(gy: Value) -> Value:
        folded = g.add(Op.MUL_COLUMNS, [gy, w.step], gy.elements, [vocab])
        high, low, row_step = split_rows(g, folded, vocab)
        dx = rescale(g, split_dot(g, Split(high, low), w.turned, vocab), width, row_step)
        folded = g.add(Op.MUL_ROWS, [gy, sx], gy.elements, [vocab])
        high, low, column_step = split_rows(g, transposed(g, folded, vocab), m.tokens)
        turned = Split(transposed(g, xh, width), transposed(g, xl, width))
        sums = split_dot(g, Split(high, low), turned, m.tokens)
        m.meet(name, rescale(g, sums, width, column_step))
        return dx

    return logits, back


@dataclass(frozen=True, slots=True)
class _Head:
    """The split grid of the head's rows: slices [V, D], the same turned, and steps [V]."""

    slices: Split
    turned: Split
    step: Value


def _head_weight(m: Making, name: str) -> _Head:
    def make() -> _Head:
        g, width = m.graph, m.spec.width
        high, low, step = split_rows(g, m.weight(name), width)
        turned = Split(transposed(g, high, width), transposed(g, low, width))
        return _Head(Split(high, low), turned, step)

    return m.once(("head", name), make)
