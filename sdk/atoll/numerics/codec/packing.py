"""Small unsigned codes packed into bytes, the first code in the lowest bits.

The last byte is filled with zero bits, and a reader refuses any other filling: one sequence of
codes has one encoding.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from atoll.errors import MalformedUpdate

Codes = npt.NDArray[np.uint8]


def packed_length(count: int, width: int) -> int:
    """Bytes of `count` codes of `width` bits (1, 2 or 4)."""
    return -(-count * width // 8)


def pack(codes: Codes, width: int) -> bytes:
    """Codes below 2^width, `width` being 1, 2 or 4, as packed bytes."""
    per_byte = 8 // width
    padded = codes
    if len(codes) % per_byte:
        padded = np.concatenate([codes, np.zeros(-len(codes) % per_byte, dtype=np.uint8)])
    lanes = padded.reshape(-1, per_byte)
    packed = lanes[:, 0].copy()
    for lane in range(1, per_byte):
        packed |= lanes[:, lane] << np.uint8(lane * width)
    return packed.tobytes()


def unpack(data: memoryview | bytes, count: int, width: int) -> Codes:
    """The `count` codes in exactly `packed_length(count, width)` bytes.

    Raises:
        MalformedUpdate: bits after the last code are set.
    """
    packed = np.frombuffer(data, dtype=np.uint8)
    every = _codes_of_bytes(width).take(packed, mode="wrap").view(np.uint8)
    if every[count:].any():
        raise MalformedUpdate("bits after the last value are set")
    return every[:count]


@cache
def _codes_of_bytes(width: int) -> npt.NDArray[np.unsignedinteger]:
    """Shape [256]: the codes in each byte, side by side in one integer of as many bytes."""
    per_byte = 8 // width
    lanes = np.arange(256, dtype=np.uint8)[:, None] >> np.arange(0, 8, width, dtype=np.uint8)
    codes = np.ascontiguousarray(lanes & np.uint8((1 << width) - 1))
    return codes.view(f"u{per_byte}").reshape(256)
