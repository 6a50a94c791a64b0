"""Checkpoint commitments: what a segment's work_tag takes in, how it is masked, and the bytes of a
reveal."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from eth_hash.auto import keccak
from tests.support.identities import ROUND_ID

from atoll.protocol.checkpoint_commitments import (
    CHECKPOINT_COMMITMENT_BYTES,
    CheckpointCommitment,
    CheckpointCommitments,
    StepWork,
    key_hash,
    key_message,
    key_of,
    masked,
    salt_message,
    work_tag,
)
from atoll.protocol.types import Digest, RoundIndex, SeatIndex

STEPS = (StepWork(1.5, (2.5, 2.25)), StepWork(2.0, (1.0, 0.5)))
KEY = Digest(b"k" * 32)
TAGS = tuple(Digest(bytes([i]) * 32) for i in range(3))
STATES = tuple(Digest(bytes([64 + i]) * 32) for i in range(3))


def test_a_work_tag_takes_in_every_norm_and_every_loss_in_order() -> None:
    tag = work_tag(STEPS)
    first, second = STEPS
    others = (
        (second, first),
        (first,),
        (first._replace(norm=math.nextafter(1.5, 2)), second),
        (first._replace(losses=(2.25, 2.5)), second),
        (first, second._replace(losses=(1.0,))),
    )
    assert len({tag, *map(work_tag, others)}) == 6


def test_numbers_that_are_not_finite_have_one_spelling() -> None:
    negative = math.copysign(math.nan, -1)
    tag = work_tag([StepWork(math.nan, (-math.inf,))])
    assert tag == work_tag([StepWork(negative, (-math.inf,))])
    assert tag == keccak(bytes.fromhex("7ff8000000000000ff800000"))


def test_a_key_is_of_its_round_and_seat_and_of_no_more_of_a_signature() -> None:
    message = key_message(ROUND_ID, KEY, SeatIndex(3))
    others = {
        key_message(replace(ROUND_ID, round=RoundIndex(8)), KEY, SeatIndex(3)),
        key_message(ROUND_ID, Digest(b"K" * 32), SeatIndex(3)),
        key_message(ROUND_ID, KEY, SeatIndex(4)),
    }
    assert len(others | {message}) == 4
    assert key_of(b"r" * 32 + b"s" * 32 + b"\x1b") == keccak(b"r" * 32 + b"s" * 32)
    assert key_hash(KEY) == keccak(KEY)


def test_keys_and_salts_are_of_messages_that_name_seed_and_seat() -> None:
    seed, seat = Digest(b"s" * 32), SeatIndex(258)
    key, salt = key_message(ROUND_ID, seed, seat), salt_message(ROUND_ID, seed, seat)
    assert (key.name, salt.name) == ("SecretOfWorkTags", "SecretOfCommitment")
    assert key.fields == salt.fields
    named = {each.name: each.value for each in key.fields}
    assert named == {"job": ROUND_ID.job, "round": ROUND_ID.round, "seed": seed, "seat": seat}


def test_a_mask_is_of_its_key_and_segment_and_comes_off() -> None:
    hidden = masked(TAGS[1], KEY, 4)
    assert masked(hidden, KEY, 4) == TAGS[1]
    mask = keccak(KEY + (4).to_bytes(32, "big"))
    assert bytes(a ^ b for a, b in zip(hidden, mask, strict=True)) == TAGS[1]
    assert masked(hidden, KEY, 5) != TAGS[1]
    assert masked(hidden, Digest(b"K" * 32), 4) != TAGS[1]


def test_checkpoint_commitments_are_what_their_bytes_say() -> None:
    checkpoint_commitments = CheckpointCommitments.of(STATES, TAGS, KEY)
    assert (
        CheckpointCommitments.from_bytes(checkpoint_commitments.to_bytes())
        == checkpoint_commitments
    )
    assert len(checkpoint_commitments.to_bytes()) == 3 * CHECKPOINT_COMMITMENT_BYTES
    assert checkpoint_commitments.hash == keccak(checkpoint_commitments.to_bytes())
    assert [
        checkpoint_commitment.state for checkpoint_commitment in checkpoint_commitments.items
    ] == list(STATES)
    assert checkpoint_commitments.work_tags(KEY) == TAGS
    assert checkpoint_commitments.items[2] == CheckpointCommitment(
        STATES[2], masked(TAGS[2], KEY, 2)
    )
    assert CheckpointCommitments.from_bytes(b"") == CheckpointCommitments(())


@pytest.mark.parametrize("size", [1, 63, 65, 127])
def test_bytes_that_are_no_checkpoint_commitments_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="no checkpoint commitments"):
        CheckpointCommitments.from_bytes(bytes(size))
    assert CheckpointCommitments.from_bytes(bytes(64 * 64)).segments == 64


def test_states_and_work_tags_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="zip"):
        CheckpointCommitments.of(STATES, TAGS[:2], KEY)
