"""Grids, exact sums, elementary functions and random words: SPEC-STEP.md, chapters 1 to 3.

Every line is one IEEE operation of NumPy on whole arrays: float32 unless an array is widened to
float64 in so many words. A Python float that meets a float32 array is rounded to float32 first.
Matrices of integers are kept in float64, whose products of them are exact below 2^53.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Wide = NDArray[np.float64]

FLOOR = np.float32(2.0**-80)
INT8 = 127
SPLIT = 32384
NORM = 1 << 18
SUM = 1 << 22
SQUARE = 1 << 16
BASE = 254
quiet = np.errstate(all="ignore")
"""What IEEE 754 says of numbers that are not finite is wanted, not a warning."""


def narrow(x) -> Array:
    """32(x): rounded to binary32."""
    return np.asarray(x).astype(np.float32)


def wide(x) -> Wide:
    """64(x)."""
    return np.asarray(x).astype(np.float64)


def one_nan(x: Array) -> Array:
    """x with the one NaN for every NaN: processors differ in their sign and payload."""
    return np.where(np.isnan(x), np.float32(np.nan), x)


def rint(x: Array) -> Wide:
    """The nearest integers, ties to even: 0 for NaN, and without −0."""
    whole = wide(np.rint(x))
    return np.where(np.isnan(whole), 0.0, whole) + 0.0


def largest(x: Array) -> Array:
    """The largest of the last axis, which is kept: NaN if any is, and +0 for any zero."""
    return one_nan(x.max(axis=-1, keepdims=True) + np.float32(0.0))


def product(a: Wide, b: Wide) -> Wide:
    """Σ a·b of matrices of integers: exact below 2^53, and without −0."""
    return a @ b + 0.0


def root(x: Array) -> Array:
    """The binary32 number nearest to the root of a binary32 number."""
    return narrow(np.sqrt(wide(x)))


# ------------------------------------------------------------------------------------- 2. grids


def grid(x: Array, axis: int, levels: int) -> tuple[Wide, Array]:
    """Integers and their step along an axis, which is kept with size 1."""
    most = wide(np.maximum(np.abs(x).max(axis=axis, keepdims=True), FLOOR))
    up = narrow((1.0 / most) * levels)
    step = narrow(most * (1.0 / levels))
    return rint(x * up), one_nan(step)


def split_grid(x: Array, axis: int) -> tuple[Wide, Wide, Array]:
    """High and low integers of two slices, and their step: about (254 · high + low) · step."""
    integers, step = grid(x, axis, SPLIT)
    high = rint(narrow(integers) * np.float32(1.0 / BASE))
    return high, integers - high * BASE, step


def attention_levels(terms: int) -> int:
    """Levels of operands whose sum of so many products stays within 2^24."""
    return min(511, math.isqrt((1 << 24) // terms))


def exact_sum(x: Array, axis: int) -> Wide:
    """S(x) along an axis, which is kept."""
    integers, step = grid(x, axis, SUM)
    return integers.sum(axis=axis, keepdims=True) * wide(step)


def square_sum(x: Array) -> tuple[int, float]:
    """(n, step) with n · step² the sum of all squares of an array."""
    integers, step = grid(x.reshape(-1), 0, SQUARE)
    squares = (integers * integers).astype(np.int64)
    return int(squares.sum()), float(step[0])


# --------------------------------------------------------------------- 3. elementary functions

_EXP = (
    0.00019875691500,
    0.0013981999507,
    0.0083334519073,
    0.041665795894,
    0.16666665459,
    0.50000001201,
)


@quiet
def exp(x: Array) -> Array:
    """e^x."""
    inside = np.clip(x, np.float32(-86.0), np.float32(89.0))
    whole = np.rint(inside * np.float32(1.44269504))
    rest = inside - whole * np.float32(0.693359375)
    rest = rest - whole * np.float32(-0.00021219444)
    y = np.full_like(rest, _EXP[0])
    for coefficient in _EXP[1:]:
        y = y * rest + np.float32(coefficient)
    y = y * (rest * rest) + rest + np.float32(1.0)
    half = np.ldexp(np.float32(1.0), np.nan_to_num(whole).astype(np.int32) - 1)
    return np.where(x < -86.0, np.float32(0.0), one_nan(y * half * np.float32(2.0)))


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^−x)."""
    return np.float32(1.0) / (exp(-x) + np.float32(1.0))


def _ln2() -> tuple[float, float]:
    value = Context(prec=50).ln(Decimal(2))
    high = int(value * 2**29)
    return high / 2.0**29, int((value - Decimal(high) / 2**29) * 2**57) / 2.0**57


_LN2_HIGH, _LN2_LOW = _ln2()


def _near(x: Wide) -> Wide:
    return wide(narrow(x))


@quiet
def ln(x: Array) -> Array:
    """The natural logarithm; −∞ of zeros and subnormals, NaN below."""
    normal = (x >= np.float32(2.0**-126)) & (x < np.inf)
    mantissa, exponent = np.frexp(np.where(normal, wide(x), 1.0))
    low = mantissa < 0.7071067811865476
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    exponent = wide(exponent - low)
    z = (mantissa - 1.0) / (mantissa + 1.0)
    a = _near(z)
    square = _near(a * a)
    y = np.full_like(square, 1.0 / 17.0)
    for k in range(15, 1, -2):
        y = _near(y * square + 1.0 / k)
    tail = _near(y * square)
    series = 2.0 * z + 2.0 * a * tail
    found = narrow(exponent * _LN2_HIGH + (exponent * _LN2_LOW + series))
    odd = np.where(x == np.inf, np.float32(np.inf), np.float32(-np.inf))
    odd = np.where((x < 0) | np.isnan(x), np.float32(np.nan), odd)
    return np.where(normal, found, odd)


# ------------------------------------------------------------------------------- random words

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def philox(counter, key: tuple[int, int]) -> list[NDArray[np.uint64]]:
    """Philox4x32-10: four arrays of words below 2^32 and a key of two, to four arrays."""
    c = [np.asarray(word, np.uint64) for word in counter]
    k = list(key)
    for _ in range(10):
        left, right = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (right >> _32) ^ c[1] ^ np.uint64(k[0]),
            right & _LOW,
            (left >> _32) ^ c[3] ^ np.uint64(k[1]),
            left & _LOW,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def kept(share: str, key: tuple[int, int], step: int, site: int, span: range) -> NDArray[np.bool_]:
    """Whether each element of a range of a site's elements stays."""
    blocks = np.arange(span.start // 4, (span.stop + 3) // 4, dtype=np.uint64)
    ones = np.ones_like(blocks)
    counter = blocks & _LOW, blocks >> _32, ones * np.uint64(step % (1 << 32)), ones * site
    words = np.stack(philox(counter, key), axis=1).reshape(-1)
    words = words[span.start % 4 :][: len(span)]
    return words >= np.uint64(math.floor(Fraction(share) * (1 << 32)))


def dropout_scale(share: str) -> np.float32:
    """1 / (1 − share), rounded to binary64 and then to binary32."""
    return np.float32(float(1 / (1 - Fraction(share))))
