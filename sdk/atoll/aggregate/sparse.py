"""SparseLoCo's update: the largest coordinates of every chunk, two bits each, packed indices.

The flat vector, in grid steps, is cut into chunks of 4096; of each the 128 largest magnitudes are
kept (of a shorter last chunk 1/32, rounded up), ties to the lower index. A kept value is ±1 or ±3
steps. 14 bits for one coordinate in 32: 0.055 bytes a parameter. Used with error feedback
(Sarfi et al. 2025, arXiv:2508.15706).

Body: every kept index within its chunk, 12 bits each, ascending within a chunk, chunks in order;
then the 2-bit codes of the values in the same order; each part filled up with zero bits.
"""

from __future__ import annotations

from collections.abc import Mapping
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

CHUNK = 4096
KEPT = 128
_INDEX_BITS = 12
_ROUND = to_odd(2)

Indices = npt.NDArray[np.int64]


def kept_of(length: int) -> int:
    """Coordinates kept of a vector: 128 of each 4096, and 1/32 of the rest, rounded up."""
    whole, rest = divmod(length, CHUNK)
    return whole * KEPT + -(-rest * KEPT // CHUNK)


def body_length(length: int) -> int:
    """Bytes of the body for a vector of that length."""
    kept = kept_of(length)
    return -(-kept * _INDEX_BITS // 8) + packed_length(kept, 2)


def encode_body(scaled: Float32Vector) -> bytes:
    """The body for a vector in grid steps."""
    chosen = _largest(np.abs(scaled))
    values = _ROUND(scaled[chosen]).astype(np.int8)
    codes = ((values + 3) // 2).astype(np.uint8)
    return _pack_indices(chosen % CHUNK) + pack(codes, 2)


def decode_body(body: memoryview, length: int) -> Int8Vector:
    """The vector of ±1, ±3 and, where nothing was sent, 0.

    Raises:
        MalformedUpdate: indices that do not ascend or lie outside, or filling bits that are set.
    """
    kept = kept_of(length)
    split = len(body) - packed_length(kept, 2)
    within = _unpack_indices(body[:split], kept)
    starts = np.arange(kept, dtype=np.int64) // KEPT * CHUNK
    indices = starts + within
    same_chunk = starts[1:] == starts[:-1]
    if (np.diff(within)[same_chunk] <= 0).any() or (kept and indices[-1] >= length):
        raise MalformedUpdate("the kept indices do not ascend within their chunks")
    values = np.zeros(length, dtype=np.int8)
    values[indices] = unpack(body[split:], kept, 2).view(np.int8) * 2 - 3
    return values


class SparseCodec:
    """Top-k of each chunk at two bits; `SPARSE` is the one there is."""

    def encoded_length(self, layout: Layout) -> int:
        """Bytes of any update of this layout."""
        return header_length(layout) + body_length(layout.total)

    def encode(self, delta: Mapping[str, Tensor], exponents: Mapping[str, int]) -> bytes:
        """The canonical bytes of an update.

        Raises:
            NonFiniteDeltaError: a value is NaN or infinite.
            ConfigError: exponents out of range or not of these tensors.
        """
        head = header(CodecId.SPARSE, Layout.of_tensors(delta), exponents)
        return head + encode_body(scale(delta, exponents))

    def decode_flat(self, data: bytes, layout: Layout, exponents: Mapping[str, int]) -> Int8Vector:
        """The values in grid steps, 0 where nothing was sent.

        Raises:
            MalformedUpdate: not the canonical encoding of this layout and these exponents.
        """
        head = header(CodecId.SPARSE, layout, exponents)
        return decode_body(body_of(data, head, body_length(layout.total)), layout.total)

    def decode(
        self, data: bytes, layout: Layout, exponents: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """The update as fp32 tensors.

        Raises:
            MalformedUpdate: as `decode_flat`.
        """
        return as_tensors(self.decode_flat(data, layout, exponents), layout, exponents)


SPARSE = SparseCodec()


def _largest(magnitudes: Float32Vector) -> Indices:
    """Ascending indices of the kept coordinates."""
    whole = len(magnitudes) // CHUNK * CHUNK
    parts = [_largest_of_rows(magnitudes[:whole].reshape(-1, CHUNK), KEPT)]
    if whole < len(magnitudes):
        rest = magnitudes[whole:].reshape(1, -1)
        parts.append(whole + _largest_of_rows(rest, kept_of(rest.size)))
    return np.concatenate(parts)


def _largest_of_rows(rows: Float32Vector, kept: int) -> Indices:
    """Flat ascending indices of the `kept` largest of each row, ties to the lower index."""
    width = rows.shape[1]
    smallest = np.partition(rows, width - kept, axis=1)[:, width - kept, None]
    above, equal = rows > smallest, rows == smallest
    room = kept - above.sum(axis=1, keepdims=True)
    return np.flatnonzero(above | (equal & (np.cumsum(equal, axis=1) <= room)))


def _pack_indices(within: Indices) -> bytes:
    padded = np.append(within, 0) if len(within) % 2 else within
    pairs = padded.reshape(-1, 2)
    words = (pairs[:, 0] | pairs[:, 1] << _INDEX_BITS).astype("<u4")
    packed = words.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    return packed[: -(-len(within) * _INDEX_BITS // 8)]


def _unpack_indices(data: memoryview, kept: int) -> Indices:
    raw = np.zeros((-(-kept // 2), 4), dtype=np.uint8)
    flat = np.zeros(raw.shape[0] * 3, dtype=np.uint8)
    flat[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    raw[:, :3] = flat.reshape(-1, 3)
    words = raw.view("<u4").reshape(-1).astype(np.int64)
    both = np.stack([words & 0xFFF, words >> _INDEX_BITS], axis=1).reshape(-1)
    if both[kept:].any():
        raise MalformedUpdate("bits after the last index are set")
    return both[:kept]
