"""Showing a part of a tree: layers, paths and ranges against a node or a root that is known.

Rule of this file: it accepts what `contracts/src/judge/Openings.sol` accepts, and nothing else. The
trees are those of `protocol.merkle`. Level 0 are the leaf nodes H(0x00 ‖ leaf), one level above
another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from atoll.protocol.hashing import keccak256
from atoll.protocol.merkle import LEAF, NODE, HashFunction, seal
from atoll.protocol.types import Digest

PIECE: Final = 1024
CHUNK: Final = 4096
LAYER_LEVELS: Final = 6
"""A move goes so many levels down, so a layer has at most 64 nodes."""


class WrongOpening(ValueError):
    """What is shown is not a part of what it should be a part of."""


class Tree(Protocol):
    """A tree that a player can read, however it is kept."""

    @property
    def count(self) -> int:
        """How many leaves it has."""

    def leaf(self, index: int) -> Digest:
        """A leaf, not yet hashed."""

    def node(self, level: int, index: int) -> Digest:
        """A node; those of level 0 are the hashed leaves."""


@dataclass(frozen=True, slots=True)
class MerkleLayer:
    """A layer as it was revealed.

    Attributes:
        level, first: where it lies in its tree; at level 0 `nodes` are leaves, not yet hashed.
    """

    level: int
    first: int
    nodes: tuple[Digest, ...]


class MemoryTree:
    """A tree that is kept whole: some 200 bytes a leaf."""

    def __init__(self, leaves: Sequence[Digest], hash: HashFunction = keccak256) -> None:
        self._leaves = list(leaves)
        self._levels = [[hash(LEAF + leaf) for leaf in leaves]]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            pairs = range(0, len(below) - 1, 2)
            above = [hash(NODE + below[i] + below[i + 1]) for i in pairs]
            self._levels.append(above + below[2 * len(above) :])

    @property
    def count(self) -> int:
        return len(self._leaves)

    def leaf(self, index: int) -> Digest:
        return self._leaves[index]

    def node(self, level: int, index: int) -> Digest:
        return self._levels[level][index]


def height(count: int) -> int:
    """Levels of a tree over so many leaves above its leaves."""
    return (count - 1).bit_length()


def width_at(count: int, level: int) -> int:
    """How many nodes a tree of `count` leaves has at a level."""
    return -(-count // (1 << level))


def pieces_of(size: int) -> int:
    """How many pieces so many bytes have."""
    return -(-size // PIECE)


def top(tree: Tree, hash: HashFunction = keccak256) -> Digest:
    """The root of a tree."""
    return seal(tree.count, tree.node(height(tree.count), 0), hash)


def fold(
    nodes: Sequence[Digest],
    first: int,
    width: int,
    levels: int,
    siblings: Sequence[Digest] = (),
    *,
    hash: HashFunction = keccak256,
) -> Digest:
    """The node `levels` above the nodes from number `first` on, of a level with `width` nodes.

    Raises WrongOpening unless nodes and siblings make exactly one.
    """
    if not nodes or first < 0 or first + len(nodes) > width:
        raise WrongOpening(f"{len(nodes)} nodes from {first} on of {width}")
    level, left = list(nodes), list(siblings)
    try:
        for _ in range(levels):
            if first % 2:
                level.insert(0, left.pop(0))
            if len(level) % 2 and first - first % 2 + len(level) < width:
                level.append(left.pop(0))
            pairs = range(0, len(level) - 1, 2)
            above = [hash(NODE + level[i] + level[i + 1]) for i in pairs]
            level = above + level[2 * len(above) :]
            first, width = first // 2, (width + 1) // 2
    except IndexError:
        raise WrongOpening("siblings are missing") from None
    if len(level) != 1 or left:
        raise WrongOpening(f"{len(level)} nodes and {len(left)} siblings are left")
    return level[0]


def root_from(leaf: Digest, index: int, count: int, path: Sequence[Digest]) -> Digest:
    """The root that a leaf and its path lead to. Raises WrongOpening on another length."""
    return seal(count, fold([keccak256(LEAF + leaf)], index, count, height(count), path))


def siblings_of(
    read: Callable[[int, int], Digest], first: int, length: int, width: int, levels: int
) -> tuple[Digest, ...]:
    """What `fold` needs beside `length` nodes of a level with `width`, to come `levels` higher.

    `read(level, index)` gives the nodes, counting levels from that of the range.
    """
    siblings = []
    last = first + length - 1
    for level in range(levels):
        if first % 2:
            siblings.append(read(level, first - 1))
        if last % 2 == 0 and last + 1 < width:
            siblings.append(read(level, last + 1))
        first, last, width = first // 2, last // 2, (width + 1) // 2
    return tuple(siblings)


def path_of(tree: Tree, index: int) -> tuple[Digest, ...]:
    """Siblings of a leaf, from below upwards."""
    return siblings_of(tree.node, index, 1, tree.count, height(tree.count))


def layer_levels(level: int) -> int:
    """How far below a node of that level the layer is that is revealed of it."""
    return min(level, LAYER_LEVELS)


def layer_of(tree: Tree, level: int, index: int) -> tuple[Digest, ...]:
    """What is revealed of a node: nodes up to six levels below it; of level 0 the leaves."""
    levels = layer_levels(level)
    below = level - levels
    first = index << levels
    last = min(first + (1 << levels), width_at(tree.count, below))
    if below == 0:
        return tuple(tree.leaf(i) for i in range(first, last))
    return tuple(tree.node(below, i) for i in range(first, last))


def piece_root(shown: bytes, first: int, size: int, siblings: Sequence[Digest]) -> Digest:
    """The piece root of `size` bytes of which these are shown, from piece `first` on.

    Raises WrongOpening unless they are whole pieces, but for the last of all.
    """
    nodes = [keccak256(LEAF + keccak256(part)) for part in parts(shown, first, size, PIECE)]
    count = pieces_of(size)
    return seal(count, fold(nodes, first, count, height(count), siblings))


def parts(shown: bytes, first: int, size: int, length: int) -> list[bytes]:
    """The parts of this length, from part `first` on of `size` bytes, that are shown.

    Raises WrongOpening unless they are whole, but for the last of all.
    """
    end = first * length + len(shown)
    if not shown or end > size or (end < size and len(shown) % length):
        raise WrongOpening(f"{len(shown)} bytes from {first * length} on of {size}")
    return [shown[i : i + length] for i in range(0, len(shown), length)]


def piece_tree(data: bytes) -> MemoryTree:
    """The tree over the pieces of a byte string, whose root is its piece root."""
    return MemoryTree([keccak256(part) for part in parts(data, 0, len(data), PIECE)])


def words_tree(leaf: bytes) -> MemoryTree:
    """The tree over the 32-byte words of a leaf's bytes, the last one filled up with zeros."""
    words = range(0, len(leaf), 32)
    return MemoryTree([Digest(leaf[i : i + 32].ljust(32, b"\x00")) for i in words])
