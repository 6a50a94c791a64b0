"""The program of a job: what every node of a step's tape is, as bytes under one root.

Rule of this file: a program is a pure function of the manifest, and its bytes are those of
SPEC-JUDGE.md, 2. Numbers are big-endian. The contract knows the root alone; in a game's last move
it is shown the header and one template, each by a path.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from atoll.bits.kernels.keccak import Bytes
from atoll.bits.pieces import tree_of
from atoll.bits.tape.opcodes import Source
from atoll.law.hashing import keccak256
from atoll.law.words import Digest

PROGRAM_VERSION: Final = 1
STEP, LINK = 0, 1
"""Parts of a program: a step's tape, and the one of what a seat sends at the end of a round."""
_HEADER: Final = struct.Struct(">BQQIII32sQBBII32sQ32s32s")
_TEMPLATE: Final = struct.Struct(">BHBQIIIH")
_INPUT: Final = struct.Struct(">BIIQ")
_WORDS: Final = struct.Struct(">H")
_NO_TEMPLATE: Final = -1


@dataclass(frozen=True, slots=True)
class Input:
    """What a node reads.

    Attributes:
        node: of a tape's node, its number for iteration 0 of the template; else 0.
        stride: added to the number with every iteration.
        size: bytes of the whole tensor, or of the whole source.
    """

    source: Source
    node: int
    stride: int
    size: int


@dataclass(frozen=True, slots=True)
class Template:
    """One operation of the program: a node for every iteration of the loop it stands in.

    Attributes:
        part: STEP or LINK.
        op: its number (`opcodes.Op`).
        width: bytes of an element of the output.
        size: bytes of the output.
        first, count, stride: iteration i of `count` is node first + i · stride.
        words: of the operation, each below 2^64.
        tail: what the operation needs besides: the prefix of a tensor's chunks.
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
    tail: bytes

    def to_bytes(self) -> bytes:
        """The bytes that the program's root is over."""
        head = _TEMPLATE.pack(
            self.part, self.op, self.width, self.size,
            self.first, self.count, self.stride, len(self.inputs),
        )  # fmt: skip
        read = b"".join(_INPUT.pack(i.source, i.node, i.stride, i.size) for i in self.inputs)
        words = struct.pack(f">{len(self.words)}Q", *self.words)
        return head + read + _WORDS.pack(len(self.words)) + words + self.tail

    def attributes(self, iteration: int) -> bytes:
        """What a contract of operations is given of one node."""
        return struct.pack(f">{1 + len(self.words)}Q", iteration, *self.words) + self.tail

    def node(self, iteration: int) -> int:
        """The number of its node in that iteration."""
        return self.first + iteration * self.stride

    def reads(self, iteration: int) -> list[int]:
        """The nodes that it reads in that iteration."""
        tape = (i for i in self.inputs if i.source is Source.TAPE)
        return [i.node + iteration * i.stride for i in tape]


@dataclass(frozen=True, slots=True)
class Header:
    """What the game must know of a job that no template says.

    Attributes:
        step_nodes, link_nodes: how many nodes the tapes have.
        steps, segment: H and k of the manifest.
        data_root, tables_root: over 1 KiB pieces of the token words and of the tables.
        tables_bytes: of all tables.
        base_root: of the frozen model; zero where everything is trained.
        initial: digest of the global state of round 0.
    """

    step_nodes: int
    link_nodes: int
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
    base_root: Digest
    initial: Digest

    def to_bytes(self) -> bytes:
        """The bytes of leaf 0 of the program's root."""
        return _HEADER.pack(
            PROGRAM_VERSION, self.step_nodes, self.link_nodes, self.steps, self.segment,
            self.micro_batches, self.data_root, self.train_tokens, self.token_bytes, self.masked,
            self.batch, self.seq, self.tables_root, self.tables_bytes, self.base_root, self.initial,
        )  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A job's header and templates, in the order of their leaves."""

    header: Header
    templates: tuple[Template, ...]
    _places: dict[int, npt.NDArray[np.int32]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def nodes(self, part: int) -> int:
        """How many nodes a tape of this part has."""
        return self.header.step_nodes if part == STEP else self.header.link_nodes

    @cached_property
    def leaves(self) -> Bytes:
        """keccak-256 of the header and of each template: [1 + templates, 32]."""
        digests = [keccak256(self.header.to_bytes())]
        digests += [keccak256(template.to_bytes()) for template in self.templates]
        return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, 32)

    @property
    def root(self) -> Digest:
        """What `Terms.program` is."""
        return tree_of(self.leaves).root

    def path(self, leaf: int) -> list[Digest]:
        """Siblings of a leaf: 0 is the header, 1 + t template t. Raises IndexError without it."""
        return tree_of(self.leaves).path(leaf)

    def at(self, part: int, node: int) -> tuple[int, int]:
        """Index of the template that a node is of, and the iteration.

        Raises IndexError where the part has no such node.
        """
        if not 0 <= node < self.nodes(part):
            raise IndexError(f"node {node} of {self.nodes(part)}")
        index = int(self._template_of(part)[node])
        template = self.templates[index]
        return index, (node - template.first) // template.stride if template.stride else 0

    def _template_of(self, part: int) -> npt.NDArray[np.int32]:
        """Each node's template. Raises ValueError unless every node has exactly one."""
        if part not in self._places:
            places = np.full(self.nodes(part), _NO_TEMPLATE, dtype=np.int32)
            for index, template in enumerate(self.templates):
                if template.part == part:
                    found = np.arange(template.count) * template.stride + template.first
                    if np.any(places[found] != _NO_TEMPLATE):
                        raise ValueError(f"template {index} is of a node that has another")
                    places[found] = index
            if np.any(places == _NO_TEMPLATE):
                raise ValueError("a node has no template")
            self._places[part] = places
        return self._places[part]


def read_template(data: bytes) -> Template:
    """The template with these bytes. Raises ValueError on bytes that are none's."""
    try:
        part, op, width, size, first, count, stride, inputs = _TEMPLATE.unpack_from(data)
        at = _TEMPLATE.size
        found: list[Input] = []
        for _ in range(inputs):
            source, node, step, length = _INPUT.unpack_from(data, at)
            found.append(Input(Source(source), node, step, length))
            at += _INPUT.size
        (count_words,) = _WORDS.unpack_from(data, at)
        at += _WORDS.size
        words: Sequence[int] = struct.unpack_from(f">{count_words}Q", data, at)
    except struct.error as error:
        raise ValueError(f"not a template: {error}") from error
    tail = data[at + 8 * count_words :]
    return Template(part, op, width, size, first, count, stride, tuple(found), tuple(words), tail)
