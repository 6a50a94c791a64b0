"""What is sent of the parameters, in the codec's codes, and what that leaves out.

Rule of this file: a link and the step before it make the same nodes of the same parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.bits.codec.block_steps import (
    BLOCK,
    SIGN_LEVELS,
    STEP_BITS,
    TWO_BIT_LEVELS,
    Levels,
)
from atoll.bits.codec.dither import DELTA_SECTION
from atoll.bits.codec.header import CodecId
from atoll.bits.codec.packing import packed_length
from atoll.bits.layout import moment_layout
from atoll.bits.tape.build.graph import Value
from atoll.bits.tape.build.grids import f32, joined
from atoll.bits.tape.build.making import CONTEXT, Making
from atoll.bits.tape.opcodes import Op
from atoll.law.program import Source

CODECS = {
    "fp32": CodecId.FP32,
    "grid8": CodecId.GRID8,
    "grid4": CodecId.GRID4,
    "two_bit": CodecId.TWO_BIT,
    "sign": CodecId.SIGN,
}
EXPONENT_BYTES = 2


class Coder:
    """Nodes of a section's values in the codes of the job's codec."""

    def __init__(self, m: Making) -> None:
        self.m = m
        self.codec = CODECS[m.manifest.codec.kind]
        self._exponents = len(m.weights.shapes) + len(moment_layout(m.manifest).m)

    def wanted(self, name: str, after: Value | None = None) -> Value:
        """What a parameter changed by, and what is fed back of it.

        Args:
            after: the parameter; None for that of the state that the tape opens with.
        """
        g, m, feedback = self.m.graph, self.m, self.m.manifest.codec.feedback
        model = m.model(name)
        last = m.state(0, name) if after is None else after
        change = g.add(Op.DIFFERENCE, [model, last], model.elements)
        if not m.manifest.codec.carries_feedback:
            return change
        before = m.state(1, f"feedback/{name}")
        decayed = g.add(Op.SCALE, [before], before.elements, [f32(float(feedback))])
        return g.add(Op.ADD, [change, decayed], change.elements)

    def exponents(self, places: Sequence[int]) -> Value:
        """Those at these places among the exponents of the round's global state."""
        g = self.m.graph
        hashed = Value(Source.EXPONENTS, 0, EXPONENT_BYTES, self._exponents)
        runs = [
            g.add(Op.EXPONENTS, [hashed], len(run), [run[0], len(run)]) for run in _runs(places)
        ]
        return joined(g, runs)

    def in_steps(self, value: Value, exponents: Value, at: int) -> Value:
        """The values of tensor `at` of a section, in steps of its grid; of fp32 as they are."""
        if self.codec is CodecId.FP32:
            return value
        return self.m.graph.add(Op.SCALED, [value, exponents], value.elements, [at])

    def indices(self, x: Value) -> Value | None:
        """Of the steps of the blocks of a section; None where the codec has none."""
        if self.codec not in {CodecId.TWO_BIT, CodecId.SIGN}:
            return None
        levels, blocks = self._levels, -(-x.elements // BLOCK)
        words = [x.elements, levels.reach, levels.share]
        return self.m.graph.add(Op.BLOCK_STEPS, [x], blocks, words, width=1)

    def packed(self, indices: Value) -> Value:
        """The indices as the update has them."""
        count = indices.elements
        size = packed_length(count, STEP_BITS)
        return self.m.graph.add(Op.PACK_STEPS, [indices], size, [count], width=1)

    def codes(self, x: Value, indices: Value | None, section: int) -> Value:
        """Of all values of a section; but of fp32 they are in grid steps."""
        g, count = self.m.graph, x.elements
        if self.codec is CodecId.FP32:
            return g.add(Op.FP32, [x], count)
        if self.codec is CodecId.GRID8:
            return g.add(Op.GRID8, [x], count, width=1)
        if indices is None:
            return g.add(Op.GRID4, [x], packed_length(count, 4), [count], width=1)
        levels, dither = self._levels, self._dither
        words = [count, levels.levels, len(dither), section]
        size = packed_length(count, levels.width)
        return g.add(Op.CODES, [x, indices, *dither], size, words, width=1)

    def said(self, codes: Value, indices: Value | None, count: int) -> Value:
        """What the codes of the parameters' section say, in grid steps, a byte each."""
        g = self.m.graph
        if self.codec is CodecId.GRID8:
            return codes
        if indices is None:
            return g.add(Op.SAID, [codes], count, [count, 0, 0, DELTA_SECTION], width=1)
        words = [count, self._levels.levels, len(self._dither), DELTA_SECTION]
        return g.add(Op.SAID, [codes, indices, *self._dither], count, words, width=1)

    @property
    def _levels(self) -> Levels:
        return TWO_BIT_LEVELS if self.codec is CodecId.TWO_BIT else SIGN_LEVELS

    @property
    def _dither(self) -> list[Value]:
        return [CONTEXT] if self.codec is CodecId.TWO_BIT else []


def left_of(m: Making, params: dict[str, Value]) -> dict[str, Value]:
    """Both feedbacks after a step to these parameters, by their names under the optimiser root."""
    if not m.manifest.codec.carries_feedback:
        return {}
    coder, found, first = Coder(m), dict[str, Value](), 0
    exponents = coder.exponents(range(len(params)))
    wanted = {name: coder.wanted(name, after) for name, after in params.items()}
    steps = [coder.in_steps(w, exponents, at) for at, w in enumerate(wanted.values())]
    x = joined(m.graph, steps)
    indices = coder.indices(x)
    said = coder.said(coder.codes(x, indices, DELTA_SECTION), indices, x.elements)
    for at, (name, w) in enumerate(wanted.items()):
        found[f"feedback/{name}"] = m.state(1, f"feedback/{name}")
        inputs, words = [w, said, exponents], [at, first]
        found[f"left/{name}"] = m.graph.add(Op.LEFT, inputs, w.elements, words)
        first += w.elements
    return found


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Ascending numbers, cut where one is left out."""
    found: list[list[int]] = []
    for place in places:
        if not found or place != found[-1][-1] + 1:
            found.append([])
        found[-1].append(place)
    return found
