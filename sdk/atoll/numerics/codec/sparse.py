"""SparseLoCo's update: the largest coordinates of every chunk, two bits each, and where they are.

The flat vector, in grid steps, is cut into chunks of 4096; of each the 224 largest magnitudes are
kept (of a shorter last chunk 7/128, rounded up), ties to the lower index. A kept value is ±1 or ±3
times its chunk's step, chosen as `block_steps` chooses a block's. Used with error feedback (Sarfi
et al. 2025, arXiv:2508.15706). 0.0558 bytes a parameter: indices in Elias and Fano's code (Elias
1974) cost 6.1 bits each, so that 1.7 times as many coordinates travel as with the 12 bits of an
index within a chunk. A contract can be shown a quarter of a chunk at a time, 4 KiB of fp32: a
coordinate's rank is the sum of what it counts in each.

Body, each part filled up with zero bits: every chunk's step, 4 bits each; the lower 4 bits of
every kept index; in unary how many were kept of each 16 coordinates (a one for each, then a zero);
the 2-bit codes of the values. All in ascending order of indices. A whole chunk has 112, 60 and 56
bytes of the last three.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from atoll.errors import MalformedUpdate
from atoll.numerics.codec.block_steps import STEP_BITS, Levels, unpack_steps
from atoll.numerics.codec.grid_rounding import Float32Vector, Int8Vector
from atoll.numerics.codec.packing import Codes, pack, packed_length, unpack
from atoll.numerics.codec.update_codec import UpdateCodec
from atoll.protocol.codecs import CODECS

CHUNK = 4096
KEPT = 224
KEPT_LEVELS = Levels(2, 4, 8)
QUARTER = 1024
QUARTERS = CHUNK // QUARTER
GROUP_BITS = 4
"""Coordinates are counted by groups of 16: near the mean distance of kept ones, 18."""

Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]
Magnitudes = npt.NDArray[np.uint32]
_MAGNITUDE = np.uint32(0x7FFFFFFF)


def kept_of(length: int) -> int:
    """Coordinates kept of a vector: 224 of each 4096, and 7/128 of the rest, rounded up."""
    whole, rest = divmod(length, CHUNK)
    return whole * KEPT + -(-rest * KEPT // CHUNK)


def section_lengths(length: int) -> tuple[int, int, int, int]:
    """Bytes of the steps, lower bits, counts and codes."""
    kept = kept_of(length)
    return (
        packed_length(chunks_of(length), STEP_BITS),
        packed_length(kept, GROUP_BITS),
        counts_length(length),
        packed_length(kept, 2),
    )


def counts_length(length: int) -> int:
    """Bytes of the counts of a vector: a bit for each that is kept, and one for each group."""
    return packed_length(kept_of(length) + _groups(length), 1)


def chunks_of(length: int) -> int:
    """Chunks of a vector."""
    return -(-length // CHUNK)


def encode_body(scaled: Float32Vector) -> bytes:
    """The body for a vector in grid steps."""
    positions = np.flatnonzero(kept(scaled))
    values, where = scaled[positions], (positions, np.arange(len(positions)), len(scaled))
    steps = KEPT_LEVELS.steps(values, KEPT)
    codes = KEPT_LEVELS.codes(values, steps, KEPT)
    return b"".join((pack(steps, STEP_BITS), lower_bits(*where), counts(*where), pack(codes, 2)))


def kept(scaled: Float32Vector) -> Flags:
    """Which values are kept. Magnitudes are compared by their bits: NaN is above infinity."""
    magnitudes = magnitudes_of(scaled)
    whole = len(magnitudes) // CHUNK * CHUNK
    parts = [_largest_of_rows(magnitudes[:whole].reshape(-1, CHUNK), KEPT)]
    if whole < len(magnitudes):
        rest = magnitudes[whole:].reshape(1, -1)
        parts.append(_largest_of_rows(rest, kept_of(rest.size)))
    return np.concatenate(parts)


def magnitudes_of(values: Float32Vector) -> Magnitudes:
    """The bits below the sign, in whose order values are kept."""
    return values.view(np.uint32) & _MAGNITUDE


def lower_bits(positions: Indices, numbers: Indices, length: int) -> bytes:
    """The lower bits of kept indices, packed.

    Args:
        positions: these, ascending; numbers: theirs among the `kept_of(length)`, all unless some
            are missing, of which zeros are said.
    """
    lower = np.zeros(kept_of(length), dtype=np.uint8)
    lower[numbers] = positions & ((1 << GROUP_BITS) - 1)
    return pack(lower, GROUP_BITS)


def counts(positions: Indices, numbers: Indices, length: int) -> bytes:
    """How many are kept of each group, in unary; as `lower_bits`."""
    ones = np.zeros(kept_of(length) + _groups(length), dtype=np.uint8)
    ones[(positions >> GROUP_BITS) + numbers] = 1
    return pack(ones, 1)


def decode_body(body: memoryview, length: int) -> Int8Vector:
    """The vector of the values that were kept, and 0 where nothing was sent.

    Raises:
        MalformedUpdate: indices that do not ascend or lie outside, a chunk with too many or too
            few, a step that is none, or filling bits that are set.
    """
    count, ends = kept_of(length), np.cumsum(section_lengths(length)).tolist()
    steps = unpack_steps(body[: ends[0]], chunks_of(length))
    lower = unpack(body[ends[0] : ends[1]], count, GROUP_BITS)
    groups = unpack(body[ends[1] : ends[2]], count + _groups(length), 1)
    codes = unpack(body[ends[2] :], count, 2)
    values = np.zeros(length, dtype=np.int8)
    values[_indices(lower, groups, length)] = KEPT_LEVELS.values(codes, steps, KEPT)
    return values


class SparseBody:
    """Top-k of each chunk at two bits."""

    codec = CODECS["sparse"].number

    def sections(self, length: int) -> tuple[int, ...]:
        """The steps, lower bits, counts and codes."""
        return section_lengths(length)

    def encode(self, scaled: Float32Vector, _piece: int) -> bytes:
        """As `Body.encode`."""
        return encode_body(scaled)

    def decode(self, body: memoryview, length: int, _start: int) -> Int8Vector:
        """As `Body.decode`; 0 where nothing was sent."""
        return decode_body(body, length)


SPARSE = UpdateCodec(SparseBody())


def _largest_of_rows(rows: Magnitudes, kept: int) -> Flags:
    """Of each row the `kept` largest, ties to the lower index; flat."""
    width = rows.shape[1]
    smallest = np.partition(rows, width - kept, axis=1)[:, width - kept, None]
    above, equal = rows > smallest, rows == smallest
    room = kept - above.sum(axis=1, keepdims=True)
    flags: Flags = above | (equal & (np.cumsum(equal, axis=1) <= room))
    return flags.reshape(-1)


def _indices(lower: Codes, counts: Codes, length: int) -> Indices:
    """The kept indices, checked to be as many in each chunk as there must be."""
    ones, kept = np.flatnonzero(counts), kept_of(length)
    if len(ones) != kept:
        raise MalformedUpdate(f"{len(ones)} coordinates are sent where {kept} are kept")
    indices = (ones - np.arange(kept)) << GROUP_BITS | lower
    if (np.diff(indices) <= 0).any() or (kept and indices[-1] >= length):
        raise MalformedUpdate("the kept indices do not ascend within the vector")
    if (indices // CHUNK != np.arange(kept) // KEPT).any():
        raise MalformedUpdate("a chunk keeps another number of coordinates than it must")
    return indices


def _groups(length: int) -> int:
    return -(-length // (1 << GROUP_BITS))
