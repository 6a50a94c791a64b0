"""DeMo's update: the largest coefficients of a blockwise cosine transform, two bits each.

The flat vector, rounded to 1/256 of a grid step and clamped to ±2047 steps, goes through an integer
DCT-II in blocks of 64 (the last one filled with zeros); its coefficients are sent as `sparse` sends
coordinates. The transform's matrix is the orthonormal one in units of 2^-14, rounded, so forward
and inverse are exact integers on every machine. Updates are merged as coefficients
(`contributors`) and transformed back once (Peng et al. 2024, arXiv:2411.19870).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from atoll.aggregate.contributors import DENOMINATOR
from atoll.aggregate.grid import Float32Vector, Int8Vector, as_tensors, scale
from atoll.aggregate.header import CodecId, body_of, header, header_length
from atoll.aggregate.layout import Layout
from atoll.aggregate.sparse import body_length, decode_body, encode_body

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 64
LIMIT = 2047
FINENESS = 256
"""Parts of a grid step that coordinates are rounded to; what is sent are whole steps."""
MATRIX_UNIT = 1 << 14

Int64Vector = npt.NDArray[np.int64]


@lru_cache(maxsize=1)
def matrix() -> npt.NDArray[np.float64]:
    """(64, 64): row k is the k-th cosine, in integers of 2^-14.

    The cosines come from the first quadrant, and none is within 2^-30 of a rounding boundary, so
    that the last bit of a platform's cosine does not matter.
    """
    rows = []
    for k in range(BLOCK):
        amplitude = math.sqrt((1 if k == 0 else 2) / BLOCK) * MATRIX_UNIT
        angles = [(2 * i + 1) * k % (4 * BLOCK) for i in range(BLOCK)]
        rows.append([round(amplitude * math.cos(math.pi * a / (2 * BLOCK))) for a in angles])
    return np.array(rows, dtype=np.float64)


def coefficients_of(length: int) -> int:
    """Coefficients of a vector: its length filled up to whole blocks."""
    return -(-length // BLOCK) * BLOCK


def forward(scaled: Float32Vector) -> Float32Vector:
    """The coefficients, in grid steps, of a vector in grid steps."""
    padded = np.zeros(coefficients_of(len(scaled)), dtype=np.float64)
    padded[: len(scaled)] = np.rint(np.clip(scaled, -LIMIT, LIMIT) * np.float32(FINENESS))
    # Integers below 2^39 throughout, which fp64 adds exactly in any order.
    products = padded.reshape(-1, BLOCK) @ matrix().T
    return (products.reshape(-1) / (MATRIX_UNIT * FINENESS)).astype(np.float32)


def inverse(coefficients: npt.NDArray[Any], length: int) -> Int64Vector:
    """The vector, in the coefficients' own unit, of integer coefficients below 2^24; halves up."""
    blocks = coefficients.astype(np.float64).reshape(-1, BLOCK)
    products = (blocks @ matrix()).astype(np.int64).reshape(-1)[:length]
    return (2 * products + MATRIX_UNIT) // (2 * MATRIX_UNIT)


def merged_coordinates(numerators: npt.NDArray[Any], length: int) -> Int64Vector:
    """Merged coefficients as coordinates, both over `contributors.DENOMINATOR`; clamped to ±127.

    Honest updates are far from that: it bounds what coefficients of one block can add up to.
    """
    limit = 127 * DENOMINATOR
    return inverse(numerators, length).clip(-limit, limit)


class DctCodec:
    """Top-k coefficients at two bits; `DCT_SPARSE` is the one there is."""

    _DECODE_BITS = 8

    def encoded_length(self, layout: Layout) -> int:
        """Bytes of any update of this layout."""
        return header_length(layout) + body_length(coefficients_of(layout.total))

    def encode(self, delta: Mapping[str, Tensor], exponents: Mapping[str, int]) -> bytes:
        """The canonical bytes of an update.

        Raises:
            NonFiniteDeltaError: a value is NaN or infinite.
            ConfigError: exponents out of range or not of these tensors.
        """
        head = header(CodecId.DCT_SPARSE, Layout.of_tensors(delta), exponents)
        return head + encode_body(forward(scale(delta, exponents)))

    def decode_coefficients(
        self, data: bytes, layout: Layout, exponents: Mapping[str, int]
    ) -> Int8Vector:
        """The coefficients in grid steps, 0 where nothing was sent: what is merged.

        Raises:
            MalformedUpdate: not the canonical encoding of this layout and these exponents.
        """
        head = header(CodecId.DCT_SPARSE, layout, exponents)
        count = coefficients_of(layout.total)
        return decode_body(body_of(data, head, body_length(count)), count)

    def decode(
        self, data: bytes, layout: Layout, exponents: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """The update as fp32 tensors, to 1/256 of a grid step.

        Raises:
            MalformedUpdate: as `decode_coefficients`.
        """
        coefficients = self.decode_coefficients(data, layout, exponents).astype(np.int32)
        values = inverse(coefficients << self._DECODE_BITS, layout.total)
        finer = {name: exponent - self._DECODE_BITS for name, exponent in exponents.items()}
        return as_tensors(values, layout, finer)


DCT_SPARSE = DctCodec()
