"""The default update codec: int8 on a shared power-of-two grid.

An update is `delta = global − last`, per coordinate rounded half to even to a multiple of
2^exponent and clamped to ±127. The exponents, one a tensor, are the round's and the same for
everyone, so a provider keeps no private state, NaN and infinity cannot be written down, and
saturation is a clip per coordinate.

Bytes, big-endian, nothing optional and nothing after them:

    magic "ATUP" ‖ version u8 ‖ codec u8 ‖ tensors u16 ‖ layout digest 32 ‖
    exponent i16 per tensor ‖ value i8 per coordinate (never −128)

tensors in `Layout` order. The length follows from the layout alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from atoll.aggregate.grid import (
    Int8Vector,
    NonFiniteDeltaError,
    as_tensors,
    quantise,
    to_nearest,
)
from atoll.aggregate.header import CodecId, body_of, header, header_length
from atoll.aggregate.layout import Layout
from atoll.errors import MalformedUpdate

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LIMIT", "NonFiniteDeltaError", "decode", "decode_flat", "encode", "encoded_length"]

LIMIT = 127
"""Largest magnitude on the grid."""


def encoded_length(layout: Layout) -> int:
    """Bytes of any update of this layout."""
    return header_length(layout) + layout.total


def encode(delta: Mapping[str, Tensor], exponents: Mapping[str, int]) -> bytes:
    """The canonical bytes of an update.

    Args:
        delta: fp32 tensors by name, `global − last`; any device.
        exponents: the round's grid exponent of each tensor.

    Raises:
        NonFiniteDeltaError: a value is NaN or infinite.
        ConfigError: exponents out of range or not of these tensors.
    """
    layout = Layout.of_tensors(delta)
    head = header(CodecId.GRID8, layout, exponents)
    data = bytearray(len(head) + layout.total)
    data[: len(head)] = head
    body = np.frombuffer(data, dtype=np.int8, offset=len(head))
    quantise(delta, exponents, to_nearest(LIMIT), body)
    return bytes(data)


def decode_flat(data: bytes, layout: Layout, exponents: Mapping[str, int]) -> Int8Vector:
    """The grid integers as one read-only vector over `data`, without a copy.

    Raises:
        MalformedUpdate: not the canonical encoding of this layout and these exponents.
    """
    head = header(CodecId.GRID8, layout, exponents)
    values = np.frombuffer(body_of(data, head, layout.total), dtype=np.int8)
    if values.size and int(values.min()) < -LIMIT:
        raise MalformedUpdate("a value of −128 is not on the grid")
    return values


def decode(data: bytes, layout: Layout, exponents: Mapping[str, int]) -> dict[str, Tensor]:
    """The update as fp32 tensors.

    Raises:
        MalformedUpdate: as `decode_flat`.
    """
    return as_tensors(decode_flat(data, layout, exponents), layout, exponents)
