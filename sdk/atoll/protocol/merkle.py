"""Binary Merkle trees: states, pieces, programs, traces.

Rule of this file: leaf node = H(0x00 ‖ leaf), inner node = H(0x01 ‖ left ‖ right), an odd node is
carried up unchanged, and root = H(0x02 ‖ leaf count as big-endian uint64 ‖ top). Counting the
leaves into the root stops a tree from passing for a smaller one. An empty tree has no root.
Source: RFC 6962's prefixes, with the count added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atoll.protocol.hashing import keccak256
from atoll.protocol.types import Digest

HashFunction = Callable[[bytes], Digest]

LEAF = b"\x00"
NODE = b"\x01"
_ROOT = b"\x02"
_WORD = 32


def _levels(leaves: Sequence[bytes], hash: HashFunction) -> list[list[Digest]]:
    """Every level of the tree, from leaf nodes to the top. Raises ValueError on an empty tree."""
    if not leaves:
        raise ValueError("an empty tree has no root")
    if any(len(leaf) != _WORD for leaf in leaves):
        raise ValueError("every leaf is 32 bytes")
    levels = [[hash(LEAF + leaf) for leaf in leaves]]
    while len(levels[-1]) > 1:
        below = levels[-1]
        above = [
            hash(NODE + below[i] + below[i + 1]) if i + 1 < len(below) else below[i]
            for i in range(0, len(below), 2)
        ]
        levels.append(above)
    return levels


def seal(count: int, top: bytes, hash: HashFunction = keccak256) -> Digest:
    """The root of a tree of `count` leaves from its topmost node."""
    return hash(_ROOT + count.to_bytes(8, "big") + top)


def merkle_root(leaves: Sequence[bytes], hash: HashFunction = keccak256) -> Digest:
    """Root over 32-byte leaves. Raises ValueError on an empty tree or a leaf of another length."""
    return seal(len(leaves), _levels(leaves, hash)[-1][0], hash)


def merkle_proof(
    leaves: Sequence[bytes], index: int, hash: HashFunction = keccak256
) -> list[Digest]:
    """Siblings of leaf `index`, bottom up; levels where its node is carried up have none.

    Raises IndexError when there is no such leaf.
    """
    levels = _levels(leaves, hash)
    if not 0 <= index < len(leaves):
        raise IndexError(f"leaf {index} of {len(leaves)}")
    proof = []
    for level in levels[:-1]:
        sibling = index ^ 1
        if sibling < len(level):
            proof.append(level[sibling])
        index //= 2
    return proof


def verify_proof(
    leaf: bytes,
    index: int,
    count: int,
    proof: Sequence[bytes],
    root: bytes,
    *,
    hash: HashFunction = keccak256,
) -> bool:
    """True iff `leaf` is leaf `index` of the tree of `count` leaves with this root."""
    if not 0 <= index < count or count >= 1 << 64 or len(leaf) != _WORD:
        return False
    node: bytes = hash(LEAF + leaf)
    siblings = iter(proof)
    width = count
    while width > 1:
        if index ^ 1 < width:
            sibling = next(siblings, None)
            if sibling is None or len(sibling) != _WORD:
                return False
            node = hash(NODE + (sibling + node if index % 2 else node + sibling))
        index //= 2
        width = (width + 1) // 2
    return next(siblings, None) is None and seal(count, node, hash) == root
