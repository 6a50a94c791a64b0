"""The header that every update codec shares.

    magic "ATUP" ‖ version u8 ‖ codec u8 ‖ tensors u16 ‖ layout digest 32 ‖ exponent i16 per tensor

The reader knows codec, layout and exponents already (from the manifest and the global state), so
it builds the one header it accepts and compares bytes: nothing a sender wrote is ever parsed into
a size.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from atoll.errors import ConfigError, MalformedUpdate
from atoll.numerics.codec.vector_layout import Layout

MAGIC = b"ATUP"
VERSION = 1
EXPONENT_RANGE = range(-64, 65)
"""Within it a grid step and its inverse are normal fp32 numbers."""

_FIXED = struct.Struct(">4sBBH32s")


def header_length(layout: Layout) -> int:
    """Bytes before the body."""
    return _FIXED.size + 2 * len(layout.names)


def header(codec: int, layout: Layout, exponents: Mapping[str, int]) -> bytes:
    """The only header an update of this round may have.

    Raises:
        ConfigError: exponents that are out of range or do not name exactly the layout's tensors.
    """
    if exponents.keys() != set(layout.names):
        raise ConfigError("the grid exponents do not name exactly the model's tensors")
    ordered = [exponents[name] for name in layout.names]
    if any(exponent not in EXPONENT_RANGE for exponent in ordered):
        raise ConfigError(f"a grid exponent is outside {EXPONENT_RANGE}: {ordered}")
    return fixed_header(codec, layout) + struct.pack(f">{len(ordered)}h", *ordered)


def fixed_header(codec: int, layout: Layout) -> bytes:
    """The header but for its exponents."""
    return _FIXED.pack(MAGIC, VERSION, codec, len(layout.names), layout.digest)


def body_of(data: bytes, expected_header: bytes, body_length: int) -> memoryview:
    """The body of `data`, after checking length and header.

    Raises:
        MalformedUpdate: another length, or a header that differs; the message says where.
    """
    check_length(len(data), len(expected_header) + body_length)
    view = memoryview(data)
    check_header(bytes(view[: len(expected_header)]), expected_header)
    return view[len(expected_header) :]


def check_length(given: int, expected: int) -> None:
    """Raises MalformedUpdate unless an update has as many bytes as its layout asks for."""
    if given != expected:
        raise MalformedUpdate(f"the update has {given} bytes where the layout asks {expected}")


def check_header(given: bytes, expected: bytes) -> None:
    """Raises MalformedUpdate, saying where, unless a header is the expected one."""
    if given != expected:
        raise MalformedUpdate(_where_differs(given, expected))


def _where_differs(given: bytes, expected: bytes) -> str:
    at = next(i for i, pair in enumerate(zip(given, expected, strict=True)) if pair[0] != pair[1])
    fields = ((4, "magic"), (5, "version"), (6, "codec"), (8, "tensor count"), (40, "layout"))
    field = next((name for end, name in fields if at < end), "grid exponents")
    return f"the update's {field} is not the one of this round (byte {at})"
