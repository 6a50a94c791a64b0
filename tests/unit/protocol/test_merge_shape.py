"""The last leaf of a program: what the chain knows of a job's merges, byte by byte."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from tests.unit.protocol.models import HEADER

from atoll.protocol.codecs import CODECS
from atoll.protocol.hashing import keccak256
from atoll.protocol.merge_shape import MergeShape, Numbers
from atoll.protocol.merkle import merkle_root
from atoll.protocol.program import program_leaves, program_root
from atoll.protocol.rules import RULES

SENT = (Numbers(3, 1 << 40), Numbers(4, 17))
FRAGMENTS = (0, 1, 1, 0, 1, 0, 1)
SHAPE = MergeShape("nnm_median", "grid8", SENT, Numbers(2, 99), 1 << 33, 12, -30, -4, FRAGMENTS)


def test_a_shapes_bytes_have_each_number_at_its_place() -> None:
    data = SHAPE.to_bytes()
    head = bytes([0xFF, RULES["median"].number, 1, CODECS["grid8"].number])
    numbers = bytes.fromhex("000200000000000000630000000200000000000000000000000c")
    sent = bytes.fromhex("0002ffe2fffc0003000001000000000000040000000000000011")
    assert data == head + numbers + sent + bytes(FRAGMENTS)


def test_a_rule_has_the_number_of_what_it_mixes_for() -> None:
    plain = replace(SHAPE, rule="median")
    assert plain.rule_number == SHAPE.rule_number == RULES["median"].number > 0
    assert (plain.to_bytes()[2], SHAPE.to_bytes()[2]) == (0, 1)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_merges_that_are_not_rounded_have_no_rule(codec: str) -> None:
    shape = replace(SHAPE, codec=codec)
    is_rounded = CODECS[codec].fineness is not None
    assert shape.rule_number == (RULES["median"].number if is_rounded else 0)
    assert shape.to_bytes()[3] == CODECS[codec].number


def test_numbers_that_do_not_fit_are_refused() -> None:
    for wrong in (
        replace(SHAPE, factored_bytes=1 << 64),
        replace(SHAPE, first=Numbers(1 << 16, 0)),
        replace(SHAPE, sent=(Numbers(-1, 0),)),
        replace(SHAPE, low=-(1 << 15) - 1),
        replace(SHAPE, fragments=(256,)),
    ):
        with pytest.raises((struct.error, ValueError)):
            wrong.to_bytes()


def test_the_shape_is_the_last_leaf_of_its_program() -> None:
    leaves = program_leaves(HEADER, [], SHAPE)
    assert leaves == [keccak256(HEADER.to_bytes()), keccak256(SHAPE.to_bytes())]
    assert program_leaves(HEADER, []) == leaves[:1]
    assert program_root(HEADER, [], SHAPE) == merkle_root(leaves)
    assert program_root(HEADER, []) == merkle_root(leaves[:1])


def test_codecs_have_the_numbers_that_the_contract_knows() -> None:
    names = ("grid8", "grid4", "two_bit", "sign", "sparse", "dct", "fp32")
    assert {name: kind.number for name, kind in CODECS.items()} == {
        name: number for number, name in enumerate(names)
    }
