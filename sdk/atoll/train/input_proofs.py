"""Merkle proofs of what a trace reads from elsewhere: tokens, tables, the model, the seat's state.

A game ends with one operation, which a contract computes again from a few bytes. Each of its
inputs is under a root that the chain knows: of the job (tokens, tables, the frozen base), of the
round (the model) or of the claim (the state). `prove_input` shows whole leaves and their siblings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, cast

from torch import Tensor

from atoll.numerics.pieces import SHARD_BYTES, ByteSlices, shard_node
from atoll.numerics.state import SeatState
from atoll.numerics.tensors import chunk_leaves, raw_bytes
from atoll.numerics.tokens import TokenSource
from atoll.numerics.trace.imports import TraceSources
from atoll.protocol.canonical import decode
from atoll.protocol.checkpoint_commitments import rollouts_digest
from atoll.protocol.games.judge import Need
from atoll.protocol.games.moves import Opening
from atoll.protocol.games.trees import (
    CHUNK,
    PIECE,
    MemoryTree,
    Tree,
    fold,
    height,
    piece_tree,
    pieces_of,
    siblings_of,
    top,
)
from atoll.protocol.hashing import keccak256, sha256
from atoll.protocol.program import Source, TraceTemplate
from atoll.protocol.types import ZERO_DIGEST, Digest
from atoll.train.data import NODE_BYTES, TokenFile

_SHARD_LEVELS: Final = height(SHARD_BYTES // PIECE)


def prove_input(
    sources: TraceSources, template: TraceTemplate, source: Source, need: Need
) -> Opening:
    """Whole leaves of an input that is neither of the trace nor the context.

    Raises ValueError for those two: the first is proved from the trace's own tree, and the second
    the game knows.
    """
    match source:
        case Source.TOKENS:
            return prove_tokens(sources.tokens, need)
        case Source.TABLES:
            leaves = [
                keccak256(sources.tables[at : at + PIECE])
                for at in range(0, len(sources.tables), PIECE)
            ]
            return _Committed(MemoryTree(leaves), sources.tables, PIECE).prove(need)
        case Source.EXPONENTS:
            return Opening(sources.exponents)  # short: the contract hashes all of them
        case Source.SAMPLED:
            return _prove_sampled(sources, template, need)
        case Source.MODEL | Source.BASE:
            tensors = sources.model if source is Source.MODEL else sources.base
            return _prove_tensor(tensors, template, need)
        case Source.STATE:
            return _prove_tensor(_under_root(sources.state, template.words[2]), template, need)
    raise ValueError(f"{source.name} is not proved here")


def prove_tokens(tokens: TokenSource, need: Need) -> Opening:
    """Whole pieces of a job's tokens.

    Of a data set of terabytes nobody can make a tree in a move's time. The file of nodes, one for
    each MiB, was checked against the root when the data was opened, so a proof reads one MiB.
    """
    data = _TokenBytes(tokens)
    nodes = tokens.nodes if isinstance(tokens, TokenFile) else None
    if nodes is None:
        spans = range(0, len(data), SHARD_BYTES)
        nodes = b"".join(shard_node(data[at : at + SHARD_BYTES]) for at in spans)
    return _Committed(_TokenTree(data, nodes), data, PIECE).prove(need)


@dataclass(frozen=True, slots=True)
class _Committed:
    """Bytes that a Merkle root binds.

    Attributes:
        tree: over leaves of `unit` bytes each, of these bytes and perhaps of others before them.
        first_leaf: where these bytes begin.
    """

    tree: Tree
    data: ByteSlices
    unit: int
    first_leaf: int = 0

    def prove(self, need: Need) -> Opening:
        """The whole leaves that hold what is needed, and the siblings up to the root."""
        first, last = need.offset // self.unit, (need.offset + need.length - 1) // self.unit
        siblings = siblings_of(
            self.tree.node,
            first=self.first_leaf + first,
            length=last - first + 1,
            width=self.tree.count,
            levels=height(self.tree.count),
        )
        return Opening(self.data[first * self.unit : (last + 1) * self.unit], siblings)


def _under_root(state: SeatState, which: int) -> Mapping[str, Tensor]:
    """The tensors under one of a state's roots; none where the root is zero."""
    return state.params if which == 0 else state.under_optimiser_root()


def _prove_tensor(tensors: Mapping[str, Tensor], template: TraceTemplate, need: Need) -> Opening:
    """Chunks of the tensor that the template's tail names, in the tree over all of its kind."""
    if not tensors:
        return Opening()  # moments that nobody has moved yet, whose root is zero
    name = str(cast(list[Any], decode(template.tail, len(template.tail)))[1])
    tree = MemoryTree(chunk_leaves(tensors), hash=sha256)
    data = bytes(raw_bytes(tensors[name]))
    return _Committed(tree, data, CHUNK, first_leaf=template.words[0]).prove(need)


def _prove_sampled(sources: TraceSources, template: TraceTemplate, need: Need) -> Opening:
    """Chunks of a step's ids; the digest before the step and the roots behind it, as a path."""
    size = template.words[0]
    raw = bytes(raw_bytes(sources.sampled))
    steps = [raw[at : at + size] for at in range(0, len(raw), size)]
    step, inside = divmod(need.offset, size)
    trees = [MemoryTree(_chunks(ids, template.tail), hash=sha256) for ids in steps]
    roots = [top(tree, sha256) for tree in trees]
    before = reduce(rollouts_digest, roots[:step], ZERO_DIGEST)
    within = Need(need.input, inside, need.length)
    shown = _Committed(trees[step], steps[step], CHUNK).prove(within)
    return replace(shown, path=(before, *roots[step + 1 :]))


def _chunks(data: bytes, prefix: bytes) -> list[Digest]:
    parts = (data[at : at + CHUNK] for at in range(0, len(data), CHUNK))
    return [sha256(prefix + i.to_bytes(8, "big") + part) for i, part in enumerate(parts)]


class _TokenBytes:
    """`ByteSlices` of tokens, at borders between words."""

    def __init__(self, tokens: TokenSource) -> None:
        self._tokens, self._width = tokens, tokens[0:0].itemsize

    def __len__(self) -> int:
        return len(self._tokens) * self._width

    def __getitem__(self, span: slice, /) -> bytes:
        begin, end, _ = span.indices(len(self))
        return self._tokens[begin // self._width : end // self._width].tobytes()


class _TokenTree:
    """The tree over the pieces of tokens, which reads no MiB but those that a path begins in.

    Args:
        nodes: of each MiB, one after another.
    """

    def __init__(self, data: _TokenBytes, nodes: bytes) -> None:
        self._data = data
        self._nodes = [
            Digest(nodes[at : at + NODE_BYTES]) for at in range(0, len(nodes), NODE_BYTES)
        ]
        self._shards: dict[int, Tree] = {}

    @property
    def count(self) -> int:
        return pieces_of(len(self._data))

    def leaf(self, index: int) -> Digest:
        shard, inside = divmod(index, 1 << _SHARD_LEVELS)
        return self._shard(shard).leaf(inside)

    def node(self, level: int, index: int) -> Digest:
        above = level - _SHARD_LEVELS
        if above >= 0:
            first = index << above
            nodes = self._nodes[first : first + (1 << above)]
            return fold(nodes, first, len(self._nodes), above)
        shard, inside = divmod(index, 1 << -above)
        tree = self._shard(shard)
        return tree.node(min(level, height(tree.count)), inside)  # the last may be a short one

    def _shard(self, shard: int) -> Tree:
        if shard not in self._shards:
            at = shard * SHARD_BYTES
            self._shards[shard] = piece_tree(self._data[at : at + SHARD_BYTES])
        return self._shards[shard]
