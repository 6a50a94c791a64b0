"""The judge's arithmetic by name: operands worth trying, and what the reference makes of them.

Rule of this file: a number is its word, and every array is uint64. `Arithmetic.sol` has the same
operations in the same order. The reference is numpy for single IEEE operations, and what a training
step itself calls for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from atoll.numerics.kernels import elementary
from atoll.numerics.kernels.grid import steps, whole
from atoll.numerics.kernels.philox import philox4x32

Words: TypeAlias = npt.NDArray[np.uint64]
Reals: TypeAlias = npt.NDArray[Any]
Kind: TypeAlias = Literal["32", "64", "integer"]
Reference: TypeAlias = Callable[[Words, Words], tuple[Words, Words]]

NAN32, NAN64 = 0x7FC00000, 0x7FF8000000000000
LOW32, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


@dataclass(frozen=True, slots=True)
class Operation:
    """One function of the contracts.

    Attributes:
        kind: what its operands are: binary32, binary64, or the halves of an integer of 128 bits.
        operands: 1 or 2.
        reference: operands → the high and the low word of each result.
    """

    name: str
    kind: Kind
    operands: int
    reference: Reference


def single(words: Words) -> Reals:
    """Words of binary32 as numbers."""
    return words.astype(np.uint32).view(np.float32)


def double(words: Words) -> Reals:
    """Words of binary64 as numbers."""
    return words.view(np.float64)


def to_words(result: Reals) -> Words:
    """Numbers or truth values as words, with the one NaN."""
    if result.dtype == np.bool_:
        return result.astype(np.uint64)
    if result.dtype == np.float32:
        words = result.view(np.uint32).astype(np.uint64)
        return np.where(np.isnan(result), np.uint64(NAN32), words)
    return np.where(np.isnan(result), np.uint64(NAN64), result.view(np.uint64))


def low(result: Reals) -> tuple[Words, Words]:
    words = to_words(result)
    return np.zeros_like(words), words


def of_singles(function: Callable[..., Reals], operands: int = 2) -> Reference:
    def reference(a: Words, b: Words) -> tuple[Words, Words]:
        with np.errstate(all="ignore"):
            return low(function(*(single(x) for x in (a, b)[:operands])))

    return reference


def of_doubles(function: Callable[..., Reals], operands: int = 2) -> Reference:
    def reference(a: Words, b: Words) -> tuple[Words, Words]:
        with np.errstate(all="ignore"):
            return low(function(*(double(x) for x in (a, b)[:operands])))

    return reference


def of_tensors(function: Callable[..., torch.Tensor], operands: int = 1) -> Reference:
    """A function of the reference step, on binary32."""

    def reference(a: Words, b: Words) -> tuple[Words, Words]:
        tensors = (torch.from_numpy(single(x)) for x in (a, b)[:operands])
        return low(function(*tensors).numpy())

    return reference


def of_integers(dtype: Any, bits: int) -> Reference:
    """Nearest number to a · 2^64 + b of 128 bits with sign: by Python's integers, exactly."""
    digits = 24 if bits == 32 else 53

    def nearest(high: int, word: int) -> float:
        value = (high - (1 << 64) if high >> 63 else high) << 64 | word
        size = abs(value)
        cut = max(size.bit_length() - digits, 0)
        quotient, rest = size >> cut, size & ((1 << cut) - 1)
        half = (1 << cut) >> 1
        quotient += cut > 0 and (rest > half or (rest == half and quotient & 1 == 1))
        return float(quotient << cut) * (-1 if value < 0 else 1)

    def reference(a: Words, b: Words) -> tuple[Words, Words]:
        pairs = zip(a.tolist(), b.tolist(), strict=True)
        return low(np.array([nearest(*pair) for pair in pairs]).astype(dtype))

    return reference


def largest(a: Reals, b: Reals) -> Reals:
    result = np.where(np.isnan(a) | np.isnan(b), np.nan, np.maximum(a, b)).astype(a.dtype)
    return np.where(result == 0, result.dtype.type(0), result)


def at_least(a: Reals, b: Reals) -> Reals:
    result = np.where(a < b, b, a)
    return np.where(np.isnan(b), b, result)


def at_most(a: Reals, b: Reals) -> Reals:
    result = np.where(a > b, b, a)
    return np.where(np.isnan(b), b, result)


def rounded(x: torch.Tensor) -> torch.Tensor:
    return whole(x.clone())


def quantised(x: torch.Tensor, multiplier: torch.Tensor) -> torch.Tensor:
    return whole(x * multiplier)


def to_integers(result: torch.Tensor) -> tuple[Words, Words]:
    """Whole numbers as integers, their lowest 128 bits."""
    exact = [int(x) if np.isfinite(x) else 0 for x in result.tolist()]  # ∞ is ±2^128
    halves = [((x >> 64) & (2**64 - 1), x & (2**64 - 1)) for x in exact]
    made = np.array(halves, np.uint64).T
    return made[0], made[1]


def rounded_to_integers(a: Words, b: Words) -> tuple[Words, Words]:
    return to_integers(rounded(torch.from_numpy(single(a))))


def quantised_to_integers(a: Words, b: Words) -> tuple[Words, Words]:
    return to_integers(quantised(*(torch.from_numpy(single(x)) for x in (a, b))))


def grid_steps(a: Words, b: Words) -> tuple[Words, Words]:
    """Of 1 + b mod 2^22 levels."""
    # As fp64, which the step makes of the integer too, every element can have its own.
    levels: Any = torch.from_numpy((1 + (b & np.uint64(0x3FFFFF))).astype(np.float64))
    multiplier, step = steps(torch.from_numpy(single(a)), levels)
    return to_words(multiplier.numpy()), to_words(step.numpy())


def philox(a: Words, b: Words) -> tuple[Words, Words]:
    """Counter a · 2^64 + b, the low word first; key a xor b."""
    parts = (b & LOW32, b >> HALF, a & LOW32, a >> HALF)
    counter: Any = tuple(torch.from_numpy(part.astype(np.int64)) for part in parts)
    keys: Any = tuple(
        torch.from_numpy(x.astype(np.int64)) for x in ((a ^ b) & LOW32, (a ^ b) >> HALF)
    )
    words = [word.numpy().astype(np.uint64) for word in philox4x32(counter, keys)]
    return words[3] << HALF | words[2], words[1] << HALF | words[0]


def _binary(name: str, function: Any) -> tuple[Operation, Operation]:
    return (
        Operation(f"{name}32", "32", 2, of_singles(function)),
        Operation(f"{name}64", "64", 2, of_doubles(function)),
    )


def _unary(name: str, function: Any) -> tuple[Operation, Operation]:
    return (
        Operation(f"{name}32", "32", 1, of_singles(function, 1)),
        Operation(f"{name}64", "64", 1, of_doubles(function, 1)),
    )


def _tensor(name: str, function: Callable[..., torch.Tensor], operands: int = 1) -> Operation:
    return Operation(name, "32", operands, of_tensors(function, operands))


_ADD, _SUB = _binary("add", np.add), _binary("sub", np.subtract)
_MUL, _DIV = _binary("mul", np.multiply), _binary("div", np.divide)
_SQRT, _NEG, _ABS = _unary("sqrt", np.sqrt), _unary("neg", np.negative), _unary("abs", np.abs)
_LESS, _NAN = _binary("less", np.less), _unary("isNan", np.isnan)

OPERATIONS: tuple[Operation, ...] = (
    *(pair[0] for pair in (_ADD, _SUB, _MUL, _DIV, _SQRT, _NEG, _ABS)),
    Operation("max32", "32", 2, of_singles(largest)),
    _LESS[0],
    Operation("lessEqual32", "32", 2, of_singles(np.less_equal)),
    Operation("equal32", "32", 2, of_singles(np.equal)),
    _NAN[0],
    Operation("clampMin32", "32", 2, of_singles(at_least)),
    Operation("clampMax32", "32", 2, of_singles(at_most)),
    _tensor("rint32", rounded),
    Operation("rint32ToInt", "32", 1, rounded_to_integers),
    Operation("fromInt32", "integer", 2, of_integers(np.float32, 32)),
    Operation("widen", "32", 1, of_singles(lambda x: x.astype(np.float64), 1)),
    Operation("narrow", "64", 1, of_doubles(lambda x: x.astype(np.float32), 1)),
    *(pair[1] for pair in (_ADD, _SUB, _MUL, _DIV, _SQRT, _NEG, _ABS, _NAN, _LESS)),
    Operation("fromIntTo64", "integer", 2, of_integers(np.float64, 64)),
    _tensor("exp32", elementary.exp),
    _tensor("log32", elementary.log),
    _tensor("sigmoid32", elementary.sigmoid),
    _tensor("rsqrt32", elementary.rsqrt),
    _tensor("quantise", quantised, 2),
    Operation("quantiseToInt", "32", 2, quantised_to_integers),
    Operation("steps", "32", 2, grid_steps),
    Operation("philox4x32", "64", 2, philox),
)
