"""Disputes at the sizes of real models; nothing of them is kept, trees are made as they are read.

Rule of this file: shapes, depths and the lengths of what is shown are the program's; contents and
digests are of nobody's run. All pieces of a tensor are alike, so its tree needs one hash a level,
and what no proof reads of a trace's tree is drawn. What is shown has as few zero bytes as it may.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np
from tests.support.large_games import EvenTree

from atoll.numerics.codec.block_steps import STEPS
from atoll.numerics.codec.packing import pack
from atoll.numerics.codec.sparse import kept_of
from atoll.numerics.trace.imports import ImportContext
from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.program_tree import Program
from atoll.protocol.checkpoint_commitments import StateRoots
from atoll.protocol.games.judge import Need, Operations
from atoll.protocol.games.moves import Claim, Opening, ProgramPart
from atoll.protocol.games.trees import (
    CHUNK,
    LAYER_LEVELS,
    PIECE,
    Tree,
    height,
    piece_tree,
    pieces_of,
    siblings_of,
    top,
)
from atoll.protocol.hashing import keccak256, update_root
from atoll.protocol.hashing import sha256 as sha256_digest
from atoll.protocol.merkle import LEAF, NODE, HashFunction, seal
from atoll.protocol.program import Input, Part, Source, TraceTemplate
from atoll.protocol.types import Address, Digest, SeatIndex

NOW: Final = 1_800_000_000
_SEED: Final = keccak256(b"seed")
_SEAT, _ROUND = SeatIndex(200), 49
_CHUNK: Final = np.random.default_rng(4).standard_normal(CHUNK // 4).astype("<f4").tobytes()
_SHAPELESS: Final = frozenset({Op.VIEW, Op.COPY, Op.CONCAT})
_DOUBLES: Final = frozenset(
    {Op.RATE, Op.CORRECTIONS, Op.TOTAL, Op.NORM_TERM, Op.NORM, Op.CLIP}
)  # fmt: skip
_IDS: Final = frozenset({Op.TOKENS, Op.IDS, Op.TARGETS, Op.GENERATED, Op.SEQUENCE})
_SUMS: Final = frozenset({Op.PREFIX, Op.ADD_BEFORE})
_TEXTS: Final = frozenset({Op.CELLS, Op.WINDOW, Op.ANSWERS})
_INTEGERS: Final = frozenset({Op.DOT_I8, Op.EXPONENTS})
_KEYS: Final = frozenset({Op.SORT_KEYS, Op.SORT_STAGE})


class SparseTree:
    """A tree of which some leaves are given and nobody knows the others.

    The nodes that rows are made of (every sixth level from the top) are drawn where no given leaf
    is below them, all others follow.
    """

    def __init__(
        self, count: int, leaves: Mapping[int, Digest], hash: HashFunction = keccak256
    ) -> None:
        self.count, self._leaves, self._hash = count, dict(leaves), hash
        self._above = {(level, leaf >> level) for leaf in leaves for level in range(64)}
        self._known: dict[tuple[int, int], Digest] = {}

    def leaf(self, index: int) -> Digest:
        return self._leaves.get(index) or keccak256(b"leaf %d" % index)

    def node(self, level: int, index: int) -> Digest:
        place = (level, index)
        if place not in self._known:
            self._known[place] = self._made(level, index)
        return self._known[place]

    def _made(self, level: int, index: int) -> Digest:
        if level == 0:
            return self._hash(LEAF + self.leaf(index))
        is_of_layer = (height(self.count) - level) % LAYER_LEVELS == 0
        if is_of_layer and (level, index) not in self._above:
            return keccak256(b"node %d of %d" % (index, level))
        left = self.node(level - 1, 2 * index)
        if (2 * index + 1) << (level - 1) >= self.count:
            return left
        return self._hash(NODE + left + self.node(level - 1, 2 * index + 1))


class World:
    """A job of a real size, with contents whose roots stand in its program's header.

    Args:
        program: of which all but those roots is kept.
        vocab, tokens: below which ids and places of tokens are.

    Attributes:
        exponents: those of the round's model, as bytes.
        data, tables: the piece that these consist of.
    """

    def __init__(self, program: Program, vocab: int, tokens: int) -> None:
        self._vocab, self._tokens = vocab, tokens
        header, rng = program.header, np.random.default_rng(14)
        self.data, self.tables = _ids(rng, vocab, header.token_bytes), _doubles(rng)
        data = even(header.train_tokens * header.token_bytes, self.data)
        tables = even(header.tables_bytes, self.tables)
        header = replace(header, data_root=top(data), tables_root=top(tables))
        self.program = Program(header, program.templates)
        self.exponents = rng.bytes(_exponent_bytes(program))
        self.levels = [[layer.tobytes() for layer in level] for level in self.program.tree.levels]
        self._contents: dict[tuple[int, int], bytes] = {}

    def template(self, part: int, node: int) -> TraceTemplate:
        """Of a node."""
        return self.program.templates[self.program.at(part, node)[0]]

    def content(self, part: int, node: int) -> bytes:
        """A piece of a node, 1 KiB."""
        if (part, node) not in self._contents:
            rng = np.random.default_rng([part, node])
            self._contents[part, node] = self._drawn(rng, self._made_by(part, node))
        return self._contents[part, node]

    def _made_by(self, part: int, node: int) -> TraceTemplate:
        """The template of which the numbers of a node are, wherever they were moved."""
        template = self.template(part, node)
        while template.op in _SHAPELESS and template.inputs[0].source is Source.TRACE:
            template = self.template(part, template.inputs[0].node)
        return template

    def _drawn(self, rng: np.random.Generator, template: TraceTemplate) -> bytes:
        if template.op in _IDS:
            return _ids(rng, self._vocab, 4)
        if template.op == Op.PROMPT:  # of one id, so that any token may be behind it
            return (1).to_bytes(4, "little") + _ids(rng, self._vocab, 4)[4:]
        if template.op in _SUMS:
            return (np.arange(1, 129) << 40).astype("<i8").tobytes()
        if template.op == Op.DRAWN:
            return ((77 << 40) + rng.integers(1 << 38, 1 << 39, 128)).astype("<i8").tobytes()
        if template.op == Op.LOWER_BOUND:
            return _ids(rng, self._tokens, 4)
        if template.op in _KEYS:
            ids, places = rng.integers(1, (self._vocab, self._tokens), (128, 2)).T
            return np.ascontiguousarray((ids << 32) + places).astype("<i8").tobytes()
        if template.op in _DOUBLES:
            return _doubles(rng)
        if template.op in _TEXTS:
            return bytes([1]) * PIECE  # wherever a text begins, it has one byte
        if template.width == 8:
            return rng.integers(-(1 << 46), 1 << 46, 128).astype("<i8").tobytes()
        if template.op in _INTEGERS:
            return rng.integers(-(1 << 24), 1 << 24, 256).astype("<i4").tobytes()
        if template.op == Op.BLOCK_STEPS:
            return rng.integers(1, len(STEPS), PIECE, dtype=np.uint8).tobytes()
        if template.op == Op.KEPT:  # as many of any number of places from the first on
            kept = [kept_of(place + 1) - kept_of(place) for place in range(8 * PIECE)]
            return pack(np.array(kept, np.uint8), 1)
        if template.width == 4 and template.op != Op.RESULT:
            return rng.standard_normal(256).astype("<f4").tobytes()
        return rng.integers(1, 256, PIECE, dtype=np.uint8).tobytes()


def _exponent_bytes(program: Program) -> int:
    """Of a round that began with moments: those of parameters, and twice those of first moments."""
    words = [t.words for t in program.templates if t.op == Op.EXPONENTS]
    return 2 * (words[0][1] + 2 * sum(count for _, count in words[1:]))


def _ids(rng: np.random.Generator, limit: int, width: int) -> bytes:
    return rng.integers(limit // 2, limit, PIECE // width).astype(f"<u{width}").tobytes()


def _doubles(rng: np.random.Generator) -> bytes:
    return (1.0 + rng.random(128)).astype("<f8").tobytes()


def _chunk(size: int, number: int) -> bytes:
    """Chunk number so much of a tensor of `size` bytes of a state."""
    return _CHUNK[: size - number * CHUNK]


def even(size: int, piece: bytes, others: Mapping[int, bytes] | None = None) -> EvenTree:
    """The tree over `size` bytes of this piece, repeated; `others` are pieces that differ."""
    count = pieces_of(size)
    different = {at: keccak256(other) for at, other in (others or {}).items()}
    if size % PIECE and count - 1 not in different:
        different[count - 1] = keccak256(piece[: size % PIECE])
    return EvenTree(count, keccak256(piece), different)


class Vast:
    """One party to a dispute about an element: `players.Knowledge` and `players.Trace`.

    Args:
        wrong: whether its element is another than that of the party without.

    Attributes:
        token: of the step's batch, that the trace is of; None of other traces.
    """

    token: int | None = None

    def __init__(
        self,
        world: World,
        part: int,
        node: int,
        element: int,
        operations: Operations,
        *,
        wrong: bool = False,
    ) -> None:
        self.world, self.part, self.node, self.element = world, part, node, element
        index, self.iteration = world.program.at(part, node)
        self.index = index
        self._template = world.program.templates[index]
        self._wrong = wrong
        self._roots = StateRoots(*(keccak256(b"root %d" % i) for i in range(4)))
        self._header, self._model = world.program.header, keccak256(b"model")
        self._chunks: SparseTree | None = None
        self._state = keccak256(b"state after")
        loss = bytes([62, 9, 9, 9]).ljust(self.world.program.header.loss_bytes, b"\1")
        self._work = bytes([1, 2, 3, 4, 5, 6, 7, 8]) + loss * self._losses
        self._import(operations)

    @property
    def _losses(self) -> int:
        return self.world.program.header.micro_batches

    def _import(self, operations: Operations) -> None:
        """Where a chunk is read, the root that it hangs on becomes that of a tree with it."""
        reads = {i.source: i for i in self._template.inputs}
        which = next((s for s in (Source.STATE, Source.BASE, Source.MODEL) if s in reads), None)
        if which is None:
            return
        attributes = self._template.attributes(self.iteration)
        need = operations.need(self._template.op, attributes, self.element, ())
        begin, leaves, root = self._template.words[:3]
        number = need.offset // CHUNK
        hashed = sha256_digest(
            self._template.tail + number.to_bytes(8, "big") + _chunk(reads[which].size, number)
        )
        self._chunks = SparseTree(leaves, {begin + number: hashed}, sha256_digest)
        found = seal(leaves, self._chunks.node(height(leaves), 0), sha256_digest)
        if which is Source.STATE:
            names = ("params_root", "optimiser_root")
            self._roots = self._roots._replace(**{names[root]: found})
        elif which is Source.BASE:
            self._header = replace(self._header, base_root=found)
        else:
            self._model = found

    # --- players.Knowledge ---

    @property
    def states(self) -> list[Digest]:
        if self.part == Part.UPDATE_PROOF:
            return []
        after = [keccak256(b"state %d" % i) for i in range(self._header.segment - 1)]
        return [Digest(self._result()[:32]), *after]

    @property
    def works(self) -> bytes:
        return self._result()[32:] + self._work * (self._header.segment - 1)

    @property
    def header(self) -> ProgramPart:
        return self._opened(0, self._header.to_bytes())

    def template(self, node: int) -> ProgramPart:
        index, _ = self.world.program.at(self.part, node)
        return self._opened(1 + index, self.world.program.templates[index].to_bytes())

    def trace(self, step: int) -> Vast:
        return self

    def claim(self, holder: Address) -> Claim:
        """With what this party says."""
        number = 0
        if self.part == Part.UPDATE_PROOF:
            number = self._header.steps // self._header.segment - 1
        root = seal(len(self.world.levels[0]), self._program_node(len(self.world.levels) - 1, 0))
        exponents = sha256_digest(self.world.exponents)
        claim = Claim(
            holder=holder,
            set=root,
            position=root,
            program=root,
            is_update_proof=self.part == Part.UPDATE_PROOF,
            seat=_SEAT,
            round=_ROUND,
            segment=number,
            data_seed=_SEED,
            initial_state=self._roots.digest(),
            model_params=self._model,
            model_exponents=exponents,
        )
        if self.part == Part.UPDATE_PROOF:
            size = self._size(self._last)
            root = update_root(size, top(self.tensor(self._last)))
            return replace(claim, update_root=root)
        return replace(claim, closing=self.states[-1], work_tag=keccak256(self.works))

    # --- players.Trace ---

    @property
    def roots(self) -> StateRoots:
        return self._roots

    @property
    def context(self) -> bytes:
        steps, exponents = self._header.steps, sha256_digest(self.world.exponents)
        step = steps if self.part == Part.UPDATE_PROOF else 0
        numbers = (_SEAT, _ROUND, step, _ROUND * steps + step)
        ends = (self._roots, self._model, exponents, self.token)
        return ImportContext(_SEED, *numbers, *ends).to_bytes()

    @cached_property
    def tree(self) -> SparseTree:
        """Given are what the proof reads, the node in dispute and the last one."""
        reads = (i for i in self._template.inputs if i.source is Source.TRACE)
        nodes = {i.node + self.iteration * i.stride for i in reads} | {self.node, self._last}
        count = self.world.program.nodes(self.part)
        return SparseTree(count, {node: top(self.tensor(node)) for node in nodes})

    def tensor(self, node: int) -> Tree:
        if self.part == Part.STEP and node == self._last:
            return piece_tree(self._result())
        if self._wrong and node == self.node:
            at = self.element * self._template.width // PIECE
            return even(self._size(node), self._piece(node), {at: self._bytes(node, at)})
        return even(self._size(node), self._piece(node))

    def read(self, node: int, start: int, end: int) -> bytes:
        if self.part == Part.STEP and node == self._last:
            return self._result()[start:end]
        first, last = start // PIECE, (end - 1) // PIECE
        data = b"".join(self._bytes(node, at) for at in range(first, last + 1))
        return data[start - first * PIECE : end - first * PIECE]

    def open(self, template: TraceTemplate, source: Input, need: Need) -> Opening:
        header = self._header
        if source.source is Source.EXPONENTS:
            return Opening(self.world.exponents)
        if source.source is Source.TOKENS:
            return _pieces(header.train_tokens * header.token_bytes, self.world.data, need)
        if source.source is Source.TABLES:
            return _pieces(header.tables_bytes, self.world.tables, need)
        assert self._chunks is not None
        number = need.offset // CHUNK
        place = (template.words[0] + number, 1)
        levels = height(self._chunks.count)
        siblings = siblings_of(self._chunks.node, *place, self._chunks.count, levels)
        return Opening(_chunk(source.size, number), siblings)

    # --- bytes ---

    @property
    def _last(self) -> int:
        return self.world.program.nodes(self.part) - 1

    def _size(self, node: int) -> int:
        return self.world.template(self.part, node).size

    def _piece(self, node: int) -> bytes:
        return self.world.content(self.part, node)

    def _bytes(self, node: int, at: int) -> bytes:
        """Piece number `at` of a node."""
        data = self._piece(node)[: self._size(node) - at * PIECE]
        offset = self.element * self._template.width - at * PIECE
        if self._wrong and node == self.node and 0 <= offset < PIECE:
            return data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]
        return data

    def _result(self) -> bytes:
        """The bytes of RESULT; where nothing else differs, its last loss does."""
        data = bytearray(self._state + self._work)
        if self._wrong:
            at = self.element * self._template.width if self.node == self._last else -1
            data[at] ^= 1
        return bytes(data)

    # --- the program's tree, whose header has this dispute's roots ---

    def _opened(self, index: int, data: bytes) -> ProgramPart:
        count = len(self.world.levels[0])
        path = siblings_of(self._program_node, index, 1, count, height(count))
        return ProgramPart(data, index, count, path)

    def _program_node(self, level: int, index: int) -> Digest:
        return self._spine[level] if index == 0 else Digest(self.world.levels[level][index])

    @cached_property
    def _spine(self) -> list[Digest]:
        """The leftmost node of each level."""
        node = keccak256(LEAF + keccak256(self._header.to_bytes()))
        spine = [node]
        for level in self.world.levels[:-1]:
            node = keccak256(NODE + node + level[1]) if len(level) > 1 else node
            spine.append(node)
        return spine


def _pieces(size: int, piece: bytes, need: Need) -> Opening:
    """The pieces of `size` bytes of this piece that hold what is needed."""
    tree = even(size, piece)
    first, last = need.offset // PIECE, (need.offset + need.length - 1) // PIECE
    siblings = siblings_of(tree.node, first, last - first + 1, tree.count, height(tree.count))
    data = b"".join(piece[: size - at * PIECE] for at in range(first, last + 1))
    return Opening(data, siblings)
