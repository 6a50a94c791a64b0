"""The factored second moments in an update: exact, so that no order of adding matters.

    magic "ATSM" ‖ version u8 ‖ 0 ‖ tensors u16 ‖ layout digest 32 ‖ sums, fp32 little-endian

In order of name: of a matrix the sum of each row, then of each column; of a vector its elements.
Elements are rounded to integers, in steps of 2^(E − 39) where the tensor's largest has exponent E;
integers are added, and their sum is rounded to binary64 and then to fp32: SPEC-MERGE.md, 2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from atoll.errors import MalformedUpdate
from atoll.numerics.codec.grid_rounding import Float32Vector, check_finite, flat
from atoll.numerics.codec.header import check_header, check_length
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.pieces import ByteSlices

if TYPE_CHECKING:
    from torch import Tensor

MAGIC: Final = b"ATSM"
VERSION: Final = 1
GRID_BITS: Final = 39
"""Integers are at most 2^40, so that an int64 holds the sum of 2^23 of them."""
_FLOOR: Final = np.float32(2.0**-80)
"""Tensors without larger elements are summed on the grid of one whose largest this is."""
_FIXED: Final = struct.Struct(">4sBBH32s")
_AT_ONCE: Final = 1 << 16
"""Elements that are rounded at once, so that they stay in a core's cache."""
INFINITY: Final = 0x7F800000
Float32Array = npt.NDArray[np.float32]
Int64Vector = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
"""Sums as the bits of their fp32, whose order is that of the numbers."""


class FactoredLayout:
    """Where the sums of each tensor lie in the flat vector of all.

    Args:
        layout: of the parameters that have a second moment.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._places = list(accumulate((sum(shape) for shape in layout.shapes), initial=0))

    @property
    def total(self) -> int:
        """Sums of all tensors."""
        return self._places[-1]

    @property
    def encoded_length(self) -> int:
        """Bytes of any section of this layout."""
        return _FIXED.size + 4 * self.total

    @property
    def header(self) -> bytes:
        """The only one that a section of this layout may have."""
        return _FIXED.pack(MAGIC, VERSION, 0, len(self.layout.names), self.layout.digest)

    def spans(self) -> Iterator[tuple[str, tuple[int, ...], slice]]:
        """(name, the parameter's shape, where its sums lie) of every tensor, in order."""
        spans = (slice(*pair) for pair in pairwise(self._places))
        return zip(self.layout.names, self.layout.shapes, spans, strict=True)

    def groups(self) -> Iterator[slice]:
        """Where numbers of one kind lie: a matrix's rows, its columns, a vector's elements."""
        for _, shape, span in self.spans():
            ends = accumulate(shape, initial=span.start)
            yield from (slice(*pair) for pair in pairwise(ends))


def encode_factored(seconds: Mapping[str, Tensor]) -> bytes:
    """The section of these second moments.

    Raises:
        NonFiniteDeltaError: a moment or a sum is not finite.
    """
    positions = FactoredLayout(Layout.of_tensors(seconds))
    parts = [positions.header]
    for name in positions.layout.names:
        values = flat(seconds[name]).reshape(seconds[name].shape)
        largest = np.maximum(values.max(), -values.min())  # no moment is negative but a forged one
        check_finite(name, largest[None])
        sums = _sums_of(values, _exponent_of(largest))
        check_finite(name, sums)
        parts.append(sums.astype("<f4").tobytes())
    return b"".join(parts)


class FactoredMoments:
    """A section's sums, read where they are asked for, so that none are held.

    Raises:
        MalformedUpdate: not the canonical bytes of a section of this layout.
    """

    def __init__(self, data: ByteSlices, positions: FactoredLayout) -> None:
        head = positions.header
        check_length(len(data), positions.encoded_length)
        check_header(data[: len(head)], head)
        self._data, self._begin, self._total = data, len(head), positions.total
        for at in range(0, self._total, _AT_ONCE):
            if (self[at : at + _AT_ONCE] >= INFINITY).any():  # the sign is the highest bit
                raise MalformedUpdate("a sum is negative or not finite")

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, span: slice, /) -> Words:
        start, stop, _ = span.indices(self._total)
        data = self._data[self._begin + 4 * start : self._begin + 4 * stop]
        return np.frombuffer(data, dtype="<u4")


def exact_sum(values: Float32Vector) -> float:
    """The sum of fp32 numbers as an fp32 one; the order cannot matter."""
    exponent = _exponent_of(np.abs(values).max(initial=np.float32(0)))
    parts = (values[at : at + _AT_ONCE] for at in range(0, len(values), _AT_ONCE))
    total = sum(int(_integers(part.copy(), exponent).sum()) for part in parts)
    return float(_narrowed(np.array([total]), exponent)[0])


def _sums_of(values: Float32Array, exponent: int) -> Float32Vector:
    """Of a matrix its row sums and column sums, of a vector the elements."""
    if values.ndim == 1:
        return values
    rows, columns = values.shape
    by_row, by_column = np.empty(rows, dtype=np.int64), np.zeros(columns, dtype=np.int64)
    size = max(1, _AT_ONCE // columns)
    for at in range(0, rows, size):
        whole = _integers(values[at : at + size].copy(), exponent)
        whole.sum(axis=1, out=by_row[at : at + size])
        by_column += whole.sum(axis=0)
    return _narrowed(np.concatenate([by_row, by_column]), exponent)


def _exponent_of(largest: np.float32) -> int:
    """E of the largest magnitude, f · 2^E with 1 ≤ f < 2; of the floor where that is larger."""
    return int(np.frexp(np.maximum(largest, _FLOOR))[1]) - 1


def _integers(values: Float32Array, exponent: int) -> npt.NDArray[np.int64]:
    """Numbers in steps of 2^(exponent − 39), half to even; overwrites them.

    The product is exact but where it is subnormal, which rounds to zero either way.
    """
    values *= np.float32(2.0 ** (GRID_BITS - exponent))
    np.rint(values, out=values)
    return values.astype(np.int64)


def _narrowed(sums: Int64Vector, exponent: int) -> Float32Vector:
    """Sums of integers as fp32: rounded to binary64, times the step, rounded."""
    with np.errstate(over="ignore", under="ignore"):
        return (sums.astype(np.float64) * 2.0 ** (exponent - GRID_BITS)).astype(np.float32)
