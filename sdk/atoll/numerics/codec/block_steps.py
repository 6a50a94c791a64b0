"""Two-bit and sign updates whose blocks of 32 choose their own step: used with error feedback.

- 2 bits: ±1 or ±3 times a step; 0.266 bytes a parameter.
- sign: ±1 times a step; 0.141 bytes.

So few levels are only worth their bytes at the right scale, and that is another one for every row
of a matrix and in every round: a falling learning rate outruns a grid that moves by a factor of two
a round, and what then saturates piles up in the feedback. A step is one of `STEPS` times the shared
grid's, so that updates still are integers below 128 that every rule takes; which one is in the
bytes.

Blocks are of the flat vector in layout order, the last one shorter. A block's step is the smallest
at which at most a share of its values exceed a reach (`Levels`) and none twice that, or the
largest: what is cut off a few large values round after round would pile up. No step is three times
another, so that without dither values of different steps are different integers.

Two-bit values are dithered: to each, an integer between minus one step and one step is added before
it is rounded, and taken away again when it is read (Roberts 1962; Gray and Stockham 1993). An
update of a matrix has few strong directions, and what rounding does to it has them, too: such an
error costs the model more than noise of the same size, which is what dither makes of it
(docs/methods.md). The integers follow from bytes that everybody can work out (`dither`).

Body: the indices of the steps, 4 bits each, then the codes, both in coordinate order and packed
(`packing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from atoll.errors import MalformedUpdate
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.grid_rounding import Float32Vector, Int8Vector, to_odd
from atoll.numerics.codec.packing import pack, packed_length, unpack
from atoll.numerics.codec.update_codec import PIECE, UpdateCodec
from atoll.protocol.codecs import CODECS

BLOCK = 32
STEPS = np.array([1, 2, 4, 5, 7, 10, 14, 20, 28], dtype=np.int8)
"""In steps of the shared grid: about √2 apart, and 4 · 28, with dither, is the largest value."""
STEP_BITS = 4  # of nine steps; 9 to 15 in a body are refused
_BLOCKS_AT_ONCE = 1 << 10  # whose magnitudes, 128 KiB, stay in a core's cache
Indices = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Levels:
    """The values ±1 … ±(2·levels − 1), and when a step is large enough for a block.

    Attributes:
        reach: in steps; no value may exceed twice this.
        share: one value in so many may exceed the reach.
    """

    levels: int
    reach: int
    share: int

    @property
    def width(self) -> int:
        """Bits of a code."""
        return (2 * self.levels - 1).bit_length()

    def steps(self, scaled: Float32Vector, block: int) -> Indices:
        """The index of the step of every `block` values of a vector in grid steps."""
        whole = len(scaled) // block
        parts = [self._steps(scaled[: whole * block].reshape(whole, block))]
        if whole * block < len(scaled):
            parts.append(self._steps(scaled[whole * block :].reshape(1, -1)))
        return np.concatenate(parts)

    def _steps(self, rows: Float32Vector) -> Indices:
        indices = np.empty(len(rows), dtype=np.uint8)
        last = rows.shape[1] - 1 - rows.shape[1] // self.share
        reaches = STEPS[:-1].astype(np.float32) * np.float32(self.reach)
        for at in range(0, len(rows), _BLOCKS_AT_ONCE):
            magnitudes = np.abs(rows[at : at + _BLOCKS_AT_ONCE])
            magnitudes.partition(last, axis=1)  # those after it may exceed the reach, it may not
            by_share = np.searchsorted(reaches, magnitudes[:, last])
            by_largest = np.searchsorted(reaches * 2, magnitudes[:, last:].max(axis=1))
            indices[at : at + _BLOCKS_AT_ONCE] = np.maximum(by_share, by_largest)
        return indices

    def codes(self, scaled: Float32Vector, steps: Indices, block: int) -> Indices:
        """The codes of the values, each divided by its block's step; overwrites `scaled`."""
        scaled /= STEPS.astype(np.float32)[steps].repeat(block)[: len(scaled)]
        values = to_odd(self.levels)(scaled).astype(np.int8)
        values += np.int8(2 * self.levels - 1)
        return values.view(np.uint8) >> np.uint8(1)

    def values(self, codes: Indices, steps: Indices, block: int) -> Int8Vector:
        """What codes and steps say, in grid steps; overwrites `codes`."""
        values = codes.view(np.int8)
        values *= 2
        values -= np.int8(2 * self.levels - 1)
        values *= STEPS[steps].repeat(block)[: len(values)]
        return values


def unpack_steps(data: memoryview, count: int) -> Indices:
    """The indices of steps in exactly `packed_length(count, STEP_BITS)` bytes.

    Raises:
        MalformedUpdate: an index of no step, or bits after the last that are set.
    """
    steps = unpack(data, count, STEP_BITS)
    if count and steps.max() >= len(STEPS):
        raise MalformedUpdate(f"step {steps.max()} of a block is none of the {len(STEPS)}")
    return steps


@dataclass(frozen=True)
class BlockStepBody:
    """Blocks of BLOCK values with a step each, dithered where there is a key."""

    codec: int
    levels: Levels
    dither: DitherKey | None = None

    def sections(self, length: int) -> tuple[int, ...]:
        """The steps, and the codes."""
        steps = packed_length(_blocks(length), STEP_BITS)
        return steps, packed_length(length, self.levels.width)

    def encode(self, scaled: Float32Vector, piece: int) -> bytes:
        """As `Body.encode`."""
        steps = self.levels.steps(scaled, BLOCK)
        for at, dither in self._dithers(steps, len(scaled), piece * PIECE):
            scaled[at : at + len(dither)] += dither
        codes = self.levels.codes(scaled, steps, BLOCK)
        return pack(steps, STEP_BITS) + pack(codes, self.levels.width)

    def decode(self, body: memoryview, length: int, start: int) -> Int8Vector:
        """As `Body.decode`."""
        at = packed_length(_blocks(length), STEP_BITS)
        steps = unpack_steps(body[:at], _blocks(length))
        codes = unpack(body[at:], length, self.levels.width)
        values = self.levels.values(codes, steps, BLOCK)
        for at, dither in self._dithers(steps, length, start):
            values[at : at + len(dither)] -= dither
        return values

    def _dithers(self, steps: Indices, length: int, start: int) -> Iterator[tuple[int, Int8Vector]]:
        """Each piece's first position, of what begins at `start`, and its integers; none without a
        key.
        """
        if self.dither is None:
            return
        at = 0
        while at < length:
            piece, within = divmod(start + at, PIECE)
            count = min(PIECE - within, length - at)
            steps_here = steps[at // BLOCK : (at + count + BLOCK - 1) // BLOCK]
            yield at, dither_of(self.dither.noise(piece, count, within), steps_here)
            at += count


def dither_of(noise: Indices, steps: Indices) -> Int8Vector:
    """Integers from −step to step, one a byte: round(step · ((2b + 1)/256 − 1)), halves up."""
    dither = noise.astype(np.int16)
    dither *= 2
    dither += 1
    wide = STEPS.astype(np.int16)[steps].repeat(BLOCK)[: len(noise)]
    dither *= wide
    dither += 128
    dither >>= 8
    dither -= wide
    return dither.astype(np.int8)


def _blocks(total: int) -> int:
    return -(-total // BLOCK)


# Signs are near the least squared error for normal and Laplace-distributed values alike; for two
# bits that would be a reach of 4, but cutting off costs more than noise does.
SIGN_LEVELS = Levels(levels=1, reach=2, share=5)
TWO_BIT_LEVELS = Levels(levels=2, reach=3, share=16)
SIGN = UpdateCodec(BlockStepBody(CODECS["sign"].number, SIGN_LEVELS))


def two_bit(dither: DitherKey) -> UpdateCodec:
    """Two bits, as a seat writes them in a round."""
    return UpdateCodec(BlockStepBody(CODECS["two_bit"].number, TWO_BIT_LEVELS, dither))
