"""A merge's statement: its bytes place by place, and whose statement there is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll.errors import MalformedUpdate
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_statement import (
    CID_BYTES,
    MAX_STATEMENT,
    TAG,
    MergeStatement,
    SectionStatement,
    StatementShape,
    is_stated,
    square,
    triangle,
    triangle_bytes,
    update_cid_of,
)
from atoll.protocol.types import Bitmap, Digest

GRAM = [[9, 2, -3], [2, 8, 5], [-3, 5, 7]]
DELTA = SectionStatement(GRAM, (Bitmap(0b101), Bitmap(0b1100)), ((1, -2), (3, 127)), (-300, 4))
FIRST = SectionStatement(GRAM, (Bitmap(0b1000),), ((-128,),), (32767,))
CID = bytes(range(CID_BYTES))
SHAPE = StatementShape(tensors=2, moments=1)
STATEMENT = MergeStatement(
    round=0x01020304,
    f_prime=0x0506,
    mergeable=Bitmap(0b1101),
    excluded=Bitmap(0b0001),
    merged=Bitmap(0b1100),
    momentum_excluded=Bitmap(0b0100),
    delta=DELTA,
    first=FIRST,
    parts=tuple(sha256(bytes([number])) for number in range(5)),
    update_root=sha256(b"root"),
    update_cid=CID,
)


def word(number: int) -> bytes:
    return number.to_bytes(32, "big")


TRIANGLE = b"".join(number.to_bytes(8, "big", signed=True) for number in (9, 2, 8, -3, 5, 7))
HEAD = TAG + bytes.fromhex("010203040506") + b"".join(map(word, (0b1101, 1, 0b1100, 0b0100)))
DELTA_BYTES = TRIANGLE + word(0b101) + word(0b1100) + bytes.fromhex("01fe037ffed40004")
FIRST_BYTES = TRIANGLE + word(0b1000) + bytes.fromhex("807fff")
END = b"".join(STATEMENT.parts) + sha256(b"root") + CID


def test_a_statements_bytes_have_each_thing_at_its_place() -> None:
    assert STATEMENT.to_bytes() == HEAD + DELTA_BYTES + FIRST_BYTES + END
    alone = replace(STATEMENT, first=None)
    assert alone.to_bytes() == HEAD + DELTA_BYTES + END


def test_a_statement_is_read_as_it_was_written() -> None:
    assert MergeStatement.from_bytes(STATEMENT.to_bytes(), SHAPE) == STATEMENT
    alone = replace(STATEMENT, first=None)
    plain = StatementShape(tensors=2, moments=0)
    assert MergeStatement.from_bytes(alone.to_bytes(), plain) == alone


def test_all_who_are_heard_have_a_row_of_first_moments() -> None:
    both = SectionStatement(GRAM, (Bitmap(1), Bitmap(2)), ((5,), (6,)), (7,))
    statement = replace(STATEMENT, momentum_excluded=Bitmap(0), first=both)
    assert MergeStatement.from_bytes(statement.to_bytes(), SHAPE) == statement
    neither = replace(
        STATEMENT, momentum_excluded=Bitmap(0b1100), first=replace(both, groups=(), votes=())
    )
    assert MergeStatement.from_bytes(neither.to_bytes(), SHAPE) == neither


def test_a_statement_of_another_shape_is_refused() -> None:
    data = STATEMENT.to_bytes()
    for tensors, moments in ((1, 1), (3, 1), (2, 0), (2, 2)):
        with pytest.raises(MalformedUpdate):
            MergeStatement.from_bytes(data, StatementShape(tensors, moments))


def test_a_statement_ends_where_it_says_no_more() -> None:
    data = STATEMENT.to_bytes()
    for size in range(len(data)):
        with pytest.raises(MalformedUpdate, match="too early"):
            MergeStatement.from_bytes(data[:size], SHAPE)
    with pytest.raises(MalformedUpdate, match="ends 1 bytes too early"):
        MergeStatement.from_bytes(data[:-1], SHAPE)
    with pytest.raises(MalformedUpdate, match="2 bytes follow"):
        MergeStatement.from_bytes(data + b"ab", SHAPE)
    with pytest.raises(MalformedUpdate, match="1 bytes follow"):
        MergeStatement.from_bytes(data + b"a", SHAPE)


def test_bytes_with_another_tag_are_no_statement() -> None:
    data = STATEMENT.to_bytes()
    with pytest.raises(MalformedUpdate, match="no merge statement"):
        MergeStatement.from_bytes(data[:1].upper() + data[1:], SHAPE)


@pytest.mark.parametrize(
    "seats",
    [
        {"excluded": Bitmap(0b0010)},
        {"mergeable": Bitmap(0b1011)},
        {"momentum_excluded": Bitmap(0b0001)},
        {"merged": Bitmap(0), "momentum_excluded": Bitmap(0)},
    ],
    ids=["excluded", "merged", "moments", "nobody"],
)
def test_seats_that_are_not_within_one_another_are_refused(seats: dict[str, Bitmap]) -> None:
    with pytest.raises(MalformedUpdate, match="not within one another"):
        MergeStatement.from_bytes(replace(STATEMENT, **cast("Any", seats)).to_bytes(), SHAPE)


def test_who_is_merged_and_has_its_moments_is_heard() -> None:
    assert STATEMENT.heard == 0b1000
    assert replace(STATEMENT, momentum_excluded=Bitmap(0)).heard == 0b1100


def test_a_statements_digest_is_the_hash_of_its_bytes() -> None:
    assert STATEMENT.digest == sha256(STATEMENT.to_bytes())
    assert replace(STATEMENT, round=1).digest != STATEMENT.digest


def test_a_statement_names_its_update_last() -> None:
    assert update_cid_of(STATEMENT.to_bytes()) == CID


def test_a_statement_is_no_longer_than_a_block_of_a_mebibyte() -> None:
    assert MAX_STATEMENT == 1024 * 1024


@pytest.mark.parametrize("n", range(5))
def test_a_symmetric_matrix_is_its_lower_half(n: int) -> None:
    gram = [[10 * max(i, j) + min(i, j) - 20 for j in range(n)] for i in range(n)]
    data = triangle(gram)
    assert len(data) == triangle_bytes(n)
    assert square(data, n) == gram


def test_a_triangles_numbers_go_row_by_row() -> None:
    assert triangle(GRAM) == TRIANGLE
    assert triangle_bytes(3) == 48


@pytest.mark.parametrize(
    ("fineness", "is_coordinatewise", "is_it"),
    [
        (8, True, True),
        (0, True, True),
        (None, True, False),
        (8, False, False),
        (None, False, False),
    ],
)
def test_rounded_merges_by_a_rule_of_coordinates_are_stated(
    fineness: int | None, is_coordinatewise: bool, is_it: bool
) -> None:
    manifest = SimpleNamespace(
        codec=SimpleNamespace(properties=SimpleNamespace(fineness=fineness)),
        robust=SimpleNamespace(properties=SimpleNamespace(is_coordinatewise=is_coordinatewise)),
    )
    assert is_stated(cast("Manifest", manifest)) is is_it


def test_parts_and_root_are_words() -> None:
    read = MergeStatement.from_bytes(STATEMENT.to_bytes(), SHAPE)
    assert [len(part) for part in (*read.parts, read.update_root)] == [32] * 6
    assert read.parts[4] == Digest(sha256(b"\4"))
