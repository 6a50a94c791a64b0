"""Roots over pieces of 1 KiB: what an Ethereum contract can be shown one piece of, by one path.

Rule of this file: a byte string is read once and never copied whole; besides it there are 32 bytes
a piece. SPEC.md, sections 3 and 4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from atoll.numerics.kernels.keccak import DIGEST_BYTES, Bytes, keccak_rows
from atoll.protocol.hashing import keccak256, update_root
from atoll.protocol.merkle import LEAF, NODE, merkle_root, seal
from atoll.protocol.types import ZERO_DIGEST, Digest

PIECE_BYTES: Final = 1024
SHARD_BYTES: Final = 1 << 20
"""Of whose pieces a data set has the topmost node: ten levels of the tree are over them."""


class Pieces:
    """The pieces of a byte string that arrives in parts of any size."""

    def __init__(self) -> None:
        self._digests: list[Bytes] = []
        self._begun = b""

    def add(self, part: bytes | memoryview) -> None:
        """Takes the next bytes."""
        view = memoryview(part).cast("B")
        if self._begun:
            head = view[: PIECE_BYTES - len(self._begun)]
            self._begun, view = self._begun + bytes(head), view[len(head) :]
            if len(self._begun) == PIECE_BYTES:
                self._digests.append(_digests(memoryview(self._begun)))
                self._begun = b""
        whole = len(view) // PIECE_BYTES * PIECE_BYTES
        if whole:
            self._digests.append(_digests(view[:whole]))
        self._begun += bytes(view[whole:])

    def root(self) -> Digest:
        """The piece root of everything that was added. Raises ValueError where that is nothing."""
        if not self._digests:  # of less than a piece, as most nodes' tensors are
            if not self._begun:
                raise ValueError("an empty byte string has no piece root")
            return merkle_root([keccak256(self._begun)])
        last = [keccak_rows(np.frombuffer(self._begun, np.uint8)[None])] if self._begun else []
        leaves = np.concatenate([*self._digests, *last])
        return seal(len(leaves), _top(keccak_rows(prefixed(LEAF, leaves))))


def piece_root(data: bytes | memoryview) -> Digest:
    """The piece root of a byte string. Raises ValueError if it is empty."""
    pieces = Pieces()
    pieces.add(data)
    return pieces.root()


def shard_node(shard: bytes | memoryview) -> bytes:
    """The node over the pieces of a shard of 1 to `SHARD_BYTES` bytes, in the tree of the whole."""
    whole = len(shard) // PIECE_BYTES * PIECE_BYTES
    view = memoryview(shard).cast("B")
    parts = [_digests(view[:whole])] if whole else []
    if whole < len(view):
        parts.append(keccak_rows(np.frombuffer(view[whole:], np.uint8)[None]))
    return _top(keccak_rows(prefixed(LEAF, np.concatenate(parts))))


def root_of_shards(nodes: bytes, size: int) -> Digest:
    """The piece root of `size` bytes from the nodes of their shards, one after another.

    Raises ValueError unless there is one of 32 bytes for each shard, and any at all.
    """
    if not nodes or len(nodes) != -(-size // SHARD_BYTES) * DIGEST_BYTES:
        raise ValueError(f"{len(nodes)} bytes of nodes for {size} bytes")
    top = _top(np.frombuffer(nodes, np.uint8).reshape(-1, DIGEST_BYTES))
    return seal(-(-size // PIECE_BYTES), top)


class ByteSlices(Protocol):
    """A byte string, or what reads slices of one where it lies."""

    def __len__(self) -> int: ...

    def __getitem__(self, span: slice, /) -> bytes: ...


def root_of_update(update: ByteSlices) -> Digest:
    """What is revealed of an update's bytes; zero where there are none."""
    pieces = Pieces()
    for at in range(0, len(update), SHARD_BYTES):
        pieces.add(update[at : at + SHARD_BYTES])
    return update_root(len(update), pieces.root()) if len(update) else ZERO_DIGEST


def _digests(whole: memoryview) -> Bytes:
    return keccak_rows(np.frombuffer(whole, dtype=np.uint8).reshape(-1, PIECE_BYTES))


@dataclass(frozen=True, slots=True)
class MerkleTree:
    """`protocol.merkle`'s tree over many leaves.

    Attributes:
        levels: nodes from those of the leaves to the top, [nodes, 32] each.
    """

    levels: list[Bytes]

    @property
    def root(self) -> Digest:
        return seal(len(self.levels[0]), self.levels[-1].tobytes())

    def path(self, index: int) -> list[Digest]:
        """`protocol.merkle.merkle_proof`. Raises IndexError when there is no such leaf."""
        if not 0 <= index < len(self.levels[0]):
            raise IndexError(f"leaf {index} of {len(self.levels[0])}")
        digests = []
        for level in self.levels[:-1]:
            if index ^ 1 < len(level):
                digests.append(Digest(level[index ^ 1].tobytes()))
            index //= 2
        return digests


def tree_of(leaves: Bytes) -> MerkleTree:
    """The tree over leaves [N, 32], a level at a time. Raises ValueError where there are none."""
    if not len(leaves):
        raise ValueError("an empty tree has no root")
    return MerkleTree(list(levels_of(keccak_rows(prefixed(LEAF, leaves)))))


def levels_of(nodes: Bytes) -> Iterator[Bytes]:
    """These nodes, and those of each level above them."""
    yield nodes
    while len(nodes) > 1:
        pairs = nodes[: len(nodes) // 2 * 2].reshape(-1, 2 * DIGEST_BYTES)
        carried = nodes[2 * len(pairs) :]
        nodes = np.concatenate([keccak_rows(prefixed(NODE, pairs)), carried])
        yield nodes


def _top(nodes: Bytes) -> bytes:
    return deque(levels_of(nodes), maxlen=1)[0].tobytes()  # no level is kept beside the next


def prefixed(prefix: bytes, rows: Bytes) -> Bytes:
    """What is hashed of leaves or of pairs of nodes."""
    first = np.full((len(rows), 1), prefix[0], dtype=np.uint8)
    return np.concatenate([first, rows], axis=1)
