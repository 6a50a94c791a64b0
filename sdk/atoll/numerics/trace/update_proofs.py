"""Family 6 of the trace: an update's bytes from the round's model and the last state.

Rule of this file: it is the codecs once more (`bits.codec`). UpdateProofSteps.sol has the same for
one element, and opcodes.py what words and inputs are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from atoll.numerics.codec import sparse
from atoll.numerics.codec.block_steps import BLOCK, STEP_BITS, Levels, dither_of
from atoll.numerics.codec.dct import FINE_BITS, forward, said_coordinates
from atoll.numerics.codec.dense import LIMIT, LIMIT4
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.packing import Codes, pack, unpack
from atoll.numerics.codec.update_codec import PIECE
from atoll.numerics.kernels.grid import one_nan, whole
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.types import Digest

_Floats = npt.NDArray[np.float32]
_GRID4_BITS: Final = 4
_SEED, _SEAT = slice(0, 32), slice(32, 64)
"""Of the context."""


def scaled(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    x, exponents = inputs
    return one_nan(x * 2.0 ** -int(exponents[words[0]]))


def grid8(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    return whole(inputs[0]).clamp(-LIMIT, LIMIT).to(torch.int8)


def grid4(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    codes = whole(inputs[0]).clamp(-LIMIT4, LIMIT4) + LIMIT4
    return _bytes(pack(codes.numpy().astype(np.uint8), 4))


def block_steps(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    _, reach, share, block = words
    return torch.from_numpy(Levels(1, reach, share).steps(_floats(inputs[0]), block))


def pack_steps(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    return _bytes(pack(inputs[0].numpy(), STEP_BITS))


def codes(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    count, levels, dithered, section, block = words
    of, steps = Levels(levels, 1, 1), inputs[1].numpy()
    values = _floats(inputs[0]).copy()
    values[np.isnan(values)] = -np.inf  # which no update has, but a step that is not finite
    for at in range(0, count if dithered else 0, PIECE):
        own = steps[at // BLOCK : (at + PIECE) // BLOCK]
        key = _dither(inputs[2], section)
        noise = key.noise(at // PIECE, min(PIECE, count - at))
        values[at : at + PIECE] += dither_of(noise, own)
    return _bytes(pack(of.codes(values, steps, block), of.width))


def said(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    count, levels, dithered, section, block = words
    if not levels:
        return torch.from_numpy(
            _unpacked(inputs[0], count, _GRID4_BITS).view(np.int8) - np.int8(LIMIT4)
        )
    of, steps = Levels(levels, 1, 1), inputs[1].numpy()
    values = of.values(_unpacked(inputs[0], count, of.width), steps, block)
    for at in range(0, count if dithered else 0, PIECE):
        own = steps[at // BLOCK : (at + PIECE) // BLOCK]
        noise = _dither(inputs[2], section).noise(at // PIECE, min(PIECE, count - at))
        values[at : at + PIECE] -= dither_of(noise, own)
    return torch.from_numpy(values)


def residual(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    at, first = words
    w, told, exponents = inputs
    return one_nan(w - told[first : first + w.numel()].float() * 2.0 ** int(exponents[at]))


def count_before(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    magnitudes = sparse.magnitudes_of(_floats(inputs[0]))
    counts = np.empty((words[0], sparse.QUARTERS), np.uint16)
    for at in range(0, words[0], sparse.CHUNK):
        chunk = magnitudes[at : at + sparse.CHUNK]
        order = np.argsort(~chunk, kind="stable")  # the largest first, of equals the left one
        is_of = order[:, None] // sparse.QUARTER == np.arange(sparse.QUARTERS)
        counts[at + order] = np.cumsum(is_of, axis=0) - is_of
    return torch.from_numpy(counts.reshape(-1))


def kept(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    (count,) = words
    ranks = inputs[0].numpy().reshape(-1, sparse.QUARTERS).sum(axis=1, dtype=np.uint32)
    whole = count - count % sparse.CHUNK
    parts = (ranks[:whole] < sparse.KEPT, ranks[whole:] < sparse.kept_of(count - whole))
    return _bytes(pack(np.concatenate(parts).view(np.uint8), 1))


def chosen(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    positions, numbers = _kept(inputs[0], words[0])
    values = np.zeros(sparse.kept_of(words[0]), np.float32)
    values[numbers] = _floats(inputs[1])[positions]
    return torch.from_numpy(values)


def lower_bits(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    return _bytes(sparse.lower_bits(*_kept(inputs[0], words[0]), words[0]))


def counts(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    return _bytes(sparse.counts(*_kept(inputs[0], words[0]), words[0]))


def spread(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    positions, numbers = _kept(inputs[0], words[0])
    values = np.zeros(words[0], np.int8)
    values[positions] = inputs[1].numpy()[numbers]
    return torch.from_numpy(values)


def dct(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    return torch.from_numpy(forward(_floats(inputs[0])))


def inverse_dct(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    return torch.from_numpy(said_coordinates(inputs[0].numpy(), words[0]))


def residual_fine(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    w, told, exponents = inputs
    return residual(words, (w, told, exponents - FINE_BITS), tail)


def update_header(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    return _bytes(tail + b"".join(x.numpy().astype(">i2").tobytes() for x in inputs))


def update(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    pairs = zip(inputs, words[1::2], strict=True)
    parts = ((x.view(torch.uint8), torch.zeros(zeros, dtype=torch.uint8)) for x, zeros in pairs)
    return torch.cat([part for pair in parts for part in pair])


def _dither(context: Tensor, section: int) -> DitherKey:
    data = context.numpy().tobytes()
    return DitherKey(Digest(data[_SEED]), int.from_bytes(data[_SEAT], "big"), section)


def _unpacked(codes: Tensor, count: int, width: int) -> Codes:
    return unpack(codes.numpy().tobytes(), count, width)


def _floats(x: Tensor) -> _Floats:
    floats: _Floats = x.numpy()
    return floats


def _kept(flags: Tensor, count: int) -> tuple[sparse.Indices, sparse.Indices]:
    """The positions of the values that are kept, and their numbers among all that are.

    Of a chunk the first k count whose flags are set; only a liar's has more, or fewer.
    """
    positions = np.flatnonzero(np.unpackbits(flags.numpy(), count=count, bitorder="little"))
    chunks = positions // sparse.CHUNK
    inside = np.arange(len(positions)) - np.searchsorted(chunks, chunks)
    most = np.where(
        chunks < count // sparse.CHUNK, sparse.KEPT, sparse.kept_of(count % sparse.CHUNK)
    )
    counted = inside < most
    return positions[counted], (chunks * sparse.KEPT + inside)[counted]


def _bytes(data: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())


OPERATIONS: Final = {
    Op.SCALED: scaled,
    Op.GRID8: grid8,
    Op.GRID4: grid4,
    Op.BLOCK_STEPS: block_steps,
    Op.PACK_STEPS: pack_steps,
    Op.CODES: codes,
    Op.UPDATE_HEADER: update_header,
    Op.UPDATE: update,
    Op.SAID: said,
    Op.RESIDUAL: residual,
    Op.KEPT: kept,
    Op.CHOSEN: chosen,
    Op.LOWER_BITS: lower_bits,
    Op.COUNTS: counts,
    Op.SPREAD: spread,
    Op.COUNT_BEFORE: count_before,
    Op.DCT: dct,
    Op.INVERSE_DCT: inverse_dct,
    Op.RESIDUAL_FINE: residual_fine,
}
