"""Updates of few coordinates: the codecs `sparse` and `dct` of SPEC-BYTES.md, chapter 4.

A chunk of 4096 coordinates keeps its 224 largest. `dct` does so with the coefficients of a cosine
transform of blocks of 64, in integers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.second_client.arithmetic import Array
from tests.second_client.packing import BLOCK_STEPS, block_steps, packed, unpacked

CHUNK, KEPT, GROUP = 4096, 224, 16
DCT_BLOCK, DCT_UNIT, FINENESS = 64, 1 << 14, 256
Integers = NDArray[np.int64]


def kept_of(length: int) -> int:
    """How many of so many coordinates are sent."""
    return length // CHUNK * KEPT - -(length % CHUNK * KEPT) // CHUNK


def largest(x: Array) -> Integers:
    """Where the coordinates stand that are sent, ascending; of equal ones the first."""
    found: list[int] = []
    for at in range(0, len(x), CHUNK):
        chunk = np.abs(x[at : at + CHUNK])
        order = np.argsort(-chunk, kind="stable")[: kept_of(len(chunk))]
        found.extend(sorted(at + order))
    return np.array(found, np.int64)


def sparse_body(x: Array) -> bytes:
    """Steps, lower halves of the places, their upper halves in unary, codes."""
    places = largest(x)
    values = x[places]
    indices = block_steps(values, KEPT, reach=4, share=8)
    steps = np.array(BLOCK_STEPS, np.float32)[indices].repeat(KEPT)[: len(values)]
    codes = (np.floor(np.clip(values / steps, -4, 3) / 2) + 2).astype(np.int64)
    marks = np.zeros(len(places) - -len(x) // GROUP, np.int64)
    marks[places // GROUP + np.arange(len(places))] = 1
    return packed(indices, 4) + packed(places % GROUP, 4) + packed(marks, 1) + packed(codes, 2)


def sparse_integers(body: bytes, length: int) -> Integers:
    """What a body says, in grid steps; 0 where nothing is sent."""
    kept, found, at = kept_of(length), [], 0
    for count, width in (
        (-(-length // CHUNK), 4),
        (kept, 4),
        (kept - -length // GROUP, 1),
        (kept, 2),
    ):
        size = -(-count * width // 8)
        found.append(unpacked(body[at : at + size], count, width))
        at += size
    indices, lower, marks, codes = found
    places = (np.flatnonzero(marks) - np.arange(kept)) * GROUP + lower
    values = np.zeros(length, np.int64)
    values[places] = (2 * codes - 3) * np.array(BLOCK_STEPS)[indices].repeat(KEPT)[:kept]
    return values


def dct_length(length: int) -> int:
    """Coefficients of so many coordinates: whole blocks of them."""
    return -(-length // DCT_BLOCK) * DCT_BLOCK


def dct_matrix() -> Any:
    """[64, 64]: row k is the k-th cosine, rounded to multiples of 2^-14; as integers."""
    rows = []
    for k in range(DCT_BLOCK):
        amplitude = math.sqrt((2 if k else 1) / DCT_BLOCK) * DCT_UNIT
        turns = [(2 * i + 1) * k % 256 / 128 for i in range(DCT_BLOCK)]
        rows.append([round(amplitude * math.cos(math.pi * turn)) for turn in turns])
    return np.array(rows, np.float64)


def dct_coefficients(x: Array) -> Array:
    """Of coordinates in grid steps, in grid steps."""
    fine = np.zeros(dct_length(len(x)))
    fine[: len(x)] = np.rint(np.clip(x, -2047, 2047) * np.float32(FINENESS))
    sums = fine.reshape(-1, DCT_BLOCK) @ dct_matrix().T
    return (sums.reshape(-1) / (DCT_UNIT * FINENESS)).astype(np.float32)


def dct_inverse(coefficients: Integers, length: int) -> Integers:
    """The coordinates of integer coefficients, in the same unit, halves up."""
    blocks = coefficients.astype(np.float64).reshape(-1, DCT_BLOCK)
    sums = (blocks @ dct_matrix()).astype(np.int64).reshape(-1)[:length]
    return (2 * sums + DCT_UNIT) // (2 * DCT_UNIT)
