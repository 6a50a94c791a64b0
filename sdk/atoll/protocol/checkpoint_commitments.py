"""What a provider says on the chain of its round: for each segment a state and a blinded tag.

Rule of this file: a checkpoint commitment's state binds the work, and its work tag is something
that only who ran the steps knows. Masked, it tells nobody anything until its seat is drawn and
shows the key, so that an auditor that says it has earned its fee.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple, Self

from atoll.protocol.hashing import hash_fields, keccak256, sha256
from atoll.protocol.typed_data import TypedField, TypedMessage, in_round
from atoll.protocol.types import Digest, RoundId, SeatIndex

CHECKPOINT_COMMITMENT_BYTES: Final = 64
_NANS: Final = {">d": bytes.fromhex("7ff8000000000000"), ">f": bytes.fromhex("7fc00000")}
_DIGEST: Final = 32
_STATE_TAG: Final = b"atoll.state.v1"


def rollouts_digest(before: Digest, ids: Digest) -> Digest:
    """The buffers root of the state after a step, from that before it and the ids' own root."""
    return sha256(b"atoll.rollouts.v1" + before + ids)


class StateRoots(NamedTuple):
    """The four parts of a state's digest, 32 bytes each.

    `optimiser_root` is ZERO_DIGEST for the zero state that a cold round opens with.
    """

    params_root: Digest
    optimiser_root: Digest
    buffers_root: Digest
    rng_digest: Digest

    def digest(self) -> Digest:
        """SHA-256 of the tag and the four parts."""
        return sha256(_STATE_TAG + b"".join(self))


class StepWork(NamedTuple):
    """What only who ran a step knows of it.

    Attributes:
        norm: of the whole gradient, before it was clipped.
        losses: of each micro-batch in order, mean nats a token: values of binary32.
        drawn: of each, the weight below its sampled tokens, modulo 2⁶⁴; none where text is learned.
            Who has the ids and skips the sampler has not this.
    """

    norm: float
    losses: tuple[float, ...]
    drawn: tuple[int, ...] = ()


def work_tag(steps: Iterable[StepWork]) -> Digest:
    """A segment's work tag: keccak-256 of the norm (binary64) and losses (binary32) of every step.

    Where tokens were sampled, each loss is followed by what was drawn (uint64). All big-endian, the
    steps in order.
    """
    return keccak256(b"".join(map(step_bytes, steps)))


def step_bytes(step: StepWork) -> bytes:
    """What the work tag hashes of a step."""
    losses = [float_bytes(">f", loss) for loss in step.losses]
    drawn = [word.to_bytes(8, "big") for word in step.drawn] or [b""] * len(losses)
    pairs = zip(losses, drawn, strict=True)
    return float_bytes(">d", step.norm) + b"".join(loss + word for loss, word in pairs)


def float_bytes(layout: Literal[">d", ">f"], value: float) -> bytes:
    """The bytes of a binary64 or binary32; every NaN has the same."""
    # Which NaN an operation gives is the processor's choice, so its own bits would part machines.
    return _NANS[layout] if math.isnan(value) else struct.pack(layout, value)


def key_message(round_id: RoundId, data_seed: Digest, seat: SeatIndex) -> TypedMessage:
    """What a provider's account signs for the key of its round; nobody else may see that."""
    return in_round(round_id, "SecretOfWorkTags", *_of_seat(data_seed, seat))


def salt_message(round_id: RoundId, data_seed: Digest, seat: SeatIndex) -> TypedMessage:
    """What a provider's account signs for the salt of its commitment; nobody else may see that."""
    return in_round(round_id, "SecretOfCommitment", *_of_seat(data_seed, seat))


def _of_seat(data_seed: Digest, seat: SeatIndex) -> tuple[TypedField, TypedField]:
    return TypedField("bytes32", "seed", data_seed), TypedField("uint16", "seat", seat)


def key_of(signature: bytes) -> Digest:
    """The key, or the salt, of a round: from r ‖ s (and what follows) of its message's signature.

    It is the same each time where the signature is deterministic (RFC 6979, low s): a provider that
    lost its disk still has both, and trains to the same checkpoint commitments.
    """
    return keccak256(signature[:64])


@lru_cache(maxsize=4096)
def key_hash(key: Digest) -> Digest:
    """κ: what a commitment has of the key; remembered, since every look at a round asks again."""
    return hash_fields(("bytes32",), (key,))


def masked(tag: Digest, key: Digest, segment: int) -> Digest:
    """A leaf's work tag as it is revealed; done twice it is the work tag again."""
    mask = hash_fields(("bytes32", "uint256"), (key, segment))
    return Digest(bytes(a ^ b for a, b in zip(tag, mask, strict=True)))


class CheckpointCommitment(NamedTuple):
    """One segment as its provider states it: the state after it, and its blinded tag."""

    state: Digest
    blinded_tag: Digest


@dataclass(frozen=True, slots=True)
class CheckpointCommitments:
    """A seat's round: one checkpoint commitment for each segment that it did."""

    items: tuple[CheckpointCommitment, ...]

    @classmethod
    def of(cls, states: Sequence[Digest], tags: Sequence[Digest], key: Digest) -> Self:
        """Of the states after each segment and the plain work tags."""
        pairs = enumerate(zip(states, tags, strict=True))
        return cls(
            tuple(CheckpointCommitment(state, masked(tag, key, j)) for j, (state, tag) in pairs)
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises ValueError on bytes that are no whole checkpoint commitments."""
        if len(data) % CHECKPOINT_COMMITMENT_BYTES:
            raise ValueError(f"{len(data)} bytes are no checkpoint commitments")
        parts = [Digest(data[at : at + _DIGEST]) for at in range(0, len(data), _DIGEST)]
        return cls(
            tuple(CheckpointCommitment(*parts[at : at + 2]) for at in range(0, len(parts), 2))
        )

    def to_bytes(self) -> bytes:
        """As a reveal's calldata has them."""
        return b"".join(
            checkpoint_commitment.state + checkpoint_commitment.blinded_tag
            for checkpoint_commitment in self.items
        )

    @property
    def hash(self) -> Digest:
        """What is committed."""
        return keccak256(self.to_bytes())

    @property
    def segments(self) -> int:
        """What the seat did of its round."""
        return len(self.items)

    def work_tags(self, key: Digest) -> tuple[Digest, ...]:
        """The plain work tags under the seat's key."""
        return tuple(
            masked(checkpoint_commitment.blinded_tag, key, j)
            for j, checkpoint_commitment in enumerate(self.items)
        )


@lru_cache(maxsize=1024)
def plain_tags(checkpoint_commitments: bytes, key: Digest) -> tuple[Digest, ...]:
    """The work tags of leaves as revealed, under the seat's key; remembered, too.

    Raises ValueError on bytes that are no whole checkpoint commitments.
    """
    return CheckpointCommitments.from_bytes(checkpoint_commitments).work_tags(key)
