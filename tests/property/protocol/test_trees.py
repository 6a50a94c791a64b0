"""Merkle proofs prove what is there, where it is, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atoll.protocol.hashing import keccak256, sha256
from atoll.protocol.merkle import merkle_proof, merkle_root, verify_proof

LEAVES = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=70, unique=True)
HASHES = st.sampled_from([keccak256, sha256])


@given(LEAVES, st.data())
def test_every_leaf_has_a_proof_that_fits_only_its_position(
    leaves: list[bytes], data: st.DataObject
) -> None:
    hash = data.draw(HASHES)
    index = data.draw(st.integers(0, len(leaves) - 1))
    root, proof = merkle_root(leaves, hash), merkle_proof(leaves, index, hash)
    for i in range(len(leaves)):
        fits = verify_proof(leaves[index], i, len(leaves), proof, root, hash=hash)
        assert fits == (i == index)


@given(LEAVES, st.data())
def test_one_bit_of_leaf_proof_or_root_breaks_a_proof(
    leaves: list[bytes], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    words = [leaves[index], merkle_root(leaves), *merkle_proof(leaves, index)]
    position = data.draw(st.integers(0, len(words) - 1))
    bit = data.draw(st.integers(0, 255))
    changed = bytearray(words[position])
    changed[bit // 8] ^= 1 << bit % 8
    words[position] = bytes(changed)
    assert not verify_proof(words[0], index, len(leaves), words[2:], words[1])


@given(LEAVES, st.binary(min_size=32, max_size=32))
def test_no_two_lists_of_leaves_share_a_root(leaves: list[bytes], extra: bytes) -> None:
    roots = {merkle_root(leaves), merkle_root([*leaves, extra]), merkle_root([*leaves, leaves[-1]])}
    assert len(roots) == (2 if extra == leaves[-1] else 3)
