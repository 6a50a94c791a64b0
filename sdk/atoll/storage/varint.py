"""Unsigned LEB128 integers, as multiformats, protobuf and CAR use them."""

from __future__ import annotations

MAX_VARINT_BYTES = 9  # multiformats' unsigned-varint: at most 63 bits


def encode_varint(value: int) -> bytes:
    """Encodes a non-negative integer of at most 63 bits in its shortest form."""
    if not 0 <= value < 1 << 63:
        raise ValueError(f"varint out of range: {value}")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(data: bytes | memoryview, offset: int = 0) -> tuple[int, int]:
    """Decodes the integer at `offset`; returns it and the offset after it.

    Raises:
        ValueError: truncated, longer than nine bytes, or not the shortest form.
    """
    value = 0
    for length in range(MAX_VARINT_BYTES):
        if offset + length >= len(data):
            raise ValueError("truncated varint")
        byte = data[offset + length]
        value |= (byte & 0x7F) << (7 * length)
        if byte < 0x80:
            if byte == 0 and length > 0:
                raise ValueError("varint is not in its shortest form")
            return value, offset + length + 1
    raise ValueError("varint longer than nine bytes")
