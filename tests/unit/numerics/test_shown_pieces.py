"""Pieces of a file by themselves: what proves them is as short as can be, and nothing else does."""

from __future__ import annotations

import random

import pytest

from atoll.errors import CorruptBlock
from atoll.numerics.pieces import PIECE_BYTES, piece_root, root_of_update
from atoll.numerics.shown_pieces import (
    KnownPieces,
    PieceTree,
    checked_pieces,
    shown_length,
)
from atoll.protocol.hashing import keccak256
from atoll.protocol.merkle import merkle_proof

SIZES = (1, 1023, 1024, 1025, 65 * 1024, 64 * 1024, (1 << 20) + 1, (2 << 20) + 67 * 1024 + 5)


def data_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def sample(size: int, most: int) -> list[int]:
    count = -(-size // PIECE_BYTES)
    return sorted(random.Random(most).sample(range(count), min(most, count)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("most", [1, 2, 7, 100])
def test_what_is_shown_leads_to_what_was_revealed(size: int, most: int) -> None:
    data, numbers = data_of(size), sample(size, most)
    shown = PieceTree(data).show(numbers)
    assert len(shown) == shown_length(numbers, size)
    pieces = checked_pieces(shown, numbers, size, root_of_update(data))
    assert list(pieces) == numbers
    assert all(data[n * 1024 : n * 1024 + 1024] == piece for n, piece in pieces.items())


@pytest.mark.parametrize("size", SIZES)
def test_of_one_piece_it_is_the_piece_and_its_path(size: int) -> None:
    data = data_of(size)
    leaves = [keccak256(data[at : at + 1024]) for at in range(0, size, 1024)]
    for number in {0, len(leaves) // 2, len(leaves) - 1}:
        path = b"".join(merkle_proof(leaves, number))
        piece = data[number * 1024 : number * 1024 + 1024]
        assert PieceTree(data).show([number]) == piece + path
    assert shown_length(list(range(len(leaves))), size) == size


def test_every_byte_that_is_another_is_noticed() -> None:
    data, numbers = data_of(70 * 1024 + 3), [3, 4, 40, 70]
    shown, root = PieceTree(data).show(numbers), root_of_update(data)
    for at in range(0, len(shown), 31):
        lying = bytearray(shown)
        lying[at] ^= 1
        with pytest.raises(CorruptBlock):
            checked_pieces(bytes(lying), numbers, len(data), root)


@pytest.mark.parametrize("change", ["cut", "longer", "none", "other places", "another size"])
def test_an_answer_to_another_question_is_none(change: str) -> None:
    data, numbers = data_of(70 * 1024 + 3), [3, 4, 40]
    shown, root, size = PieceTree(data).show(numbers), root_of_update(data), len(data)
    shown = {"cut": shown[:-1], "longer": shown + bytes(32), "none": b""}.get(change, shown)
    numbers = [2, 4, 40] if change == "other places" else numbers
    size += 1024 if change == "another size" else 0
    with pytest.raises(CorruptBlock):
        checked_pieces(shown, numbers, size, root)


def test_a_piece_that_a_file_does_not_have_is_not_shown() -> None:
    with pytest.raises(IndexError, match="piece 2 of 2"):
        PieceTree(data_of(1025)).show([0, 2])
    with pytest.raises(ValueError, match="no pieces"):
        PieceTree(b"")


def test_known_pieces_are_read_as_the_file_and_others_are_not() -> None:
    data = data_of(5000)
    known = KnownPieces({n: data[n * 1024 : n * 1024 + 1024] for n in (1, 2, 4)}, len(data))
    for span in (slice(1024, 3072), slice(1500, 2049), slice(4096, 5000), slice(4990, None)):
        assert known[span] == data[span]
    assert known[100:100] == b"" and len(known) == 5000
    with pytest.raises(KeyError):
        known[3000:3073]


def test_the_root_is_the_one_of_pieces() -> None:
    data = data_of(70 * 1024)
    (pieces,) = [checked_pieces(data, range(70), len(data), root_of_update(data))]
    assert piece_root(b"".join(pieces.values())) == piece_root(data)
