"""The link: nodes from the round's model and the last state to the update (SPEC-MERGE.md, 2)."""

from __future__ import annotations

from math import prod

from atoll.bits.codec.block_steps import BLOCK, SIGN_LEVELS, STEP_BITS, TWO_BIT_LEVELS
from atoll.bits.codec.header import CodecId, fixed_header
from atoll.bits.codec.layout import Layout
from atoll.bits.codec.packing import packed_length
from atoll.bits.tape.build.graph import Region, Value
from atoll.bits.tape.build.grids import joined
from atoll.bits.tape.build.making import CONTEXT, Making
from atoll.bits.tape.build.step import optimiser_tree
from atoll.bits.tape.opcodes import Op
from atoll.law.manifest import Manifest
from atoll.law.program import Part, Source, Template

_CODECS = {
    "fp32": CodecId.FP32,
    "grid8": CodecId.GRID8,
    "grid4": CodecId.GRID4,
    "two_bit": CodecId.TWO_BIT,
    "sign": CodecId.SIGN,
}
_EXPONENT_BYTES = 2


def make_link(manifest: Manifest) -> tuple[int, tuple[Template, ...]]:
    """How many nodes the link's tape has, and its templates; the update is the last node."""
    m = Making.of(manifest, optimiser_tree(manifest))
    g, codec = m.graph, _CODECS[manifest.codec.kind]
    with g.within(Region.END):
        tensors = len(m.weights.shapes)
        hashed = Value(Source.EXPONENTS, 0, _EXPONENT_BYTES, tensors)
        exponents = g.add(Op.EXPONENTS, [hashed], tensors)
        fixed = fixed_header(codec, Layout.of(m.weights.shapes))
        length = len(fixed) + _EXPONENT_BYTES * tensors
        parts = [g.add(Op.UPDATE_HEADER, [exponents], length, width=1, tail=fixed)]
        changes = [_change(m, codec, exponents, at) for at in range(tensors)]
        parts += _sections(m, codec, joined(g, changes))
        sizes = [part.size for part in parts]
        update = g.add(Op.UPDATE, parts, sum(sizes), sizes, width=1)
    return g.templates(Part.LINK, update)


def _change(m: Making, codec: CodecId, exponents: Value, at: int) -> Value:
    """What a tensor changed by, in steps of its grid."""
    name = list(m.weights.shapes)[at]
    count = prod(m.shape(name))
    words = [m.weights.first[name], m.weights.leaves, 0]
    source = [Value(Source.MODEL, 0, 4, count)]
    model = m.graph.add(Op.MODEL, source, count, words, tail=m.weights.prefix(name))
    last = m.state(0, name)
    if codec is CodecId.FP32:
        return m.graph.add(Op.DIFFERENCE, [model, last], count)
    return m.graph.add(Op.SCALED, [model, last, exponents], count, [at])


def _sections(m: Making, codec: CodecId, x: Value) -> list[Value]:
    """The body's, of all values."""
    g, count = m.graph, x.elements
    if codec is CodecId.FP32:
        return [x]
    if codec is CodecId.GRID8:
        return [g.add(Op.GRID8, [x], count, width=1)]
    if codec is CodecId.GRID4:
        return [g.add(Op.GRID4, [x], packed_length(count, 4), [count], width=1)]
    is_dithered = codec is CodecId.TWO_BIT
    levels, blocks = TWO_BIT_LEVELS if is_dithered else SIGN_LEVELS, -(-count // BLOCK)
    words = [count, levels.reach, levels.share]
    steps = g.add(Op.BLOCK_STEPS, [x], blocks, words, width=1)
    packed = g.add(Op.PACK_STEPS, [steps], packed_length(blocks, STEP_BITS), [blocks], width=1)
    inputs, words = [x, steps], [count, levels.levels, int(is_dithered)]
    if is_dithered:
        inputs.append(CONTEXT)
    return [packed, g.add(Op.CODES, inputs, packed_length(count, levels.width), words, width=1)]
