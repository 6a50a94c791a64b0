"""The judge's arithmetic once more, on John Hauser's Berkeley SoftFloat: no processor's numbers.

Rule of this file: a number is its word. Elementary functions are SPEC-STEP.md's lines. What
Berkeley SoftFloat has no counterpart of is not here: magnitudes, Philox, and integers of 128 bits,
whose reference computes with exact integers anyway.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import softfloatpy
from softfloatpy import Float32, Float64, Int32, RoundingMode

Single: TypeAlias = Any  # Float32, whose operators its stubs do not have
Double: TypeAlias = Any
Second: TypeAlias = Callable[[int, int], tuple[int, int]]

NAN32, NAN64 = 0x7FC00000, 0x7FF8000000000000
LOW64: Final = (1 << 64) - 1


def single(word: int) -> Single:
    return Float32.from_bytes(word.to_bytes(4))


def double(word: int) -> Double:
    return Float64.from_bytes(word.to_bytes(8))


def host(value: float) -> Double:
    """A number of the specification that is written in decimals, in binary64."""
    return Float64.from_bytes(struct.pack(">d", value))


def constant(value: float) -> Single:
    """The same rounded to binary32."""
    return host(value).to_f32()


def word32(x: Single) -> int:
    return NAN32 if x.is_nan() else int.from_bytes(x.to_bytes())


def word64(x: Double) -> int:
    return NAN64 if x.is_nan() else int.from_bytes(x.to_bytes())


ZERO, ONE, TWO = (constant(x) for x in (0.0, 1.0, 2.0))
ONE64, TWO64 = host(1.0), host(2.0)


def rint(x: Single) -> Single:
    """The nearest integer, without −0, and 0 for NaN."""
    if x.is_nan():
        return ZERO
    return x.round_to_int(RoundingMode.NEAR_EVEN, False) + ZERO


# ---- SPEC-STEP.md, chapter 3 ----

_EXP = [
    constant(x)
    for x in (0.0013981999507, 0.0083334519073, 0.041665795894, 0.16666665459, 0.50000001201)
]
_EXP_FIRST = constant(0.00019875691500)
_LOG2E, _HIGH, _LOW = (constant(x) for x in (1.44269504, 0.693359375, -0.00021219444))
_LEAST, _MOST = constant(-86.0), constant(89.0)
_POWERS = {w: constant(2.0 ** (w - 1)) for w in range(-125, 129)}
_ROOT_HALF = host(0.7071067811865476)
_REST = [ONE64 / host(float(k)) for k in (15, 13, 11, 9, 7, 5, 3)]
_SEVENTEENTH = ONE64 / host(17.0)
# ⌊2^29 ln 2⌋ and ⌊2^57 (ln 2 − L)⌋, by mpmath.
_LN2_29, _LN2_57 = 372130558, 262381299
_L, _L_LOW = host(_LN2_29 / 2**29), host(_LN2_57 / 2**57)


def exp(x: Single) -> Single:
    if x.is_nan():
        return x
    if x < _LEAST:
        return ZERO
    c = _MOST if x > _MOST else x
    w = rint(c * _LOG2E)
    r = c - w * _HIGH
    r = r - w * _LOW
    y = _EXP_FIRST
    for coefficient in _EXP:
        y = y * r + coefficient
    y = (y * (r * r) + r) + ONE
    return (y * _POWERS[int(w.to_float())]) * TWO


def sigmoid(x: Single) -> Single:
    return ONE / (exp(-x) + ONE)


def near(z: Double) -> Double:
    return z.to_f32().to_f64()


def log(x: Single) -> Single:
    word = word32(x)
    if word == 0x7F800000 or x.is_nan():
        return x
    if word in {0, 1 << 31} or word < 0x800000:
        return single(0xFF800000)
    if word >> 31:
        return single(NAN32)
    e = (word >> 23) - 126
    m = single((word & 0x7FFFFF) | 126 << 23).to_f64()
    if m < _ROOT_HALF:
        m, e = m * TWO64, e - 1
    z = (m - ONE64) / (m + ONE64)
    a = near(z)
    t = near(a * a)
    y = _SEVENTEENTH
    for inverse in _REST:
        y = near(y * t + inverse)
    u = near(y * t)
    v = TWO64 * z + TWO64 * a * u
    exponent = Float64.from_i32(Int32.from_int(e))
    return (exponent * _L + (exponent * _L_LOW + v)).to_f32()


# ---- chapter 2 ----


def steps(a: int, b: int) -> tuple[int, int]:
    maximum, levels = single(a), host(float(1 + (b & 0x3FFFFF)))
    floor = constant(2.0**-80)
    wide = (floor if maximum < floor else maximum).to_f64()
    return word32(((ONE64 / wide) * levels).to_f32()), word32((wide * (ONE64 / levels)).to_f32())


def to_integer(x: Single) -> tuple[int, int]:
    """The lowest 128 bits of an integer that binary32 holds; ∞ is ±2^128."""
    if x.is_inf():
        return 0, 0
    exact = int(x.to_float())
    return exact >> 64 & LOW64, exact & LOW64


def _singles(function: Callable[[Single, Single], Single]) -> Second:
    return lambda a, b: (0, word32(function(single(a), single(b))))


def _doubles(function: Callable[[Double, Double], Double]) -> Second:
    return lambda a, b: (0, word64(function(double(a), double(b))))


def _of_one(function: Callable[[Single], Single]) -> Second:
    return lambda a, b: (0, word32(function(single(a))))


def _asks(make: Callable[[int], Any], question: Callable[[Any, Any], bool]) -> Second:
    return lambda a, b: (0, int(question(make(a), make(b))))


def _larger(a: Single, b: Single) -> Single:
    if a.is_nan() or b.is_nan():
        return single(NAN32)
    return (b if a < b else a) + ZERO


def _at_least(a: Single, b: Single) -> Single:
    return single(NAN32) if a.is_nan() or b.is_nan() else b if a < b else a


def _at_most(a: Single, b: Single) -> Single:
    return single(NAN32) if a.is_nan() or b.is_nan() else b if b < a else a


SECOND: Final[dict[str, Second]] = {
    "add32": _singles(lambda a, b: a + b),
    "sub32": _singles(lambda a, b: a - b),
    "mul32": _singles(lambda a, b: a * b),
    "div32": _singles(lambda a, b: a / b),
    "sqrt32": _of_one(lambda a: a.sqrt()),
    "neg32": _of_one(lambda a: -a),
    "max32": _singles(_larger),
    "less32": _asks(single, softfloatpy.f32_lt_quiet),
    "lessEqual32": _asks(single, softfloatpy.f32_le_quiet),
    "equal32": _asks(single, softfloatpy.f32_eq),
    "isNan32": _asks(single, lambda a, b: a.is_nan()),
    "clampMin32": _singles(_at_least),
    "clampMax32": _singles(_at_most),
    "rint32": _of_one(rint),
    "rint32ToInt": lambda a, b: to_integer(rint(single(a))),
    "widen": lambda a, b: (0, word64(single(a).to_f64())),
    "narrow": lambda a, b: (0, word32(double(a).to_f32())),
    "add64": _doubles(lambda a, b: a + b),
    "sub64": _doubles(lambda a, b: a - b),
    "mul64": _doubles(lambda a, b: a * b),
    "div64": _doubles(lambda a, b: a / b),
    "sqrt64": lambda a, b: (0, word64(double(a).sqrt())),
    "neg64": lambda a, b: (0, word64(-double(a))),
    "isNan64": _asks(double, lambda a, b: a.is_nan()),
    "less64": _asks(double, softfloatpy.f64_lt_quiet),
    "exp32": _of_one(exp),
    "log32": _of_one(log),
    "sigmoid32": _of_one(sigmoid),
    "rsqrt32": _of_one(lambda a: ONE / a.sqrt()),
    "quantise": _singles(lambda a, b: rint(a * b)),
    "quantiseToInt": lambda a, b: to_integer(rint(single(a) * single(b))),
    "steps": steps,
}
