"""Leaves: what a segment's word takes in, how it is masked, and the bytes of a reveal."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from eth_hash.auto import keccak
from tests.support.identities import SLOT
from tests.unit.protocol.network import tagged

from atoll.protocol.leaves import (
    LEAF_BYTES,
    Leaf,
    Leaves,
    StepWork,
    key_hash,
    key_message,
    key_of,
    masked,
    salt_message,
    work_tag,
)
from atoll.protocol.words import Digest, RoundIndex, SeatIndex

STEPS = (StepWork(1.5, (2.5, 2.25)), StepWork(2.0, (1.0, 0.5)))
KEY = Digest(b"k" * 32)
WORDS = tuple(Digest(bytes([i]) * 32) for i in range(3))
STATES = tuple(Digest(bytes([64 + i]) * 32) for i in range(3))


def test_a_word_takes_in_every_norm_and_every_loss_in_order() -> None:
    word = work_tag(STEPS)
    first, second = STEPS
    others = (
        (second, first),
        (first,),
        (first._replace(norm=math.nextafter(1.5, 2)), second),
        (first._replace(losses=(2.25, 2.5)), second),
        (first, second._replace(losses=(1.0,))),
    )
    assert len({word, *map(work_tag, others)}) == 6


def test_numbers_that_are_not_finite_have_one_spelling() -> None:
    negative = math.copysign(math.nan, -1)
    word = work_tag([StepWork(math.nan, (-math.inf,))])
    assert word == work_tag([StepWork(negative, (-math.inf,))])
    assert word == keccak(bytes.fromhex("7ff8000000000000ff800000"))


def test_a_key_is_of_its_round_and_seat_and_of_no_more_of_a_signature() -> None:
    message = key_message(SLOT, KEY, SeatIndex(3))
    others = {
        key_message(replace(SLOT, round=RoundIndex(8)), KEY, SeatIndex(3)),
        key_message(SLOT, Digest(b"K" * 32), SeatIndex(3)),
        key_message(SLOT, KEY, SeatIndex(4)),
    }
    assert len(others | {message}) == 4
    assert key_of(b"r" * 32 + b"s" * 32 + b"\x1b") == keccak(b"r" * 32 + b"s" * 32)
    assert key_hash(KEY) == keccak(KEY)


def test_keys_and_salts_are_of_messages_that_name_seed_and_seat() -> None:
    seed, seat = Digest(b"s" * 32), SeatIndex(258)
    for name, message in (("atoll.key.v1", key_message), ("atoll.salt.v1", salt_message)):
        assert message(SLOT, seed, seat) == tagged(name, SLOT.round, seed, seat)


def test_a_mask_is_of_its_key_and_segment_and_comes_off() -> None:
    hidden = masked(WORDS[1], KEY, 4)
    assert masked(hidden, KEY, 4) == WORDS[1]
    mask = keccak(KEY + (4).to_bytes(32, "big"))
    assert bytes(a ^ b for a, b in zip(hidden, mask, strict=True)) == WORDS[1]
    assert masked(hidden, KEY, 5) != WORDS[1]
    assert masked(hidden, Digest(b"K" * 32), 4) != WORDS[1]


def test_leaves_are_what_their_bytes_say() -> None:
    leaves = Leaves.of(STATES, WORDS, KEY)
    assert Leaves.from_bytes(leaves.to_bytes()) == leaves
    assert len(leaves.to_bytes()) == 3 * LEAF_BYTES
    assert leaves.hash == keccak(leaves.to_bytes())
    assert [leaf.state for leaf in leaves.items] == list(STATES)
    assert leaves.words(KEY) == WORDS
    assert leaves.items[2] == Leaf(STATES[2], masked(WORDS[2], KEY, 2))
    assert Leaves.from_bytes(b"") == Leaves(())


@pytest.mark.parametrize("size", [1, 63, 65, 127])
def test_bytes_that_are_no_leaves_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="no leaves"):
        Leaves.from_bytes(bytes(size))
    assert Leaves.from_bytes(bytes(64 * 64)).segments == 64


def test_states_and_words_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="zip"):
        Leaves.of(STATES, WORDS[:2], KEY)
