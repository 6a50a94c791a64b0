"""What a provider says on the chain of its round: for each segment a state and a blinded tag.

Rule of this file: a leaf's state binds the work, and its word is something that only who ran the
steps knows. Masked, it tells nobody anything until its seat is drawn and shows the key, so that an
auditor that says it has earned its fee.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple, Self

from atoll.protocol.hashing import hash_fields, hash_in_slot, keccak256, sha256
from atoll.protocol.words import Digest, SeatIndex, Slot

LEAF_BYTES: Final = 64
_NANS: Final = {">d": bytes.fromhex("7ff8000000000000"), ">f": bytes.fromhex("7fc00000")}
_DIGEST: Final = 32
_STATE_TAG: Final = b"atoll.state.v1"


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
    """

    norm: float
    losses: tuple[float, ...]


def work_tag(steps: Iterable[StepWork]) -> Digest:
    """A segment's word: keccak-256 of the norm (binary64) and losses (binary32) of every step.

    All big-endian, the steps in order.
    """
    parts = [
        float_bytes(">d", step.norm) + b"".join(float_bytes(">f", loss) for loss in step.losses)
        for step in steps
    ]
    return keccak256(b"".join(parts))


def float_bytes(layout: Literal[">d", ">f"], value: float) -> bytes:
    """The bytes of a binary64 or binary32; every NaN has the same."""
    # Which NaN an operation gives is the processor's choice, so its own bits would part machines.
    return _NANS[layout] if math.isnan(value) else struct.pack(layout, value)


def key_message(slot: Slot, data_seed: Digest, seat: SeatIndex) -> Digest:
    """What a provider's account signs, as it is, for the key of its round."""
    return hash_in_slot("atoll.key.v1", slot, ("bytes32", "uint16"), (data_seed, seat))


def salt_message(slot: Slot, data_seed: Digest, seat: SeatIndex) -> Digest:
    """What a provider's account signs, as it is, for the salt of its commitment."""
    return hash_in_slot("atoll.salt.v1", slot, ("bytes32", "uint16"), (data_seed, seat))


def key_of(signature: bytes) -> Digest:
    """The key, or the salt, of a round: from r ‖ s (and what follows) of its message's signature.

    It is the same each time where the signature is deterministic (RFC 6979, low s): a provider that
    lost its disk still has both, and trains to the same leaves.
    """
    return keccak256(signature[:64])


@lru_cache(maxsize=4096)
def key_hash(key: Digest) -> Digest:
    """κ: what a commitment has of the key; remembered, since every look at a round asks again."""
    return hash_fields(("bytes32",), (key,))


def masked(word: Digest, key: Digest, segment: int) -> Digest:
    """A leaf's word as it is revealed; done twice it is the word again."""
    mask = hash_fields(("bytes32", "uint256"), (key, segment))
    return Digest(bytes(a ^ b for a, b in zip(word, mask, strict=True)))


class Leaf(NamedTuple):
    """One segment as its provider states it: the state after it, and its blinded tag."""

    state: Digest
    word: Digest


@dataclass(frozen=True, slots=True)
class Leaves:
    """A seat's round: one leaf for each segment that it did."""

    items: tuple[Leaf, ...]

    @classmethod
    def of(cls, states: Sequence[Digest], words: Sequence[Digest], key: Digest) -> Self:
        """Of the states after each segment and the plain words."""
        pairs = enumerate(zip(states, words, strict=True))
        return cls(tuple(Leaf(state, masked(word, key, j)) for j, (state, word) in pairs))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises ValueError on bytes that are no whole leaves."""
        if len(data) % LEAF_BYTES:
            raise ValueError(f"{len(data)} bytes are no leaves")
        words = [Digest(data[at : at + _DIGEST]) for at in range(0, len(data), _DIGEST)]
        return cls(tuple(Leaf(*words[at : at + 2]) for at in range(0, len(words), 2)))

    def to_bytes(self) -> bytes:
        """As a reveal's calldata has them."""
        return b"".join(leaf.state + leaf.word for leaf in self.items)

    @property
    def hash(self) -> Digest:
        """What is committed."""
        return keccak256(self.to_bytes())

    @property
    def segments(self) -> int:
        """What the seat did of its round."""
        return len(self.items)

    def words(self, key: Digest) -> tuple[Digest, ...]:
        """The plain words under the seat's key."""
        return tuple(masked(leaf.word, key, j) for j, leaf in enumerate(self.items))


@lru_cache(maxsize=1024)
def plain_words(leaves: bytes, key: Digest) -> tuple[Digest, ...]:
    """The words of leaves as revealed, under the seat's key; remembered, too.

    Raises ValueError on bytes that are no whole leaves.
    """
    return Leaves.from_bytes(leaves).words(key)
