"""Draws that everyone can repeat: SHA-256 in counter mode, without modulo bias.

Rule of this file: block i of a stream is SHA-256(tag ‖ key ‖ i as big-endian uint32), read as four
big-endian uint64 words in order. No other source of randomness exists in the protocol.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import count
from struct import pack, unpack

from atoll.protocol.types import Digest, SeatIndex

_WORD_RANGE = 1 << 64
BATCH_TAG = "atoll.batch.v1"
DROPOUT_TAG = "atoll.dropout.v1"
SAMPLE_TAG = "atoll.sample.v1"


class DrawStream:
    """A stream of unbiased draws from a tag and a key; the same pair gives the same stream."""

    def __init__(self, tag: str, key: bytes) -> None:
        self._words = _words(tag.encode() + key)

    def draw(self, n: int) -> int:
        """An integer in [0, n), 1 ≤ n < 2⁶⁴. Raises ValueError outside that range.

        A word u ≥ 2⁶⁴ − (2⁶⁴ mod n) is rejected, so every value has the same share of words.
        """
        if not 0 < n < _WORD_RANGE:
            raise ValueError(f"cannot draw below {n}")
        limit = _WORD_RANGE - _WORD_RANGE % n
        return next(word for word in self._words if word < limit) % n


def _words(prefix: bytes) -> Iterator[int]:
    base = hashlib.sha256(prefix)
    for i in count():
        block = base.copy()
        block.update(pack(">I", i))
        yield from unpack(">4Q", block.digest())


def seat_key(seed: Digest, seat: SeatIndex) -> bytes:
    """The key of draws about one seat: the seed and the seat as big-endian uint16."""
    return seed + pack(">H", seat)


def batch_offsets(
    data_seed: Digest, seat: SeatIndex, step: int, batch: int, limit: int
) -> list[int]:
    """Where each of a step's `batch` sequences starts in the training tokens, in [0, limit).

    `step` counts from 0 within the round; `limit` is the number of training tokens minus the
    sequence length, so that a sequence and its shifted targets both fit.
    """
    stream = DrawStream(BATCH_TAG, seat_key(data_seed, seat) + pack(">I", step))
    return [stream.draw(limit) for _ in range(batch)]


def dropout_key(data_seed: Digest, seat: SeatIndex) -> tuple[int, int]:
    """The Philox key of a seat's dropout masks in a round: two words below 2³²."""
    return _philox_key(DROPOUT_TAG, data_seed, seat)


def sample_key(data_seed: Digest, seat: SeatIndex) -> tuple[int, int]:
    """The Philox key of the tokens that a seat samples in a round: two words below 2³²."""
    return _philox_key(SAMPLE_TAG, data_seed, seat)


def _philox_key(tag: str, data_seed: Digest, seat: SeatIndex) -> tuple[int, int]:
    stream = DrawStream(tag, seat_key(data_seed, seat))
    return stream.draw(1 << 32), stream.draw(1 << 32)
