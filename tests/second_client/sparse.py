"""The sparse codecs, `sparse` and `dct`: SPEC-MERGE.md, chapter 2."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.second_client.arithmetic import Array
from tests.second_client.packing import STEPS, block_steps, packed, unpacked

Integers = NDArray[np.int64]
CHUNK, KEPT, BLOCK = 4096, 224, 64
_PI = Decimal("3.14159265358979323846264338327950288419716939937510")


def positions(kind: str, count: int) -> int:
    """Values that the codec chooses from, for a vector of `count` coordinates."""
    return count if kind == "sparse" else -(-count // BLOCK) * BLOCK


def kept_of(positions: int) -> int:
    whole, rest = divmod(positions, CHUNK)
    return whole * KEPT + -(-rest * KEPT // CHUNK)


def section_sizes(positions: int) -> list[int]:
    """Bytes of the steps, the lower bits, the counts and the codes."""
    kept, groups, chunks = kept_of(positions), -(-positions // 16), -(-positions // CHUNK)
    return [-(-chunks // 2), -(-kept // 2), -(-(kept + groups) // 8), -(-kept // 4)]


def read(body: bytes, positions: int) -> Integers:
    """The row of a body of the right size. Raises ValueError where it is not canonical."""
    kept, ends = kept_of(positions), np.cumsum([0, *section_sizes(positions)]).tolist()
    steps, lower, counts, codes = (body[a:b] for a, b in pairwise(ends))
    chosen = unpacked(steps, -(-positions // CHUNK), 4)
    if (chosen >= len(STEPS)).any():
        raise ValueError("a step is none of the nine")
    ones = np.flatnonzero(unpacked(counts, kept + -(-positions // 16), 1))
    if len(ones) != kept:
        raise ValueError("another number of values than are kept")
    at = (ones - np.arange(kept)) * 16 + unpacked(lower, kept, 4)
    if (at[1:] <= at[:-1]).any() or (at >= positions).any():
        raise ValueError("indices that do not ascend within the vector")
    if (at // CHUNK != np.arange(kept) // KEPT).any():
        raise ValueError("another number of values in a chunk")
    row = np.zeros(positions, np.int64)
    row[at] = (2 * unpacked(codes, kept, 2) - 3) * np.array(STEPS)[chosen][at // CHUNK]
    return row


def write(x: Array) -> bytes:
    """The body of values in grid steps: the largest of every chunk, in two bits."""
    steps, at, codes = [], [], []
    for start in range(0, len(x), CHUNK):
        chunk = x[start : start + CHUNK]
        largest = np.argsort(-np.abs(chunk), kind="stable")[: kept_of(len(chunk))]
        indices = np.sort(largest)
        values = chunk[indices]
        (index,) = block_steps(values, len(values), reach=4, share=8)
        y = np.clip(values / np.float32(STEPS[index]), -4, 3)
        steps.append(index)
        at += (start + indices).tolist()
        codes += (np.floor(y / 2) + 2).astype(int).tolist()
    counts = np.zeros(len(at) + -(-len(x) // 16), np.int64)
    counts[np.array(at) // 16 + np.arange(len(at))] = 1
    parts = ((steps, 4), (np.array(at) % 16, 4), (counts, 1), (codes, 2))
    return b"".join(packed(np.array(part, np.int64), width) for part, width in parts)


@cache
def cosines() -> Any:
    """M: row k is the k-th cosine in integers of 2^-14."""
    rows = []
    for k in range(BLOCK):
        amplitude = (Decimal(1 if k == 0 else 2) / BLOCK).sqrt() * (1 << 14)
        turns = [(2 * i + 1) * k % (4 * BLOCK) for i in range(BLOCK)]
        exact = [amplitude * _cosine(_PI * turn / (2 * BLOCK)) for turn in turns]
        rows.append([int(value.to_integral_value(ROUND_HALF_EVEN)) for value in exact])
    return np.array(rows, np.int64)


@cache
def _cosine(angle: Decimal) -> Decimal:
    """By its series, to more digits than any rounding needs."""
    term = total = Decimal(1)
    for n in range(1, 40):
        term = -term * angle * angle / ((2 * n - 1) * (2 * n))
        total += term
    return total


def coefficients(x: Array) -> Array:
    """The transform of coordinates in grid steps, in grid steps."""
    units = np.zeros(positions("dct", len(x)), np.int64)
    clamped = np.clip(x, np.float32(-2047), np.float32(2047))
    units[: len(x)] = np.rint(clamped * np.float32(256))
    products = units.reshape(-1, BLOCK) @ cosines().T
    return (products.reshape(-1).astype(np.float64) / 2.0**22).astype(np.float32)


def coordinates(numerators: list[int], denominator: int, count: int) -> list[int]:
    """Merged coefficients as coordinates over the same denominator, clamped to ±127 steps."""
    products = np.array(numerators, np.int64).reshape(-1, BLOCK) @ cosines()
    limit = 127 * denominator
    return np.clip((2 * products + (1 << 14)) >> 15, -limit, limit).reshape(-1)[:count].tolist()


def fine_coordinates(row: Integers, count: int) -> Array:
    """What a row of coefficients says to the codec's feedback: 256ths of a grid step, halves up."""
    products = (256 * row).reshape(-1, BLOCK) @ cosines()
    return ((2 * products + (1 << 14)) >> 15).reshape(-1)[:count].astype(np.float32)
