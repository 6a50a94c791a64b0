"""The program of a job: what every node of a step's trace, and of its update proof's, is computed
from.

Rule of this file: the bytes are those that `contracts/src/judge/ProgramReader.sol` parses, so a
program has one encoding and one root. SPEC-GAME.md, chapter 1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

from atoll.protocol.hashing import keccak256
from atoll.protocol.merge_shape import MergeShape
from atoll.protocol.merkle import merkle_root
from atoll.protocol.terms import MAX_SHOWN, loss_bytes, shown_bytes
from atoll.protocol.types import ZERO_DIGEST, Digest

PROGRAM_VERSION: Final = 1
_HEADER: Final = struct.Struct(">BQQIII32sQBBII32sQ32s32s")
_RESET_PERIODS: Final = struct.Struct(">III")
_FRAGMENT: Final = struct.Struct(">QQ")
_TEMPLATE: Final = struct.Struct(">BHBQIIIH")
_INPUT: Final = struct.Struct(">BIIQ")


class MalformedProgram(ValueError):
    """Bytes that are no header or template."""


class Part(IntEnum):
    """Which trace a node is of, where seats carry no parameters; else see
    `TraceHeader.update_proof_part`."""

    STEP = 0
    UPDATE_PROOF = 1


class Source(IntEnum):
    """Where an input's bytes are opened."""

    TRACE = 0
    STATE = 1
    TOKENS = 2
    TABLES = 3
    BASE = 4
    MODEL = 5
    CONTEXT = 6
    EXPONENTS = 7
    GENERATED = 8
    SAMPLED = 9


class Fragment(NamedTuple):
    """Nodes of the traces that speak of one fragment.

    Attributes:
        update_proof_nodes: of the update proof of a round that sends it.
        taking_nodes: of the step that takes it in, a round later.
    """

    update_proof_nodes: int
    taking_nodes: int


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """What all nodes of a job share.

    Attributes:
        step_nodes, update_proof_nodes: nodes of the two traces; where there are fragments each has
            its own link, and `update_proof_nodes` is 0.
        steps, segment: of a round, and of one of its segments (it divides them).
        micro_batches: of a step; so many losses has it.
        train_tokens, token_bytes, masked, batch, seq: of the data, as the manifest has them.
        tables_bytes: how long the tables are, whose root is `tables_root`.
        base_root: params root of the frozen model; zero where there is none.
        initial: digest of the global state of round 0.
        reset_period: so many rounds open publicly once; 1 where there are no fragments.
        overlap: the step of a round that mixes in what the round before merged.
        fragments: none where a seat keeps no parameters of its own.
        generation_nodes: of the trace of a token, of a plain step and of each fragment's that mixes
            in; none where nothing is sampled.
    """

    step_nodes: int
    update_proof_nodes: int
    steps: int
    segment: int
    micro_batches: int
    data_root: Digest
    train_tokens: int
    token_bytes: int
    masked: bool
    batch: int
    seq: int
    tables_root: Digest
    tables_bytes: int
    base_root: Digest = ZERO_DIGEST
    initial: Digest = ZERO_DIGEST
    reset_period: int = 1
    overlap: int = 0
    fragments: tuple[Fragment, ...] = ()
    generation_nodes: tuple[int, ...] = ()

    @property
    def is_sampled(self) -> bool:
        """Whether its steps sample what they learn."""
        return bool(self.generation_nodes)

    @property
    def loss_bytes(self) -> int:
        """Of a micro-batch in a step's result."""
        return loss_bytes(is_sampled=self.is_sampled)

    @property
    def _parts(self) -> int:
        """How many parts are before those of tokens."""
        return 1 + max(1, 2 * len(self.fragments))

    def generation_part(self, part: int) -> int:
        """Which part the trace of a token is, of a step of this part."""
        mixes_in = part - len(self.fragments) if part != Part.STEP else 0
        return self._parts + mixes_in

    def update_proof_part(self, round: int) -> int:
        """Which part the update proof of a round is: behind part 0, the step, a part a fragment."""
        return 1 + round % max(1, len(self.fragments))

    def step_part(self, round: int, step: int) -> int:
        """Which part a step of a round is: 0, or one behind the update proofs where it mixes in."""
        count = len(self.fragments)
        mixes_in = count > 0 and round > 0 and step == self.overlap
        return 1 + count + (round - 1) % count if mixes_in else Part.STEP

    def nodes(self, part: int) -> int:
        """How many nodes a trace of this part has. Raises IndexError where no such part is."""
        if part == Part.STEP:
            return self.step_nodes
        if part >= self._parts:
            return self.generation_nodes[part - self._parts]
        if not self.fragments:
            return (self.update_proof_nodes,)[part - 1]
        at, mixes_in = (part - 1) % len(self.fragments), (part - 1) // len(self.fragments)
        return self.fragments[at][mixes_in]

    @property
    def is_playable(self) -> bool:
        """Whether the holder of a seat could open a segment of it in one transaction."""
        shown = shown_bytes(self.segment, self.micro_batches, is_sampled=self.is_sampled)
        return shown <= MAX_SHOWN

    def to_bytes(self) -> bytes:
        """The packed header, big-endian. Raises struct.error on a number out of range."""
        fixed = _HEADER.pack(
            PROGRAM_VERSION,
            self.step_nodes,
            self.update_proof_nodes,
            self.steps,
            self.segment,
            self.micro_batches,
            self.data_root,
            self.train_tokens,
            self.token_bytes,
            self.masked,
            self.batch,
            self.seq,
            self.tables_root,
            self.tables_bytes,
            self.base_root,
            self.initial,
        )
        if not self.fragments and not self.generation_nodes:
            return fixed
        reset_periods = _RESET_PERIODS.pack(self.reset_period, self.overlap, len(self.fragments))
        fragments = b"".join(_FRAGMENT.pack(*each) for each in self.fragments)
        generations = struct.pack(f">{len(self.generation_nodes)}Q", *self.generation_nodes)
        return fixed + reset_periods + fragments + generations

    @classmethod
    def from_bytes(cls, data: bytes) -> TraceHeader:
        """Raises MalformedProgram on bytes that `to_bytes` could not have given."""
        if len(data) < _HEADER.size or data[0] != PROGRAM_VERSION:
            raise MalformedProgram(f"a header of {len(data)} bytes")
        _, *fields = _HEADER.unpack_from(data)
        header = cls(*fields)
        header = replace(header, masked=bool(header.masked))
        if len(data) > _HEADER.size:
            header = header._with_fragments(data[_HEADER.size :])
        if header.to_bytes() != data:
            raise MalformedProgram("a header that is spelt otherwise")
        return header

    def _with_fragments(self, rest: bytes) -> TraceHeader:
        try:
            reset_period, overlap, count = _RESET_PERIODS.unpack_from(rest)
            end = _RESET_PERIODS.size + count * _FRAGMENT.size
            pairs = tuple(
                Fragment(*pair) for pair in _FRAGMENT.iter_unpack(rest[_RESET_PERIODS.size : end])
            )
            nodes = struct.unpack(f">{(1 + count) * (len(rest) > end)}Q", rest[end:])
        except struct.error as error:
            raise MalformedProgram(f"a header's {len(rest)} bytes of fragments") from error
        return replace(
            self,
            reset_period=reset_period,
            overlap=overlap,
            fragments=pairs,
            generation_nodes=nodes,
        )


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a template: node `node + iteration·stride` of the trace, or another source.

    Attributes:
        size: of the whole input, in bytes.
    """

    source: Source
    node: int
    stride: int
    size: int


@dataclass(frozen=True, slots=True)
class TraceTemplate:
    """Nodes first, first + stride, …, `count` of them, which differ in their iteration alone.

    Attributes:
        width: bytes of an element of the output: 1, 2, 4, 8, 16 or 32.
        size: bytes of the output, a multiple of the width.
        words: what the operation is told beside its inputs, each below 2⁶⁴.
    """

    part: int
    op: int
    width: int
    size: int
    first: int
    count: int
    stride: int
    inputs: tuple[Input, ...]
    words: tuple[int, ...]
    tail: bytes = b""

    def to_bytes(self) -> bytes:
        """The packed template, big-endian. Raises struct.error on a number out of range."""
        head = _TEMPLATE.pack(
            self.part,
            self.op,
            self.width,
            self.size,
            self.first,
            self.count,
            self.stride,
            len(self.inputs),
        )
        inputs = b"".join(_INPUT.pack(i.source, i.node, i.stride, i.size) for i in self.inputs)
        words = struct.pack(f">H{len(self.words)}Q", len(self.words), *self.words)
        return head + inputs + words + self.tail

    @classmethod
    def from_bytes(cls, data: bytes) -> TraceTemplate:
        """Raises MalformedProgram on bytes that `to_bytes` could not have given."""
        try:
            part, op, width, size, first, count, stride, inputs = _TEMPLATE.unpack_from(data)
            at = _TEMPLATE.size
            read = []
            for _ in range(inputs):
                source, *rest = _INPUT.unpack_from(data, at)
                read.append(Input(Source(source), *rest))
                at += _INPUT.size
            (number,) = struct.unpack_from(">H", data, at)
            words = struct.unpack_from(f">{number}Q", data, at + 2)
            at += 2 + 8 * number
            numbers = (op, width, size, first, count, stride)
            return cls(part, *numbers, tuple(read), words, data[at:])
        except (struct.error, ValueError) as error:
            raise MalformedProgram(str(error)) from error

    def iteration(self, node: int) -> int | None:
        """Which of its nodes that is, from 0; None where it is none of them."""
        if not self.first <= node:
            return None
        i, rest = divmod(node - self.first, self.stride) if self.stride else (0, node - self.first)
        return i if rest == 0 and i < self.count else None

    def attributes(self, iteration: int) -> bytes:
        """What `IOneStep` is told: iteration and words (u64 big-endian each), and the tail."""
        return struct.pack(f">{1 + len(self.words)}Q", iteration, *self.words) + self.tail


def program_leaves(
    header: TraceHeader, templates: Sequence[TraceTemplate], merge: MergeShape | None = None
) -> list[Digest]:
    """Leaves of the program's tree: keccak of the header, of every template in order, and of the
    merge's shape.
    """
    parts = [header.to_bytes(), *(each.to_bytes() for each in templates)]
    if merge is not None:
        parts.append(merge.to_bytes())
    return [keccak256(part) for part in parts]


def program_root(
    header: TraceHeader, templates: Sequence[TraceTemplate], merge: MergeShape | None = None
) -> Digest:
    """`Terms.program`: the root over all of these."""
    return merkle_root(program_leaves(header, templates, merge))
