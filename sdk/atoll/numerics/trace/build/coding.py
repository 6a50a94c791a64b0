"""What is sent of the parameters, in the codec's codes, and what that leaves out.

Rule of this file: an update proof and the step before it make the same nodes of the same
parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from atoll.numerics.codec.block_steps import STEP_BITS, Levels
from atoll.numerics.codec.dct import coefficients_of
from atoll.numerics.codec.dither import DELTA_SECTION
from atoll.numerics.codec.packing import packed_length
from atoll.numerics.codec.registry import codec_of
from atoll.numerics.codec.sparse import GROUP_BITS, QUARTERS, counts_length, kept_of
from atoll.numerics.state_layout import moment_layout
from atoll.numerics.trace.build.graph import Value
from atoll.numerics.trace.build.grids import f32, joined
from atoll.numerics.trace.build.making import CONTEXT, Making
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.program import Source

EXPONENT_BYTES = 2
VALUE_BITS, BYTE_BITS = 32, 8
"""Of codes that are the values themselves, and of codes that need no packing."""


@dataclass(frozen=True, slots=True)
class Coded:
    """Nodes of a section's values in codes.

    Attributes:
        count: of the values; of dct of the coefficients.
        codes: of those that are sent.
        indices: of the steps of their blocks, where there are blocks; packed: as the update has
            them.
        kept: flags of the values that are sent, eight a byte; None where all are.
        where: as the update says it.
    """

    count: int
    codes: Value
    indices: tuple[Value, ...] = ()
    packed: tuple[Value, ...] = ()
    kept: Value | None = None
    where: tuple[Value, ...] = ()

    @property
    def body(self) -> list[Value]:
        """The section behind its header."""
        return [*self.packed, *self.where, self.codes]


class Coder:
    """Nodes of a section's values in the codes of the job's codec."""

    def __init__(self, m: Making) -> None:
        self.m = m
        self.codec = m.manifest.codec.properties
        self.form = codec_of(m.manifest.codec).form
        self._exponents = len(m.weights.shapes) + len(moment_layout(m.manifest).m)

    def wanted(self, name: str, after: Value | None = None) -> Value:
        """What a parameter changed by, and what is fed back of it.

        Args:
            after: the parameter; None for that of the state that the trace opens with.
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

    def exponents(self, positions: Sequence[int]) -> Value:
        """Those at these positions among the exponents of the round's global state."""
        g = self.m.graph
        hashed = Value(Source.EXPONENTS, 0, EXPONENT_BYTES, self._exponents)
        runs = [
            g.add(Op.EXPONENTS, [hashed], len(run), [run[0], len(run)]) for run in _runs(positions)
        ]
        return joined(g, runs)

    def in_steps(self, value: Value, exponents: Value, at: int) -> Value:
        """The values of tensor `at` of a section, in steps of its grid; exact ones as they are."""
        if self.codec.is_exact:
            return value
        return self.m.graph.add(Op.SCALED, [value, exponents], value.elements, [at])

    def coded(self, x: Value, section: int) -> Coded:
        """A section's values, in steps of their grids; exact ones as they are."""
        x = self._transformed(x)
        g, count = self.m.graph, x.elements
        if self.form.levels is None:
            return Coded(count, self._in_grid_steps(x))
        if not self.form.keeps_largest:
            return self._in_blocks(x, section, self.form.levels)
        before = g.add(Op.COUNT_BEFORE, [x], QUARTERS * count, [count])
        kept = g.add(Op.KEPT, [before], packed_length(count, 1), [count])
        chosen = g.add(Op.CHOSEN, [kept, x], kept_of(count), [count])
        lower = packed_length(chosen.elements, GROUP_BITS)
        where = (
            g.add(Op.LOWER_BITS, [kept], lower, [count]),
            g.add(Op.COUNTS, [kept], counts_length(count), [count]),
        )
        coded = self._in_blocks(chosen, section, self.form.levels)
        return replace(coded, count=count, kept=kept, where=where)

    def said(self, coded: Coded) -> Value:
        """What the codes of the parameters' section say, in grid steps, a byte each; of dct of the
        coefficients.
        """
        g, codes, kept = self.m.graph, coded.codes, coded.kept
        if self.form.levels is None and self.form.bits == BYTE_BITS:
            return codes
        if self.form.levels is None:
            words = [coded.count, 0, 0, DELTA_SECTION, 0]
            return g.add(Op.SAID, [codes], coded.count, words)
        sent = coded.count if kept is None else kept_of(coded.count)
        words = self._words(sent, DELTA_SECTION, self.form.levels)
        inputs = [codes, *coded.indices, *self._dither]
        said = g.add(Op.SAID, inputs, sent, words)
        if kept is None:
            return said
        return g.add(Op.SPREAD, [kept, said], coded.count, [coded.count])

    def residual(self, w: Value, said: Value, exponents: Value, words: list[int]) -> Value:
        """What `coordinates` lack of a parameter's values; the words are of RESIDUAL."""
        op = Op.RESIDUAL_FINE if self.form.is_transformed else Op.RESIDUAL
        return self.m.graph.add(op, [w, said, exponents], w.elements, words)

    def coordinates(self, said: Value, count: int) -> Value:
        """So many values from what was said; of dct in 256ths of a grid step."""
        if not self.form.is_transformed:
            return said
        return self.m.graph.add(Op.INVERSE_DCT, [said], count, [count])

    def _transformed(self, x: Value) -> Value:
        """What is put in codes: of dct the coefficients."""
        if not self.form.is_transformed:
            return x
        return self.m.graph.add(Op.DCT, [x], coefficients_of(x.elements), [x.elements])

    def _in_grid_steps(self, x: Value) -> Value:
        """In codes of grid steps, or the values themselves."""
        g, count, bits = self.m.graph, x.elements, self.form.bits
        if bits == VALUE_BITS:
            return g.add(Op.FP32, [x], count)
        if bits == BYTE_BITS:
            return g.add(Op.GRID8, [x], count)
        return g.add(Op.GRID4, [x], packed_length(count, bits), [count])

    def _in_blocks(self, x: Value, section: int, levels: Levels) -> Coded:
        """In codes of one or two bits, with a step for each block."""
        g, count, block = self.m.graph, x.elements, self.form.block
        words = [count, levels.reach, levels.share, block]
        blocks = -(-count // block)
        indices = g.add(Op.BLOCK_STEPS, [x], blocks, words)
        size = packed_length(blocks, STEP_BITS)
        packed = g.add(Op.PACK_STEPS, [indices], size, [blocks])
        inputs, words = [x, indices, *self._dither], self._words(count, section, levels)
        size = packed_length(count, levels.width)
        codes = g.add(Op.CODES, inputs, size, words)
        return Coded(count, codes, (indices,), (packed,))

    def _words(self, count: int, section: int, levels: Levels) -> list[int]:
        """Of CODES and SAID."""
        return [count, levels.levels, len(self._dither), section, self.form.block]

    @property
    def _dither(self) -> list[Value]:
        return [CONTEXT] if self.form.is_dithered else []


def residual_of(m: Making, params: dict[str, Value]) -> dict[str, Value]:
    """Both feedbacks after a step to these parameters, by their names under the optimiser root."""
    if not m.manifest.codec.carries_feedback:
        return {}
    coder, states, first = Coder(m), dict[str, Value](), 0
    exponents = coder.exponents(range(len(params)))
    wanted = {name: coder.wanted(name, after) for name, after in params.items()}
    steps = [coder.in_steps(w, exponents, at) for at, w in enumerate(wanted.values())]
    x = joined(m.graph, steps)
    said = coder.coordinates(coder.said(coder.coded(x, DELTA_SECTION)), x.elements)
    for at, (name, w) in enumerate(wanted.items()):
        states[f"feedback/{name}"] = m.state(1, f"feedback/{name}")
        states[f"left/{name}"] = coder.residual(w, said, exponents, [at, first])
        first += w.elements
    return states


def _runs(positions: Sequence[int]) -> list[list[int]]:
    """Ascending numbers, cut where one is left out."""
    runs: list[list[int]] = []
    for position in positions:
        if not runs or position != runs[-1][-1] + 1:
            runs.append([])
        runs[-1].append(position)
    return runs
