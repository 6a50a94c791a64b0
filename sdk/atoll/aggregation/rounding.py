"""Merged updates as integers of few bits, so that they can be told at a byte a parameter.

Rule of this file: SPEC-MERGE.md, 6: what moves the model is rounded to 2^-fineness of a grid step,
a first moment to whole ones; half to even, clamped to ±127.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from atoll.aggregation.rules import Aggregate

LIMIT: Final = 127
_AT_ONCE: Final = 1 << 16
Int8Vector = npt.NDArray[np.int8]


def rounded(numerators: npt.NDArray[Any], denominator: int, fineness: int = 0) -> Int8Vector:
    """numerators / denominator in steps of 2^-fineness.

    Binary64 quotients are enough: one that is no half is at least 2^-17 away from it, which is far
    more than the quotient of so small numbers is rounded by.
    """
    out = np.empty(len(numerators), dtype=np.int8)
    for at in range(0, len(out), _AT_ONCE):
        part = numerators[at : at + _AT_ONCE].astype(np.float64)
        part *= 1 << fineness
        part /= denominator
        np.rint(part, out=part)
        out[at : at + _AT_ONCE] = np.clip(part, -LIMIT, LIMIT, out=part)
    return out


def as_fp32(numerators: npt.NDArray[Any], denominator: int, unit_bits: int) -> npt.NDArray[Any]:
    """numerators · 2^-unit_bits / denominator: to binary64, one quotient, to fp32."""
    out = np.empty(len(numerators), dtype=np.float32)
    for at in range(0, len(out), _AT_ONCE):
        part = numerators[at : at + _AT_ONCE].astype(np.float64)
        part *= 2.0**-unit_bits
        out[at : at + _AT_ONCE] = part / denominator
    return out


def moving(aggregate: Aggregate, fineness: int | None) -> tuple[npt.NDArray[Any], int]:
    """Numerators and denominator of what moves the model; `aggregate` is in coordinates, and
    rounded where its codec has a fineness.
    """
    if fineness is None:
        return aggregate.numerators, aggregate.denominator
    return rounded(aggregate.numerators, aggregate.denominator, fineness), 1 << fineness
