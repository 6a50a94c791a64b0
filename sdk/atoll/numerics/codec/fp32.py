"""Uncompressed updates, the reference that codecs are compared with.

Body: the fp32 values little-endian in coordinate order. They are merged by their mean, in integers
of 2^-40, which is what every exponent of such a job is; no robust rule and no outlier score takes
them, since squares of such integers would not fit 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from atoll.errors import MalformedUpdate
from atoll.numerics.codec.grid_rounding import Float32Vector
from atoll.numerics.codec.header import body_of, header
from atoll.numerics.codec.update_codec import Exponents, UpdateCodec, pieces
from atoll.numerics.codec.vector_layout import Layout
from atoll.protocol.codecs import CODECS

if TYPE_CHECKING:
    from torch import Tensor


UNIT_BITS = 40
LIMIT = 1 << 47
"""128 in units of 2^-40: larger values are clamped when they are merged."""
Int64Vector = npt.NDArray[np.int64]


class Fp32Body:
    """The values themselves."""

    codec = CODECS["fp32"].number

    def sections(self, length: int) -> tuple[int, ...]:
        """Four bytes a value."""
        return (4 * length,)

    def encode(self, values: Float32Vector, _piece: int) -> bytes:
        """As `Body.encode`; minus zero is written as zero."""
        values += np.float32(0)
        return values.astype("<f4").tobytes()

    def decode(self, body: memoryview, _length: int, _start: int) -> Int64Vector:
        """As `Body.decode`: units of 2^-40, rounded half to even and clamped to ±128."""
        units = np.rint(_values(body).astype(np.float64) * 2.0**UNIT_BITS)
        return np.clip(units, -LIMIT, LIMIT).astype(np.int64)


class Fp32Codec(UpdateCodec):
    """No codec at all; `FP32` is the one there is."""

    def __init__(self) -> None:
        super().__init__(Fp32Body())

    def decode(self, data: bytes, layout: Layout, exponents: Exponents) -> dict[str, Tensor]:
        """The fp32 tensors by name.

        Raises:
            MalformedUpdate: not canonical, or a value is not finite.
        """
        head = header(Fp32Body.codec, layout, exponents)
        values = _values(body_of(data, head, 4 * layout.total))
        return {
            name: torch.from_numpy(values[span].copy()).reshape(shape)
            for name, shape, span in layout.spans()
        }

    def _pieces(self, delta: Mapping[str, Tensor], exponents: Exponents) -> Iterator[Float32Vector]:
        return pieces(delta, dict.fromkeys(exponents, 0))


FP32 = Fp32Codec()


def _values(body: memoryview) -> npt.NDArray[np.float32]:
    values = np.frombuffer(body, dtype="<f4").astype(np.float32)
    if not np.isfinite(values).all():
        raise MalformedUpdate("a value is not finite")
    if np.signbit(values[values == 0]).any():
        raise MalformedUpdate("minus zero is not canonical")
    return values
