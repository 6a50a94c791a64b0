"""DeMo's update: the largest coefficients of a blockwise cosine transform, two bits each.

The flat vector, rounded to 1/256 of a grid step and clamped to ±2047 steps, goes through an integer
DCT-II in blocks of 64 (the last one filled with zeros); its coefficients are sent as `sparse` sends
coordinates. The transform's matrix is the orthonormal one in units of 2^-14, rounded, so forward
and inverse are exact integers on every machine. Updates are merged as coefficients
(`contributors`) and transformed back once (Peng et al. 2024, arXiv:2411.19870).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from atoll.numerics.codec.grid_rounding import Float32Vector, Int8Vector, as_tensors
from atoll.numerics.codec.sparse import decode_body, encode_body, section_lengths
from atoll.numerics.codec.update_codec import Exponents, UpdateCodec
from atoll.numerics.codec.vector_layout import Layout
from atoll.protocol.codecs import CODECS

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 64
LIMIT = 2047
"""Grid steps that coordinates are clamped to, so that the transform's sums stay far below 2^53."""
FINE_BITS = 8
FINENESS = 1 << FINE_BITS
"""Parts of a grid step that coordinates are rounded to; what is sent are whole steps."""
MATRIX_UNIT = 1 << 14

_AT_ONCE = BLOCK << 14
"""Coordinates that are transformed at once: each takes forty bytes meanwhile."""
Int32Vector = npt.NDArray[np.int32]
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
    """The coefficients, in grid steps and never −0, of a vector in grid steps; NaN counts as 0."""
    out = np.empty(coefficients_of(len(scaled)), dtype=np.float32)
    for values, blocks in _parts(len(scaled)):
        out[blocks] = _coefficients(scaled[values])
    return out


def _coefficients(scaled: Float32Vector) -> npt.NDArray[np.float64]:
    padded = np.zeros(coefficients_of(len(scaled)), dtype=np.float64)
    clamped = np.nan_to_num(np.clip(scaled, -LIMIT, LIMIT))
    padded[: len(scaled)] = np.rint(clamped * np.float32(FINENESS))
    # Integers below 2^37 throughout, which fp64 adds exactly in any order; a sum of −0 is made +0.
    products = padded.reshape(-1, BLOCK) @ matrix().T + 0.0
    return products.reshape(-1) / (MATRIX_UNIT * FINENESS)


def inverse(coefficients: npt.NDArray[Any], length: int) -> Int64Vector:
    """The vector, in the coefficients' own unit, of integer coefficients below 2^24; halves up."""
    # Sums are below 2^42.
    blocks = coefficients.astype(np.float64).reshape(-1, BLOCK)
    products = (blocks @ matrix()).astype(np.int64).reshape(-1)[:length]
    return (2 * products + MATRIX_UNIT) // (2 * MATRIX_UNIT)


def said_coordinates(coefficients: Int8Vector, length: int) -> Int32Vector:
    """The vector that coefficients in grid steps say, in 1/256 of a step: below 2^19."""
    out = np.empty(length, dtype=np.int32)
    for values, blocks in _parts(length):
        fine = coefficients[blocks].astype(np.int32) << FINE_BITS
        out[values] = inverse(fine, values.stop - values.start)
    return out


def merged_coordinates(numerators: npt.NDArray[Any], denominator: int, length: int) -> Int32Vector:
    """Merged coefficients as coordinates, both over `denominator`; clamped to ±127.

    Honest updates are far from that: it bounds what coefficients of one block can add up to.
    """
    limit, out = 127 * denominator, np.empty(length, dtype=np.int32)
    for values, blocks in _parts(length):
        part = inverse(numerators[blocks], values.stop - values.start)
        out[values] = part.clip(-limit, limit)
    return out


def _parts(length: int) -> Iterator[tuple[slice, slice]]:
    """Of a vector the values that are transformed at once, and where their coefficients are."""
    for at in range(0, length, _AT_ONCE):
        count = min(_AT_ONCE, length - at)
        yield slice(at, at + count), slice(at, at + coefficients_of(count))


class DctBody:
    """Top-k coefficients at two bits; what is merged are coefficients."""

    codec = CODECS["dct"].number

    def sections(self, length: int) -> tuple[int, ...]:
        """As `sparse` has them, of the coefficients."""
        return section_lengths(coefficients_of(length))

    def encode(self, scaled: Float32Vector, _piece: int) -> bytes:
        """As `Body.encode`."""
        return encode_body(forward(scaled))

    def decode(self, body: memoryview, length: int, _start: int) -> Int8Vector:
        """As `Body.decode`: coefficients in grid steps, 0 where nothing was sent."""
        return decode_body(body, coefficients_of(length))


class DctCodec(UpdateCodec):
    """DeMo's codec; `DCT_SPARSE` is the one there is."""

    def __init__(self) -> None:
        super().__init__(DctBody())

    def decode(self, data: bytes, layout: Layout, exponents: Exponents) -> dict[str, Tensor]:
        """The update as fp32 tensors, to 1/256 of a grid step.

        Raises:
            MalformedUpdate: as `decode_flat`.
        """
        values = said_coordinates(self.decode_flat(data, layout, exponents), layout.total)
        finer = {name: exponent - FINE_BITS for name, exponent in exponents.items()}
        return as_tensors(values, layout, finer)


DCT_SPARSE = DctCodec()
