"""Small codes in bytes, and the steps that blocks of coordinates choose: SPEC-MERGE.md, 2."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tests.second_client.arithmetic import Array

STEPS = (1, 2, 4, 5, 7, 10, 14, 20, 28)
Integers = NDArray[np.int64]


def packed(codes: Integers, width: int) -> bytes:
    """Codes of 1, 2 or 4 bits, the first in the lowest bits of a byte; the rest of it is zero."""
    lanes = 8 // width
    full = np.concatenate([codes, np.zeros(-len(codes) % lanes, np.int64)]).reshape(-1, lanes)
    return (full << (np.arange(lanes) * width)).sum(axis=1).astype(np.uint8).tobytes()


def unpacked(data: bytes, count: int, width: int) -> Integers:
    """The first `count` codes. Raises ValueError where bits after them are set."""
    shifts = np.arange(8 // width) * width
    codes = np.frombuffer(data, np.uint8).astype(np.int64)[:, None] >> shifts & ((1 << width) - 1)
    if codes.reshape(-1)[count:].any():
        raise ValueError("bits after the last code are set")
    return codes.reshape(-1)[:count]


def block_steps(x: Array, size: int, reach: int, share: int) -> Integers:
    """For every block, the index of the smallest step that cuts off few and none by far.

    Args:
        x: coordinates in grid steps, which may be infinite.
        reach: in steps; a block of n may have n // share beyond it, and none beyond twice as many.
    """
    found = []
    for at in range(0, len(x), size):
        magnitudes = np.abs(x[at : at + size])
        fits = (
            i
            for i, step in enumerate(STEPS)
            if (magnitudes > reach * step).sum() <= len(magnitudes) // share
            and not (magnitudes > 2 * reach * step).any()
        )
        found.append(next(fits, len(STEPS) - 1))
    return np.array(found, np.int64)
