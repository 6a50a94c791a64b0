"""The link: nodes from the round's model and the last state to the update (SPEC-MERGE.md, 2).

Rule of this file: what a part of the state becomes does not depend on whether the round was cold or
warm; exponents stand where both have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from atoll.bits.codec.block_steps import BLOCK, SIGN_LEVELS, STEP_BITS, TWO_BIT_LEVELS
from atoll.bits.codec.dither import DELTA_SECTION, MOMENT_SECTION
from atoll.bits.codec.header import CodecId, fixed_header
from atoll.bits.codec.layout import Layout
from atoll.bits.codec.packing import packed_length
from atoll.bits.codec.sums import SumsLayout
from atoll.bits.layout import Shapes, moment_layout
from atoll.bits.pieces import PIECE_BYTES
from atoll.bits.tape.build.graph import Region, Value
from atoll.bits.tape.build.grids import joined, power_sums
from atoll.bits.tape.build.making import CONTEXT, Making
from atoll.bits.tape.build.step import optimiser_tree
from atoll.bits.tape.opcodes import Op
from atoll.law.manifest import Manifest
from atoll.law.program import Source, Template

_CODECS = {
    "fp32": CodecId.FP32,
    "grid8": CodecId.GRID8,
    "grid4": CodecId.GRID4,
    "two_bit": CodecId.TWO_BIT,
    "sign": CodecId.SIGN,
}
_EXPONENT_BYTES = 2


@dataclass(frozen=True, slots=True)
class _Coded:
    """A section in the codec's bytes.

    Attributes:
        number: of the section, for its dither.
        shapes: of its tensors, by name, in ascending order.
        places: of their exponents among those of the round's global state.
        value: a tensor's node.
    """

    number: int
    shapes: Shapes
    places: Sequence[int]
    value: Callable[[str], Value]


def make_link(manifest: Manifest, fragment: int = 0) -> tuple[int, tuple[Template, ...]]:
    """How many nodes the link's tape has, and its templates; the update is the last node.

    Args:
        fragment: which the update speaks of.
    """
    m = Making.of(manifest, optimiser_tree(manifest))
    sent, told, all_ = _Sent(m), moment_layout(manifest), m.weights.shapes
    moved = {n: shape for n, shape in all_.items() if manifest.codec.fragment_of(n) == fragment}
    with m.graph.within(Region.PRELUDE):
        places = [place for place, name in enumerate(all_) if name in moved]
        sections = [sent.coded(_Coded(DELTA_SECTION, moved, places, sent.change))]
        if told.m:
            places = [len(all_) + place for place in range(len(told.m))]
            sections.append(sent.coded(_Coded(MOMENT_SECTION, told.m, places, sent.moment)))
        if told.v:
            sections.append(sent.sums(told.v))
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
    return m.graph.add(Op.UPDATE, parts, size, words, width=1)


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Ascending numbers, cut where one is left out."""
    found: list[list[int]] = []
    for place in places:
        if not found or place != found[-1][-1] + 1:
            found.append([])
        found[-1].append(place)
    return found


class _Sent:
    """What a link makes of the last state: nodes of an update's sections."""

    def __init__(self, m: Making) -> None:
        self.m = m
        self.codec = _CODECS[m.manifest.codec.kind]
        told = moment_layout(m.manifest)
        self._exponents = len(m.weights.shapes) + len(told.m)

    # ---- values of the sections ----

    def change(self, name: str) -> Value:
        """What a parameter changed by."""
        m = self.m
        model = m.model(name)
        return m.graph.add(Op.DIFFERENCE, [model, m.state(0, name)], model.elements)

    def moment(self, name: str) -> Value:
        """A first moment as it is."""
        return self.m.state(1, f"m/{name}")

    # ---- sections ----

    def sums(self, shapes: Shapes) -> list[Value]:
        """Of second moments of these shapes: header and sums."""
        m, sums = self.m, list[Value]()
        for name, shape in shapes.items():
            second = m.state(1, f"v/{name}")
            is_matrix = len(shape) == 2
            sums += power_sums(m.graph, second, (shape[0], shape[1])) if is_matrix else [second]
        tail = SumsLayout(Layout.of(shapes)).header
        header = m.graph.add(Op.UPDATE_HEADER, [], len(tail), width=1, tail=tail)
        return [header, joined(m.graph, sums)]

    def coded(self, section: _Coded) -> list[Value]:
        """A section in the codec's bytes: header and body."""
        g, tensors = self.m.graph, len(section.shapes)
        hashed = Value(Source.EXPONENTS, 0, _EXPONENT_BYTES, self._exponents)
        runs = [
            g.add(Op.EXPONENTS, [hashed], len(run), [run[0], len(run)])
            for run in _runs(section.places)
        ]
        exponents = joined(g, runs)
        fixed = fixed_header(self.codec, Layout.of(section.shapes))
        length = len(fixed) + _EXPONENT_BYTES * tensors
        header = g.add(Op.UPDATE_HEADER, [exponents], length, width=1, tail=fixed)
        values = []
        for at, name in enumerate(section.shapes):
            value = section.value(name)
            if self.codec is not CodecId.FP32:
                value = g.add(Op.SCALED, [value, exponents], value.elements, [at])
            values.append(value)
        return [header, *self._body(joined(g, values), section.number)]

    def _body(self, x: Value, section: int) -> list[Value]:
        """The codec's, of all values of a section; but of fp32 they are in grid steps."""
        g, count = self.m.graph, x.elements
        if self.codec is CodecId.FP32:
            return [g.add(Op.FP32, [x], count)]
        if self.codec is CodecId.GRID8:
            return [g.add(Op.GRID8, [x], count, width=1)]
        if self.codec is CodecId.GRID4:
            return [g.add(Op.GRID4, [x], packed_length(count, 4), [count], width=1)]
        is_dithered = self.codec is CodecId.TWO_BIT
        levels, blocks = TWO_BIT_LEVELS if is_dithered else SIGN_LEVELS, -(-count // BLOCK)
        words = [count, levels.reach, levels.share]
        steps = g.add(Op.BLOCK_STEPS, [x], blocks, words, width=1)
        packed = g.add(Op.PACK_STEPS, [steps], packed_length(blocks, STEP_BITS), [blocks], width=1)
        inputs, words = [x, steps], [count, levels.levels, int(is_dithered), section]
        if is_dithered:
            inputs.append(CONTEXT)
        coded = packed_length(count, levels.width)
        return [packed, g.add(Op.CODES, inputs, coded, words, width=1)]
