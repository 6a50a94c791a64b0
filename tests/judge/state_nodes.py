"""Nodes of families 0 and 5: what a step reads from elsewhere, and the digest of where it leads.

Rule of this file: as `float_nodes`. These operations read a tail, or sources beside the trace,
whose bytes stand in the place of an input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from tests.judge.elements import Draw, Node, Operation, Rng, floats, integers32, raw, reals, size
from torch import Tensor

from atoll.numerics.state import SeatState
from atoll.numerics.tensors import CHUNK_BYTES, chunk_prefix
from atoll.numerics.tokens import DTYPES, Tokens
from atoll.numerics.trace import elementwise, imports, states, update_proofs
from atoll.numerics.trace.imports import ImportContext, Reading, TraceSources
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.checkpoint_commitments import StateRoots
from atoll.protocol.types import Digest, SeatIndex

_EMPTY: Final = SeatState({}, {}, {}, {}, 0, 0)
_BOUND: Final = np.array([0x5F7FFFFF, 0x5F800000, 0x5F800001, 0x7F800000, 0x7FC00000], np.uint64)
"""Around 2⁶⁴, and what is not finite."""
_KINDS: Final = {1: "uint8", 2: "uint16", 4: "uint32"}


@dataclass(frozen=True, slots=True)
class Given(Node):
    """A node of these families; its inputs are bytes of a source where it reads one."""

    def result(self, operation: Operation) -> Tensor:
        """The tail stands behind the inputs."""
        return operation(self.words, (*self.inputs, of_bytes(self.tail)), self.iteration)


def operation(op: Op) -> Operation:
    """An operation as those of the other families are called; see `Given`."""

    def run(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
        *read, tail = inputs
        for operations in (states.OPERATIONS, update_proofs.OPERATIONS, elementwise.OPERATIONS):
            if op in operations:
                return operations[op](words, read, raw(tail))
        node = Node(op, tuple(words), tuple(read), iteration, raw(tail))
        nodes = read[_FROM[op] :]
        reading = Reading(node.words, node.tail, node.iteration, nodes, _sources(node))
        return imports.READS[op](reading)

    return run


_FROM: Final[Mapping[int, int]] = dict.fromkeys(range(0x0001, 0x000F), 1) | {
    Op.IDS: 0,
    Op.TARGETS: 0,
}
"""Where the nodes of the trace begin among an import's inputs: behind the source."""


def _sources(node: Node) -> TraceSources:
    """The sources whose bytes the node has."""
    op, first = node.op, node.inputs[0]
    sources = empty_sources()
    if op in {Op.STATE, Op.BASE, Op.MODEL}:
        named = {"a": first}
        return replace(sources, state=replace(_EMPTY, params=named), base=named, model=named)
    if op == Op.EXPONENTS:
        return replace(sources, exponents=raw(first))
    if op == Op.COUNT:
        return replace(sources, state=replace(_EMPTY, count=int(first)))
    if op in {Op.DROPOUT_KEY, Op.GLOBAL_STEP}:
        return replace(sources, context=context_of(raw(first)))
    if op in {Op.TOKENS, Op.RATE}:
        sources = replace(sources, context=context_of(raw(node.inputs[1])))
    if op == Op.TOKENS:
        return replace(sources, tokens=tokens_of(first, node.words[2]))
    return replace(sources, tables=raw(first))


def empty_sources() -> TraceSources:
    """Of which nothing is read."""
    return TraceSources(context_of(bytes(384)), _EMPTY, np.zeros(0, np.uint8), b"", {}, {}, b"")


def tokens_of(data: Tensor, width: int) -> Tokens:
    """Words of so many bytes."""
    return np.frombuffer(raw(data), DTYPES[_KINDS[width]])


def context_of(data: bytes) -> ImportContext:
    words = [Digest(data[at : at + 32]) for at in range(0, len(data), 32)]
    seat, round_, step, global_step = (int.from_bytes(word, "big") for word in words[1:5])
    roots = StateRoots(*words[6:10])
    token = int.from_bytes(words[12], "big") if words[12:] else None
    place = words[0], SeatIndex(seat), round_, step, global_step
    return ImportContext(*place, roots, *words[10:12], token)


def of_bytes(data: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())


def context(rng: Rng) -> Tensor:
    """A context's bytes."""
    numbers = (size(rng, 0, 255), size(rng, 0, 1 << 31), size(rng, 0, 59), size(rng, 0, 59))
    words = [number.to_bytes(32, "big") for number in numbers]
    return of_bytes(b"".join((rng.bytes(32), *words, rng.bytes(7 * 32))))


def _named(op: Op) -> Draw:
    """A tensor of a tree."""

    def draw(rng: Rng, count: int) -> Given:
        tail = chunk_prefix("a", "float32", (count,))
        return Given(op, (7, 99, 0), (reals(rng, count),), tail=tail)

    return draw


def _tokens(rng: Rng, count: int) -> Given:
    width = (1, 2, 4)[size(rng, 0, 2)]
    data = rng.bytes(3000 * width)
    length, masked = size(rng, 1, 40), size(rng, 0, 1)
    stride = (1, length)[size(rng, 0, 1)]
    limit = (3000 - length - 1) // stride + 1
    words = (max(1, count // (length + 1)), length, width, masked, limit, stride)
    return Given(Op.TOKENS, words, (of_bytes(data), context(rng)), size(rng, 0, 8))


def _sequence(op: Op) -> Draw:
    def draw(rng: Rng, count: int) -> Given:
        length = size(rng, 1, 40)
        x = integers32(rng, max(1, count // length) * (length + 1))
        return Given(op, (length,), (x,))

    return draw


def _rate(rng: Rng, count: int) -> Given:
    return Given(Op.RATE, (), (of_bytes(rng.bytes(8 * 60)), context(rng)))


def _corrections(rng: Rng, count: int) -> Given:
    rows = size(rng, 1, 20)
    counted = torch.tensor([size(rng, -2, rows + 2)])
    return Given(Op.CORRECTIONS, (1024, rows), (of_bytes(rng.bytes(1024 + 16 * rows)), counted))


def _rotary(op: Op) -> Draw:
    def draw(rng: Rng, count: int) -> Given:
        return Given(op, (2048, count), (of_bytes(rng.bytes(2048 + 8 * count)),))

    return draw


def _of_context(op: Op) -> Draw:
    return lambda rng, count: Given(op, (), (context(rng),))


def _count(rng: Rng, count: int) -> Given:
    counted = torch.tensor([int(rng.integers(0, 1 << 48))])
    return Given(Op.COUNT, (0, 9, 1), (counted,), tail=chunk_prefix("count", "int64", ()))


def _exponents(rng: Rng, count: int) -> Given:
    numbers = of_bytes(rng.integers(-64, 65, 9).astype(">i2").tobytes())
    first = size(rng, 0, 8)
    return Given(Op.EXPONENTS, (first, size(rng, 1, 9 - first)), (numbers,))


def _chunks(rng: Rng, count: int) -> Given:
    """One chunk or more and part of one; where it is bounded, most are, and borders are there."""
    elements = CHUNK_BYTES // 4 * size(rng, 0, 2) + size(rng, 1, CHUNK_BYTES // 4 - 1)
    x, bounded = reals(rng, elements), int(rng.integers(0, 4) > 0)
    if bounded:
        x = torch.where(x.abs() < 2.0**64, x, 1.0)
        for at in rng.integers(0, elements, size(rng, 0, 2)):
            sign = rng.integers(0, 2, 1, dtype=np.uint64) << np.uint64(31)
            x[at] = floats(rng.choice(_BOUND, 1) | sign)[0]
    prefix = chunk_prefix("some.weight", "float32", (elements,))
    return Given(Op.CHUNKS, (4 * elements, bounded), (x,), tail=prefix)


def digests(rng: Rng, count: int) -> Tensor:
    """Digests, of which one in five is zero."""
    found = [bytes(32) if rng.integers(0, 5) == 0 else rng.bytes(32) for _ in range(count)]
    return of_bytes(b"".join(found))


def _tree(op: Op) -> Draw:
    def draw(rng: Rng, count: int) -> Given:
        leaves = 1 if op is Op.TREE_ROOT else size(rng, 2, 13)
        words = {Op.TREE_LEAVES: (), Op.TREE_LEVEL: (leaves,)}.get(op, (size(rng, 1, 99),))
        return Given(op, words, (digests(rng, leaves),))

    return draw


def _state_digest(rng: Rng, count: int) -> Given:
    return Given(Op.STATE_DIGEST, (), (digests(rng, 1), digests(rng, 1), context(rng)))


def result_node(rng: Rng, count: int) -> Given:
    count = size(rng, 1, 20)
    losses = (
        reals(rng, count) if rng.integers(0, 2) else torch.from_numpy(rng.random(count)).float()
    )
    norms = [1.5, float("nan"), float("inf"), 0.0, 5e-324]
    norm = torch.tensor([norms[int(rng.integers(0, len(norms)))]], dtype=torch.float64)
    most = losses.abs().amax().view(1)
    return Given(Op.RESULT, (losses.numel(),), (digests(rng, 1), norm, losses, most))


NODES: Final[Mapping[int, Draw]] = {
    Op.STATE: _named(Op.STATE),
    Op.TOKENS: _tokens,
    Op.IDS: _sequence(Op.IDS),
    Op.TARGETS: _sequence(Op.TARGETS),
    Op.RATE: _rate,
    Op.CORRECTIONS: _corrections,
    Op.COSINES: _rotary(Op.COSINES),
    Op.SINES: _rotary(Op.SINES),
    Op.DROPOUT_KEY: _of_context(Op.DROPOUT_KEY),
    Op.GLOBAL_STEP: _of_context(Op.GLOBAL_STEP),
    Op.BASE: _named(Op.BASE),
    Op.MODEL: _named(Op.MODEL),
    Op.COUNT: _count,
    Op.EXPONENTS: _exponents,
    Op.CHUNKS: _chunks,
    Op.TREE_LEAVES: _tree(Op.TREE_LEAVES),
    Op.TREE_LEVEL: _tree(Op.TREE_LEVEL),
    Op.TREE_ROOT: _tree(Op.TREE_ROOT),
    Op.STATE_DIGEST: _state_digest,
    Op.RESULT: result_node,
}
"""A node of about so many elements, where the operation's size is not its own."""
OPERATIONS: Final[Mapping[int, Operation]] = {op: operation(Op(op)) for op in NODES}
