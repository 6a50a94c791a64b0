"""Pieces of a file as they are shown to who knows its root and has none of it: SPEC.md, 23.

Rule of this file: an answer has the pieces that were asked for, in order, and behind them the nodes
that lead from all of them to the root, each once. Who asks knows the size, so an answer's length
follows from the question, and nothing in it is parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from atoll.errors import CorruptBlock
from atoll.numerics.kernels.keccak import DIGEST_BYTES, Bytes, keccak_each, keccak_rows
from atoll.numerics.pieces import PIECE_BYTES, SHARD_BYTES, ByteSlices, levels_of, prefixed
from atoll.protocol.hashing import keccak256, update_root
from atoll.protocol.merkle import LEAF, NODE, seal
from atoll.protocol.types import Digest

MOST_SHOWN: Final = 256
"""Pieces in one answer."""
GROUP_LEVELS: Final = 6
"""Of a file's tree the nodes over 64 pieces and all above are held: a byte in a thousand."""


class PieceTree:
    """The tree over a file's pieces, which are read again where a node below 64 of them is needed.

    Reads the file once. Raises ValueError where it is empty.
    """

    def __init__(self, data: ByteSlices) -> None:
        self._data = data
        self._count = -(-len(data) // PIECE_BYTES)
        groups = [
            _node_levels(data[at : at + SHARD_BYTES])[-1] for at in range(0, len(data), SHARD_BYTES)
        ]
        if not groups:
            raise ValueError("an empty file has no pieces")
        self._above = list(levels_of(np.concatenate(groups)))

    @property
    def held_bytes(self) -> int:
        """What the nodes take."""
        return sum(level.nbytes for level in self._above)

    def show(self, numbers: Sequence[int]) -> bytes:
        """An answer with these pieces, which ascend.

        Raises:
            IndexError: the file has no such piece.
        """
        if numbers and numbers[-1] >= self._count:
            raise IndexError(f"piece {numbers[-1]} of {self._count}")
        begun: dict[int, list[Bytes]] = {}
        shown = [
            self._data[n * PIECE_BYTES : min((n + 1) * PIECE_BYTES, len(self._data))]
            for n in numbers
        ]
        for level, index in _siblings(numbers, self._count):
            shown.append(self._node(level, index, begun))
        return b"".join(shown)

    def _node(self, level: int, index: int, begun: dict[int, list[Bytes]]) -> bytes:
        if level >= GROUP_LEVELS:
            return bytes(self._above[level - GROUP_LEVELS][index])
        group = index >> GROUP_LEVELS - level
        if group not in begun:
            size = PIECE_BYTES << GROUP_LEVELS
            begun[group] = _node_levels(self._data[group * size : (group + 1) * size])
        # The last group may be a short one, whose topmost node is carried up as it is.
        levels = begun[group]
        at = min(level, len(levels) - 1)
        return bytes(levels[at][index - (group << GROUP_LEVELS - level)])


def shown_length(numbers: Sequence[int], size: int) -> int:
    """Bytes of an answer with these pieces of a file of `size` bytes."""
    count = -(-size // PIECE_BYTES)
    nodes = sum(1 for _ in _siblings(numbers, count))
    return sum(_length_of(number, size) for number in numbers) + DIGEST_BYTES * nodes


def checked_pieces(
    shown: bytes, numbers: Sequence[int], size: int, root: Digest
) -> dict[int, bytes]:
    """The pieces of an answer, which lead to what is revealed of an update of `size` bytes.

    Raises:
        CorruptBlock: they do not.
    """
    count = -(-size // PIECE_BYTES)
    if not numbers or len(shown) != shown_length(numbers, size):
        raise CorruptBlock(f"an answer of {len(shown)} bytes about {len(numbers)} pieces")
    pieces = pieces_in(shown, numbers, size)
    at = sum(map(len, pieces.values()))
    hashes = keccak_each(list(pieces.values()))
    leaves = keccak_rows(prefixed(LEAF, hashes))
    nodes = {number: leaf.tobytes() for number, leaf in zip(numbers, leaves, strict=True)}
    beside = (shown[i : i + DIGEST_BYTES] for i in range(at, len(shown), DIGEST_BYTES))
    width = count
    while width > 1:
        nodes, width = _above(nodes, width, beside), (width + 1) // 2
    if update_root(size, seal(count, nodes[0])) != root:
        raise CorruptBlock("the pieces do not lead to what was revealed")
    return pieces


def pieces_in(data: bytes, numbers: Sequence[int], size: int) -> dict[int, bytes]:
    """Pieces that lie one behind another, by their numbers."""
    pieces, at = dict[int, bytes](), 0
    for number in numbers:
        pieces[number] = data[at : at + _length_of(number, size)]
        at += len(pieces[number])
    return pieces


@dataclass(frozen=True, slots=True)
class KnownPieces:
    """A file of which some pieces are known, as `ByteSlices`; of others nothing is read."""

    pieces: Mapping[int, bytes]
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, span: slice, /) -> bytes:
        """Raises KeyError where a piece is not known."""
        start, stop, _ = span.indices(self.size)
        if start >= stop:
            return b""
        first, last = start // PIECE_BYTES, -(-stop // PIECE_BYTES)
        known = b"".join(self.pieces[number] for number in range(first, last))
        return known[start - first * PIECE_BYTES :][: stop - start]


def _above(nodes: dict[int, bytes], width: int, beside: Iterator[bytes]) -> dict[int, bytes]:
    """The nodes one level above those of a level with `width`."""
    with_siblings = dict(nodes)
    for index in nodes:
        if index ^ 1 < width and index ^ 1 not in nodes:
            with_siblings[index ^ 1] = next(beside)
    return {
        parent: with_siblings[2 * parent]
        if 2 * parent + 1 == width
        else keccak256(NODE + with_siblings[2 * parent] + with_siblings[2 * parent + 1])
        for parent in dict.fromkeys(index // 2 for index in nodes)
    }


def _siblings(numbers: Sequence[int], count: int) -> Iterator[tuple[int, int]]:
    """(level, index) of the nodes that an answer has beside its pieces, from below upwards."""
    level, known, width = 0, list(numbers), count
    while width > 1:
        here = set(known)
        for index in known:
            if index ^ 1 < width and index ^ 1 not in here:
                yield level, index ^ 1
        known = list(dict.fromkeys(index // 2 for index in known))
        level, width = level + 1, (width + 1) // 2


def _length_of(number: int, size: int) -> int:
    return min(PIECE_BYTES, size - number * PIECE_BYTES)


def _node_levels(part: bytes) -> list[Bytes]:
    """The nodes of a part's pieces, level by level, up to those of groups at most."""
    pieces = [part[at : at + PIECE_BYTES] for at in range(0, len(part), PIECE_BYTES)]
    leaves = keccak_rows(prefixed(LEAF, keccak_each(pieces)))
    return list(islice(levels_of(leaves), GROUP_LEVELS + 1))
