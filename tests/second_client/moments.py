"""Moments between rounds: exact sums, what a seat sends of them, what a round opens with.

SPEC-STEP.md, chapter 18, and section 2 of an update (SPEC-MERGE.md, 2).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from tests.second_client.arithmetic import Array, narrow, quiet, wide
from tests.second_client.codec import layout_digest
from tests.second_client.documents import Shape
from tests.second_client.words import u16

Tensors = Mapping[str, Array]
Sums = dict[str, dict[str, Array]]
"""`rows` and `columns` of matrices, `whole` vectors, each by parameter."""
PARTS = ("rows", "columns", "whole")
BITS = 39
SHARE = np.float32(0.25)
"""Of a merged second moment, what a round opens with, where the first moment's square is less."""


# ----------------------------------------------------------------------------- V1 to V3: exact sums


def integers_of(x: Array) -> tuple[NDArray[np.int64], int]:
    """Integers n and E, with x about n · 2^(E − 39): of numbers that are finite."""
    top = int(np.frexp(max(float(np.abs(x).max()), 2.0**-80))[1]) - 1
    return np.rint(np.ldexp(wide(x), BITS - top)).astype(np.int64), top


@quiet
def sums_along(x: Array, axis: int) -> Array:
    """Exact sums along an axis, with one E for all of x; ∞ where one overflows."""
    n, top = integers_of(x)
    return narrow(np.ldexp(wide(n.sum(axis=axis)), top - BITS))


# ------------------------------------------------------------------------ V4: what a seat sends


def sums_of(v: Tensors) -> Sums:
    """The sums of second moments. Raises ValueError where there are none."""
    if not all(np.isfinite(tensor).all() for tensor in v.values()):
        raise ValueError("a second moment that is not finite has no sums")
    found: Sums = {part: {} for part in PARTS}
    for name in sorted(v):
        if v[name].ndim == 1:
            found["whole"][name] = v[name]
        else:
            found["rows"][name] = sums_along(v[name], 1)
            found["columns"][name] = sums_along(v[name], 0)
    if not all(np.isfinite(line).all() for part in found.values() for line in part.values()):
        raise ValueError("a sum that is not finite is not sent")
    return found


def factored_header(shapes: Mapping[str, Shape]) -> bytes:
    return b"ATSM" + bytes([1, 0]) + u16(len(shapes)) + layout_digest(shapes)


def lines(shapes: Mapping[str, Shape]) -> list[tuple[str, str, int]]:
    """Part, name and length of every line of numbers in section 2, in its order."""
    found = []
    for name in sorted(shapes):
        parts = zip(("rows", "columns") if len(shapes[name]) == 2 else ("whole",), shapes[name],
                    strict=True)  # fmt: skip
        found += [(part, name, length) for part, length in parts]
    return found


def write_factored(sums: Sums, shapes: Mapping[str, Shape]) -> bytes:
    """Section 2."""
    body = [sums[part][name].astype("<f4").tobytes() for part, name, _ in lines(shapes)]
    return factored_header(shapes) + b"".join(body)


def read_factored(data: bytes, shapes: Mapping[str, Shape]) -> NDArray[np.uint32]:
    """The bits of section 2's numbers. Raises ValueError where it is not canonical."""
    start = factored_header(shapes)
    count = sum(length for _, _, length in lines(shapes))
    if data[: len(start)] != start or len(data) != len(start) + 4 * count:
        raise ValueError("another header or size than this job's sums")
    words = np.frombuffer(data[len(start) :], "<u4")
    if (words >= 0x7F800000).any():  # the sign of −0 and of what is negative is the top bit
        raise ValueError("a sum is negative, minus zero or not finite")
    return words


def named_sums(words: NDArray[np.uint32], shapes: Mapping[str, Shape]) -> Sums:
    """The lines that section 2's words are."""
    found, at = {part: {} for part in PARTS}, 0
    for part, name, length in lines(shapes):
        found[part][name] = words[at : at + length].astype("<u4").view("<f4")
        at += length
    return found


# ---------------------------------------------------------------- V5 to V8: what a round opens with


def initial_m(values: NDArray[np.int8] | Array, exponent: int) -> Array:
    """From the state's integers; the numbers of `fp32` are there already."""
    if values.dtype == np.float32:
        return values
    return values.astype(np.float32) * np.float32(2.0**exponent)


@quiet
def initial_v(m: Array, sums: Sums, name: str) -> Array:
    """From a matrix's sums or a vector, and never below the square of m."""
    floor = m * m
    if m.ndim == 1:
        return np.maximum(sums["whole"][name] * SHARE, floor)
    rows, columns = sums["rows"][name], sums["columns"][name]
    total = wide(sums_along(rows, 0))
    if total == 0.0:
        return floor
    return np.maximum(narrow(wide(rows)[:, None] * wide(columns) / total) * SHARE, floor)
