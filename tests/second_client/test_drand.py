"""Draws by drand as the second client makes them, of what quicknet has published."""

from __future__ import annotations

import pytest
from tests.second_client import drand

from atoll.chain.drand import QUICKNET

KEY = bytes.fromhex(
    "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451"
    "0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a"
)
SIGNATURE = bytes.fromhex(
    "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39"
)
RANDOMNESS = "fe290beca10872ef2fb164d2aa4442de4566183ec51c56ff3cd603d930e54fdd"


def test_a_published_round_gives_its_randomness() -> None:
    assert drand.randomness_of(KEY, 1000, SIGNATURE).hex() == RANDOMNESS
    with pytest.raises(ValueError, match="round 1001"):
        drand.randomness_of(KEY, 1001, SIGNATURE)


@pytest.mark.parametrize(("after", "number"), [(0, 6), (2, 6), (3, 7), (300, 106)])
def test_a_round_is_later_than_the_margin_after_its_block(after: int, number: int) -> None:
    of = (QUICKNET.margin, QUICKNET.genesis, QUICKNET.period)
    assert drand.round_of(QUICKNET.genesis + after, *of) == number


def test_either_part_draws_something_else() -> None:
    seed = drand.beacon(bytes.fromhex(RANDOMNESS), bytes(32))
    assert seed != drand.beacon(bytes.fromhex(RANDOMNESS), bytes(31) + b"\1")
    assert seed != drand.beacon(bytes(32), bytes(32))
