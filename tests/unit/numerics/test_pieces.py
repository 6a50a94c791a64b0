"""Roots over pieces of 1 KiB: the law's tree, whatever parts the bytes arrive in."""

from __future__ import annotations

import numpy as np
import pytest

from atoll.numerics.pieces import PIECE_BYTES, Pieces, piece_root, root_of_update
from atoll.protocol.hashing import hash_fields, keccak256, tag
from atoll.protocol.merkle import merkle_proof, merkle_root, verify_proof
from atoll.protocol.types import ZERO_DIGEST

DATA = np.random.default_rng(0).bytes(20 * PIECE_BYTES + 5)


def leaves_of(data: bytes) -> list[bytes]:
    return [keccak256(data[at : at + PIECE_BYTES]) for at in range(0, len(data), PIECE_BYTES)]


@pytest.mark.parametrize("length", [1, 1023, 1024, 1025, 2048, 3000, 7 * 1024 + 1, len(DATA)])
def test_the_root_is_that_of_the_laws_tree_over_the_pieces(length: int) -> None:
    assert piece_root(DATA[:length]) == merkle_root(leaves_of(DATA[:length]))


def test_it_does_not_matter_in_what_parts_the_bytes_arrive() -> None:
    generator = np.random.default_rng(1)
    for _ in range(50):
        pieces, at = Pieces(), 0
        while at < len(DATA):
            size = int(generator.integers(0, 3000))
            pieces.add(DATA[at : at + size])
            at += size
        assert pieces.root() == piece_root(DATA)


def test_one_path_opens_one_piece() -> None:
    leaves = leaves_of(DATA)
    proof = merkle_proof(leaves, 7)
    assert verify_proof(leaves[7], 7, len(leaves), proof, piece_root(DATA))
    assert not verify_proof(leaves[8], 7, len(leaves), proof, piece_root(DATA))


def test_nothing_has_no_root() -> None:
    with pytest.raises(ValueError, match="empty"):
        piece_root(b"")
    with pytest.raises(ValueError, match="empty"):
        Pieces().root()


def test_an_updates_root_binds_its_size_and_no_update_has_zero() -> None:
    fields = (tag("atoll.update.v1"), 5, piece_root(DATA[:5]))
    assert root_of_update(DATA[:5]) == hash_fields(("bytes32", "uint64", "bytes32"), fields)
    assert root_of_update(b"") == ZERO_DIGEST
