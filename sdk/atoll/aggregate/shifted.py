"""Two-bit and sign updates whose blocks of 64 choose their own scale: used with error feedback.

- 2 bits: ±1 or ±3 times 2^shift grid steps; 0.258 bytes a parameter.
- sign: ±1 times 2^shift grid steps; 0.133 bytes.

So few levels are only worth their bytes at the right scale, and that is another one for every row
of a matrix and in every round: a falling learning rate outruns a grid that moves by a factor of two
a round, and what then saturates piles up in the feedback. The shift, 0 to 5, is in the bytes,
relative to the shared grid, so that updates still are integers below 128 that every rule takes.

Blocks are of the flat vector in layout order, the last one shorter. A block's shift is the smallest
at which at most a share of its values saturate (`Levels`), or 5. Body: the shifts, 4 bits each,
then the codes, both in coordinate order and packed (`packing`). Shifted values of different shifts
are different integers, so one vector has one encoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from atoll.aggregate.grid import Float32Vector, Int8Vector, as_tensors, scale, to_odd
from atoll.aggregate.header import CodecId, body_of, header, header_length
from atoll.aggregate.layout import Layout
from atoll.aggregate.packing import pack, packed_length, unpack
from atoll.errors import MalformedUpdate

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 64
MAX_SHIFT = 5
"""3 · 2^5 is the largest value of an update, which a byte holds."""
SHIFT_BITS = 4
_BLOCKS_AT_ONCE = 1 << 10
Shifts = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Levels:
    """The values ±1 … ±(2·levels − 1), and how often a block may exceed their reach, 2·levels.

    Attributes:
        share: one value in so many may exceed the reach. The squared error of a normal and of a
            Laplace distribution alike is least where 1/20 do at two bits, and 1/8 with a sign;
            a scale that moves by factors of two is within √2 of that.
    """

    levels: int
    share: int

    @property
    def width(self) -> int:
        """Bits of a code."""
        return (2 * self.levels - 1).bit_length()

    def shifts(self, scaled: Float32Vector, block: int) -> Shifts:
        """The shift of every `block` values of a vector in grid steps."""
        whole = len(scaled) // block
        found = [self._shifts(scaled[: whole * block].reshape(whole, block))]
        if whole * block < len(scaled):
            found.append(self._shifts(scaled[whole * block :].reshape(1, -1)))
        return np.concatenate(found)

    def _shifts(self, rows: Float32Vector) -> Shifts:
        shifts = np.zeros(len(rows), dtype=np.uint8)
        allowed = rows.shape[1] // self.share
        for at in range(0, len(rows), _BLOCKS_AT_ONCE):
            magnitudes = np.abs(rows[at : at + _BLOCKS_AT_ONCE])
            for shift in range(MAX_SHIFT):
                reach = np.float32(2 * self.levels << shift)
                exceed = np.count_nonzero(magnitudes > reach, axis=1)
                shifts[at : at + _BLOCKS_AT_ONCE] += exceed > allowed
        return shifts

    def codes(self, scaled: Float32Vector, shifts: Shifts, block: int) -> Shifts:
        """The codes of the values, each divided by its block's 2^shift; overwrites `scaled`."""
        scaled *= np.exp2(-shifts.astype(np.float32)).repeat(block)[: len(scaled)]
        values = to_odd(self.levels)(scaled).astype(np.int8)
        values += np.int8(2 * self.levels - 1)
        return values.view(np.uint8) >> np.uint8(1)

    def values(self, codes: Shifts, shifts: Shifts, block: int) -> Int8Vector:
        """What codes and shifts say, in grid steps; overwrites `codes`."""
        values = codes.view(np.int8)
        values *= 2
        values -= np.int8(2 * self.levels - 1)
        values <<= shifts.view(np.int8).repeat(block)[: len(values)]
        return values


def unpack_shifts(data: memoryview, count: int) -> Shifts:
    """The shifts in exactly `packed_length(count, SHIFT_BITS)` bytes.

    Raises:
        MalformedUpdate: a shift above 5, or bits after the last that are set.
    """
    shifts = unpack(data, count, SHIFT_BITS)
    if count and shifts.max() > MAX_SHIFT:
        raise MalformedUpdate(f"a block's shift is above {MAX_SHIFT}")
    return shifts


@dataclass(frozen=True)
class ShiftedCodec:
    """One codec of shifted blocks; `TWO_BIT` and `SIGN` are the two there are."""

    codec: CodecId
    levels: Levels

    def encoded_length(self, layout: Layout) -> int:
        """Bytes of any update of this layout."""
        return header_length(layout) + sum(self._lengths(layout))

    def encode(self, delta: Mapping[str, Tensor], exponents: Mapping[str, int]) -> bytes:
        """The canonical bytes of an update.

        Raises:
            NonFiniteDeltaError: a value is NaN or infinite.
            ConfigError: exponents out of range or not of these tensors.
        """
        head = header(self.codec, Layout.of_tensors(delta), exponents)
        scaled = scale(delta, exponents)
        shifts = self.levels.shifts(scaled, BLOCK)
        codes = self.levels.codes(scaled, shifts, BLOCK)
        return head + pack(shifts, SHIFT_BITS) + pack(codes, self.levels.width)

    def decode_flat(self, data: bytes, layout: Layout, exponents: Mapping[str, int]) -> Int8Vector:
        """The values in grid steps, flat in layout order.

        Raises:
            MalformedUpdate: not the canonical encoding of this layout and these exponents.
        """
        head, lengths = header(self.codec, layout, exponents), self._lengths(layout)
        body = body_of(data, head, sum(lengths))
        shifts = unpack_shifts(body[: lengths[0]], _blocks(layout.total))
        codes = unpack(body[lengths[0] :], layout.total, self.levels.width)
        return self.levels.values(codes, shifts, BLOCK)

    def decode(
        self, data: bytes, layout: Layout, exponents: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """The update as fp32 tensors.

        Raises:
            MalformedUpdate: as `decode_flat`.
        """
        return as_tensors(self.decode_flat(data, layout, exponents), layout, exponents)

    def _lengths(self, layout: Layout) -> tuple[int, int]:
        shifts = packed_length(_blocks(layout.total), SHIFT_BITS)
        return shifts, packed_length(layout.total, self.levels.width)


def _blocks(total: int) -> int:
    return -(-total // BLOCK)


TWO_BIT_LEVELS = Levels(2, 8)
SIGN_LEVELS = Levels(1, 4)
TWO_BIT = ShiftedCodec(CodecId.TWO_BIT, TWO_BIT_LEVELS)
SIGN = ShiftedCodec(CodecId.SIGN, SIGN_LEVELS)
