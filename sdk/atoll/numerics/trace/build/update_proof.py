"""The update proof: nodes from the round's model and the last state to the update (SPEC-MERGE.md,
2).

Rule of this file: what a part of the state becomes does not depend on whether the round was cold or
warm; exponents stand where both have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from atoll.numerics.codec.dither import DELTA_SECTION, MOMENT_SECTION
from atoll.numerics.codec.factored import FactoredLayout
from atoll.numerics.codec.header import fixed_header
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.pieces import PIECE_BYTES
from atoll.numerics.state_layout import Shapes, moment_layout
from atoll.numerics.trace.build.coding import EXPONENT_BYTES, Coder
from atoll.numerics.trace.build.graph import Region, Value
from atoll.numerics.trace.build.grids import joined, power_sums
from atoll.numerics.trace.build.making import Making
from atoll.numerics.trace.build.rollout_trace import sampled_ids
from atoll.numerics.trace.build.step_trace import optimiser_tree
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.manifest import Manifest
from atoll.protocol.program import TraceTemplate


@dataclass(frozen=True, slots=True)
class _Coded:
    """A section in the codec's bytes.

    Attributes:
        number: of the section, for its dither.
        shapes: of its tensors, by name, in ascending order.
        positions: of their exponents among those of the round's global state.
        value: a tensor's node.
    """

    number: int
    shapes: Shapes
    positions: Sequence[int]
    value: Callable[[str], Value]


def make_update_proof(
    manifest: Manifest, fragment: int = 0
) -> tuple[int, tuple[TraceTemplate, ...]]:
    """How many nodes the update proof's trace has, and its templates; the update is the last node.

    Args:
        fragment: which the update speaks of.
    """
    m = Making.of(manifest, optimiser_tree(manifest))
    sent, layout, all_ = _Sent(m), moment_layout(manifest), m.weights.shapes
    moved = {n: shape for n, shape in all_.items() if manifest.codec.fragment_of(n) == fragment}
    with m.graph.within(Region.PRELUDE):
        positions = [position for position, name in enumerate(all_) if name in moved]
        sections = [sent.coded(_Coded(DELTA_SECTION, moved, positions, sent.change))]
        if layout.m:
            positions = [len(all_) + position for position in range(len(layout.m))]
            sections.append(sent.coded(_Coded(MOMENT_SECTION, layout.m, positions, sent.moment)))
        if layout.v:
            sections.append(sent.factored(layout.v))
        if manifest.sampled_bytes:
            sections.append([sampled_ids(m)])
        update = _concatenated(m, sections)
    return m.graph.templates(1 + fragment, update)


def _concatenated(m: Making, sections: Sequence[Sequence[Value]]) -> Value:
    """The sections, each but the last filled up with zeros to whole pieces."""
    parts, words, size = list[Value](), list[int](), 0
    for section in sections:
        if words:
            words[-1] = -size % PIECE_BYTES
            size += words[-1]
        for part in section:
            parts.append(part)
            words += [part.size, 0]
            size += part.size
    return m.graph.add(Op.UPDATE, parts, size, words)


class _Sent:
    """What an update proof makes of the last state: nodes of an update's sections."""

    def __init__(self, m: Making) -> None:
        self.m = m
        self.coder = Coder(m)

    # ---- values of the sections ----

    def change(self, name: str) -> Value:
        """What is to be sent of a parameter."""
        return self.coder.wanted(name)

    def moment(self, name: str) -> Value:
        """A first moment as it is."""
        return self.m.state(1, f"m/{name}")

    # ---- sections ----

    def factored(self, shapes: Shapes) -> list[Value]:
        """Of second moments of these shapes: header and sums."""
        m, factored = self.m, list[Value]()
        for name, shape in shapes.items():
            second = m.state(1, f"v/{name}")
            is_matrix = len(shape) == 2
            factored += (
                power_sums(m.graph, second, rows=shape[0], columns=shape[1])
                if is_matrix
                else [second]
            )
        tail = FactoredLayout(Layout.of(shapes)).header
        header = m.graph.add(Op.UPDATE_HEADER, [], len(tail), tail=tail)
        return [header, joined(m.graph, factored)]

    def coded(self, section: _Coded) -> list[Value]:
        """A section in the codec's bytes: header and body."""
        g, coder, tensors = self.m.graph, self.coder, len(section.shapes)
        exponents = coder.exponents(section.positions)
        fixed = fixed_header(coder.codec.number, Layout.of(section.shapes))
        length = len(fixed) + EXPONENT_BYTES * tensors
        header = g.add(Op.UPDATE_HEADER, [exponents], length, tail=fixed)
        values = [
            coder.in_steps(section.value(name), exponents, at)
            for at, name in enumerate(section.shapes)
        ]
        x = joined(g, values)
        return [header, *coder.coded(x, section.number).body]
