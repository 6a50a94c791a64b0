"""Steps too large to be held: trees whose leaves are nearly all the same, and a party of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from tests.support.games import Job, Shape, _op, _trace, flipped
from tests.support.toys import COPY, RESULT, TOY

from atoll.protocol.checkpoint_commitments import StateRoots
from atoll.protocol.games.judge import Need
from atoll.protocol.games.moves import (
    Claim,
    Opening,
    ProgramPart,
)
from atoll.protocol.games.trees import (
    PIECE,
    MemoryTree,
    path_of,
    piece_tree,
    top,
)
from atoll.protocol.hashing import keccak256
from atoll.protocol.merkle import LEAF, NODE
from atoll.protocol.program import (
    Input,
    Part,
    Source,
    TraceHeader,
    TraceTemplate,
    program_leaves,
    program_root,
)
from atoll.protocol.types import Digest


class EvenTree:
    """A tree all of whose leaves but a few are the same, made where it is read.

    Args:
        others: leaves that differ, by number.
    """

    def __init__(self, count: int, leaf: Digest, others: Mapping[int, Digest]) -> None:
        self.count, self._leaf, self._others = count, leaf, dict(others)

    def leaf(self, index: int) -> Digest:
        return self._others.get(index, self._leaf)

    def node(self, level: int, index: int) -> Digest:
        first, last = index << level, min((index + 1) << level, self.count)
        if last - first == 1 << level and not any(first <= i < last for i in self._others):
            return _even(self._leaf, level)
        if level == 0:
            return keccak256(LEAF + self.leaf(index))
        left = self.node(level - 1, 2 * index)
        if first + (1 << level - 1) >= last:
            return left
        return keccak256(NODE + left + self.node(level - 1, 2 * index + 1))


@cache
def _even(leaf: Digest, level: int) -> Digest:
    if level == 0:
        return keccak256(LEAF + leaf)
    return keccak256(NODE + 2 * _even(leaf, level - 1))


LARGE_NODES = 1 << 20
LARGE_BYTES = 1 << 29
_PIECE = bytes(range(256)) * 4


@dataclass
class LargeParty:
    """A step of 2²⁰ nodes of half a gigabyte each, of which nothing is kept: all pieces are alike.

    Attributes:
        wrong: node and piece of which this party's bytes are others.
    """

    wrong: tuple[int, int] | None = None
    roots: StateRoots = field(default_factory=lambda: Job(Shape()).roots)

    @cached_property
    def header_(self) -> TraceHeader:
        data = top(EvenTree(LARGE_BYTES // PIECE, keccak256(_PIECE), {}))
        tables = keccak256(b"no tables")
        return TraceHeader(
            LARGE_NODES, 0, 1, 1, 1, data, LARGE_BYTES // 4, 4, False, 1, 1, tables, 0
        )

    @cached_property
    def templates(self) -> list[TraceTemplate]:
        size, step = LARGE_BYTES, Part.STEP
        loop: dict[str, object] = {"count": LARGE_NODES - 2, "stride": 1}
        return [
            _op(step, COPY, size, 0, Input(Source.TOKENS, 0, 0, size)),
            _op(step, COPY, size, 1, _trace(0, size), **loop),
            _op(
                step, RESULT, 44, LARGE_NODES - 1, Input(Source.CONTEXT, 0, 0, 384), _trace(0, size)
            ),
        ]

    def claim(self) -> Claim:
        """Of its only step; the state after it is the data seed."""
        job = Job(Shape())
        work = self._result()[32:]
        program = program_root(self.header_, self.templates)
        base = job.claim(program=program, segment=0, round=0)
        return replace(base, closing=base.data_seed, work_tag=keccak256(work))

    def _result(self) -> bytes:
        opened = [_PIECE[:4]]
        floats = [TOY.run(RESULT, b"", element, opened) for element in (8, 9, 10)]
        if self.wrong:
            floats[2] = TOY.run(RESULT, b"", 8, opened)
        return keccak256(b"data") + b"".join(floats)

    @property
    def states(self) -> list[Digest]:
        return [Digest(self._result()[:32])]

    @property
    def works(self) -> bytes:
        return self._result()[32:]

    def _part(self, index: int) -> ProgramPart:
        leaves = MemoryTree(program_leaves(self.header_, self.templates))
        data = [self.header_.to_bytes(), *(t.to_bytes() for t in self.templates)][index]
        return ProgramPart(data, index, leaves.count, path_of(leaves, index))

    @property
    def header(self) -> ProgramPart:
        return self._part(0)

    def template(self, node: int) -> ProgramPart:
        return self._part(1 if node == 0 else 3 if node == LARGE_NODES - 1 else 2)

    def trace(self, step: int) -> LargeParty:
        return self

    @property
    def tree(self) -> EvenTree:
        others = {LARGE_NODES - 1: top(piece_tree(self._result()))}
        if self.wrong:
            others[self.wrong[0]] = top(self.tensor(self.wrong[0]))
        return EvenTree(LARGE_NODES, top(self.tensor(0)), others)

    def tensor(self, node: int) -> EvenTree | MemoryTree:
        if node == LARGE_NODES - 1:
            return piece_tree(self._result())
        wrong = {}
        if self.wrong and self.wrong[0] == node:
            wrong = {self.wrong[1]: keccak256(self._piece(*self.wrong))}
        return EvenTree(LARGE_BYTES // PIECE, keccak256(_PIECE), wrong)

    def _piece(self, node: int, piece: int) -> bytes:
        return flipped(-1)(_PIECE) if self.wrong == (node, piece) else _PIECE

    def read(self, node: int, start: int, end: int) -> bytes:
        if node == LARGE_NODES - 1:
            return self._result()[start:end]
        first = start // PIECE
        pieces = (self._piece(node, i) for i in range(first, -(-end // PIECE)))
        return b"".join(pieces)[start - first * PIECE : end - first * PIECE]

    @property
    def context(self) -> bytes:
        raise AssertionError("no import is in dispute")

    def open(self, template: TraceTemplate, source: Input, need: Need) -> Opening:
        raise AssertionError("no import is in dispute")
