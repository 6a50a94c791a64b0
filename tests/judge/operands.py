"""Operands worth trying: the borders of the formats, and random words in three shapes.

Rule of this file: every array is uint64. `SoftFloat.t.sol` shapes random words the same way.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from tests.judge.operations import Kind, Operation, Words


def _single(value: float) -> int:
    return int(struct.unpack(">I", struct.pack(">f", value))[0])


def _double(value: float) -> int:
    return int(struct.unpack(">Q", struct.pack(">d", value))[0])


def _signed(words: list[int], sign: int) -> tuple[int, ...]:
    return tuple(sorted({word ^ flip for word in words for flip in (0, sign)}))


# Zero, subnormals, the least normal, where exp and grids change over, around one, halves of
# integers, the last numbers with halves, where squares overflow or vanish, the largest, ∞, two NaN.
BORDERS32: Final = _signed(
    [0, 1, 2, 3, 0x400000, 0x7FFFFE, 0x7FFFFF, 0x800000, 0x800001, 0xFFFFFF, 0x1000000]
    + [0x0C000000, 0x177FFFFF, 0x17800000, 0x1F800000, 0x33000000, 0x33800000, 0x33800001]
    + [
        0x3EFFFFFF,
        0x3F000000,
        0x3F000001,
        0x3F3504F3,
        0x3F3504F4,
        0x3F7FFFFF,
        0x3F800000,
        0x3F800001,
    ]
    + [_single(x) for x in (1.5, 2.0, 2.5, 3.0, 3.5, 126.5, 86.0, 87.5, 88.72283, 88.72284, 89.0)]
    + [0x4AFFFFFF, 0x4B000001, 0x4B7FFFFF, 0x4B800000, 0x5F7FFFFF, 0x5F800000, 0x7E800000]
    + [0x7F000000, 0x7F7FFFFE, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000],
    1 << 31,
)
BORDERS64: Final = _signed(
    [0, 1, 2, 0x8000000000000, 0xFFFFFFFFFFFFF, 0x10000000000000, 0x10000000000001]
    + [0x20000000000000, 0x369FFFFFFFFFFFFF, 0x36A0000000000000, 0x3690000000000000]
    + [0x3690000000000001, 0x380FFFFFFFFFFFFF, 0x380FFFFFE0000000, 0x380FFFFFF0000000]
    + [0x3810000000000000, 0x3810000010000000, 0x3810000010000001, 0x3810000030000000]
    + [0x1FF0000000000000, 0x3CA0000000000000, 0x3CA0000000000001, 0x3FEFFFFFFFFFFFFF]
    + [_double(x) for x in (0.5, 1.0, 1.0 + 2.0**-52, 1.5, 2.0, 3.0, 1.0 + 2.0**-24)]
    + [0x3FF0000010000001, 0x3FF0000030000000, 0x433FFFFFFFFFFFFF, 0x4340000000000000]
    + [0x47EFFFFFE0000000, 0x47EFFFFFEFFFFFFF, 0x47EFFFFFF0000000, 0x47F0000000000000]
    + [0x5FEFFFFFFFFFFFFF, 0x5FF0000000000000, 0x7FEFFFFFFFFFFFFF]
    + [0x7FF0000000000000, 0x7FF0000000000001, 0x7FF8000000000000],
    1 << 63,
)
# Halves of integers: ties and their neighbours of both formats, in either half.
INTEGERS: Final = tuple(
    sorted(
        {0, 1, 2, 3, (1 << 64) - 1, (1 << 64) - 2, (1 << 64) - 3, 1 << 63, (1 << 63) - 1}
        | {
            (1 << power) + offset
            for power in (23, 24, 25, 52, 53, 54, 62)
            for offset in (-1, 0, 1, 2, 3)
        }
        | {(1 << 64) - (1 << p) - more for p in (24, 25, 53, 54) for more in (1, 2, 3)}
    )
)
BORDERS: Final[dict[Kind, tuple[int, ...]]] = {
    "32": BORDERS32,
    "64": BORDERS64,
    "integer": INTEGERS,
}


def border_rows(operation: Operation) -> list[tuple[Words, Words]]:
    """All pairs of borders, a row for each first operand; where there is one, one row of all."""
    words = np.array(BORDERS[operation.kind], np.uint64)
    if operation.operands == 1:
        return [(words, np.zeros_like(words))]
    return [(np.full_like(words, word), words) for word in words]


def shaped(kind: Kind, drawn: Words) -> tuple[Words, Words]:
    """Operands from random words: [n, 4] → a, b.

    Row i has shape i mod 3. 0: as drawn. 1: b is a but for some of its last digits, and perhaps the
    sign; of binary64, a is about where binary32 begins and ends. 2: both are between 2^-7 and 2^9
    in magnitude. An integer is cut to any length.
    """
    a, b, t, sign = (drawn[:, i].copy() for i in range(4))
    if kind == "integer":
        return _integers(a, b, t)
    shape = np.arange(len(drawn)) % 3
    if kind == "32":
        a, b = a & np.uint64(0xFFFFFFFF), b & np.uint64(0xFFFFFFFF)
        near = a ^ (b >> (t % np.uint64(33))) ^ ((sign & np.uint64(1)) << np.uint64(31))
        keep, base = np.uint64(0x87FFFFFF), np.uint64(0x3C000000)
    else:
        field = (np.uint64(863) + (t >> np.uint64(8)) % np.uint64(300)) << np.uint64(52)
        a = np.where(shape == 1, (a & np.uint64(0x800FFFFFFFFFFFFF)) | field, a)
        near = a ^ (b >> (t % np.uint64(64))) ^ ((sign & np.uint64(1)) << np.uint64(63))
        keep, base = np.uint64(0x80FFFFFFFFFFFFFF), np.uint64(0x3F80000000000000)
    b = np.where(shape == 1, near, b)
    middle = shape == 2
    return np.where(middle, (a & keep) + base, a), np.where(middle, (b & keep) + base, b)


def _integers(a: Words, b: Words, t: Words) -> tuple[Words, Words]:
    """a · 2^64 + b with sign, shifted right by t mod 128."""
    made = np.empty((2, len(a)), np.uint64)
    for i, (high, word, cut) in enumerate(zip(a.tolist(), b.tolist(), t.tolist(), strict=True)):
        value = (high - (1 << 64) if high >> 63 else high) << 64 | word
        value = (value >> (cut % 128)) & ((1 << 128) - 1)
        made[0, i], made[1, i] = value >> 64, value & ((1 << 64) - 1)
    return made[0], made[1]
