"""Dense codecs below eight bits, on the same shared grid as the int8 one.

- int4: −7 … 7 steps, rounded half to even, stateless; 0.5 bytes a parameter.
- 2 bits: ±1 or ±3 steps, to be used with error feedback (`feedback`); 0.25 bytes.
- sign: ±1 step, to be used with error feedback; 0.125 bytes.

All decode to an int8 vector in grid steps, so every rule of this package takes them. The body is
the codes in coordinate order, packed (`packing`); it follows the common header.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from atoll.aggregate.grid import (
    Int8Vector,
    Rounding,
    as_tensors,
    quantise,
    to_nearest,
    to_odd,
)
from atoll.aggregate.header import CodecId, body_of, header, header_length
from atoll.aggregate.layout import Layout
from atoll.aggregate.packing import pack, packed_length, unpack
from atoll.errors import MalformedUpdate

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DenseCodec:
    """One dense codec; `GRID4`, `TWO_BIT` and `SIGN` are the three there are.

    A value v is written as the code (v − lowest) / spacing, of `width` bits.
    """

    codec: CodecId
    width: int
    lowest: int
    highest: int
    spacing: int
    rounding: Rounding

    def encoded_length(self, layout: Layout) -> int:
        """Bytes of any update of this layout."""
        return header_length(layout) + packed_length(layout.total, self.width)

    def encode(self, delta: Mapping[str, Tensor], exponents: Mapping[str, int]) -> bytes:
        """The canonical bytes of an update.

        Raises:
            NonFiniteDeltaError: a value is NaN or infinite.
            ConfigError: exponents out of range or not of these tensors.
        """
        layout = Layout.of_tensors(delta)
        head = header(self.codec, layout, exponents)
        values = np.empty(layout.total, dtype=np.int8)
        quantise(delta, exponents, self.rounding, values)
        values -= self.lowest
        codes = values.view(np.uint8)
        if self.spacing == 2:
            codes >>= 1
        return head + pack(codes, self.width)

    def decode_flat(self, data: bytes, layout: Layout, exponents: Mapping[str, int]) -> Int8Vector:
        """The values in grid steps, flat in layout order.

        Raises:
            MalformedUpdate: not the canonical encoding of this layout and these exponents.
        """
        head = header(self.codec, layout, exponents)
        body = body_of(data, head, packed_length(layout.total, self.width))
        codes = unpack(body, layout.total, self.width)
        highest_code = (self.highest - self.lowest) // self.spacing
        if highest_code + 1 < 1 << self.width and codes.size and codes.max() > highest_code:
            raise MalformedUpdate(f"a code above {highest_code} is not on the grid")
        values = codes.view(np.int8)
        values *= self.spacing
        values += self.lowest
        return values

    def decode(
        self, data: bytes, layout: Layout, exponents: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """The update as fp32 tensors.

        Raises:
            MalformedUpdate: as `decode_flat`.
        """
        return as_tensors(self.decode_flat(data, layout, exponents), layout, exponents)


GRID4 = DenseCodec(CodecId.GRID4, 4, -7, 7, 1, to_nearest(7))
TWO_BIT = DenseCodec(CodecId.TWO_BIT, 2, -3, 3, 2, to_odd(2))
SIGN = DenseCodec(CodecId.SIGN, 1, -1, 1, 2, to_odd(1))
