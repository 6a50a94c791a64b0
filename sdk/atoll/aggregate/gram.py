"""Exact integer Gram matrix and squared distances of int8 updates.

Every product and partial sum below is an integer that fp64 holds exactly (127² · chunk < 2^53),
so neither chunk size, nor threads, nor the BLAS in use can change a bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Int8Vector = npt.NDArray[np.int8]
Int64Matrix = npt.NDArray[np.int64]

CHUNK = 1 << 16
"""Coordinates handled at once; memory is O(rows · CHUNK)."""


def gram(rows: Sequence[Int8Vector], chunk: int = CHUNK) -> Int64Matrix:
    """Inner products of all pairs.

    Args:
        rows: n vectors of d grid integers; memory maps are read once, a chunk at a time.

    Returns:
        (n, n) int64.
    """
    n = len(rows)
    total = np.zeros((n, n), dtype=np.int64)
    for start in range(0, len(rows[0]) if rows else 0, chunk):
        block = np.stack([row[start : start + chunk] for row in rows]).astype(np.float64)
        total += (block @ block.T).astype(np.int64)
    return total


def squared_distances(gram_nn: Int64Matrix) -> Int64Matrix:
    """‖a − b‖² of all pairs from their Gram matrix, (n, n) int64."""
    norms = np.diagonal(gram_nn)
    return norms[:, None] + norms[None, :] - 2 * gram_nn
