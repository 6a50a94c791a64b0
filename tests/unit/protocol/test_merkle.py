"""Trees: shape, proofs and what they refuse."""

from __future__ import annotations

import pytest
from tests.support.identities import digest

from atoll.protocol.hashing import keccak256, sha256
from atoll.protocol.merkle import merkle_proof, merkle_root, verify_proof

LEAVES = [digest(i) for i in range(5)]


def test_an_odd_node_is_carried_up_and_the_count_is_sealed_in() -> None:
    a, b, c = (keccak256(b"\x00" + leaf) for leaf in LEAVES[:3])
    top = keccak256(b"\x01" + keccak256(b"\x01" + a + b) + c)
    assert merkle_root(LEAVES[:3]) == keccak256(b"\x02" + (3).to_bytes(8, "big") + top)


def test_sha256_trees_have_the_same_shape() -> None:
    top = sha256(b"\x00" + LEAVES[0])
    assert merkle_root(LEAVES[:1], sha256) == sha256(b"\x02" + (1).to_bytes(8, "big") + top)


def test_an_empty_tree_has_no_root() -> None:
    with pytest.raises(ValueError, match="empty"):
        merkle_root([])


def test_leaves_are_32_bytes() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        merkle_root([b"short"])


def test_there_is_no_proof_for_a_leaf_that_is_not_there() -> None:
    with pytest.raises(IndexError):
        merkle_proof(LEAVES, 5)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 6, 1 << 64])
def test_a_proof_does_not_verify_under_another_count(count: int) -> None:
    proof = merkle_proof(LEAVES, 2)
    assert not verify_proof(LEAVES[2], 2, count, proof, merkle_root(LEAVES))


def test_a_proof_with_an_extra_or_a_missing_sibling_is_refused() -> None:
    root, proof = merkle_root(LEAVES), merkle_proof(LEAVES, 1)
    assert not verify_proof(LEAVES[1], 1, 5, [*proof, digest("more")], root)
    assert not verify_proof(LEAVES[1], 1, 5, proof[:-1], root)
    assert not verify_proof(LEAVES[1], 1, 5, [b"short", *proof[1:]], root)


def test_what_is_no_leaf_of_the_tree_is_refused_whatever_its_root() -> None:
    (leaf,) = LEAVES[:1]
    root = merkle_root([leaf])
    assert verify_proof(leaf, 0, 1, [], root)
    assert not verify_proof(leaf, 1, 1, [], root)
    assert not verify_proof(leaf, -1, 1, [], root)
    short = keccak256(b"\x02" + (1).to_bytes(8, "big") + keccak256(b"\x00short"))
    assert not verify_proof(b"short", 0, 1, [], short)
