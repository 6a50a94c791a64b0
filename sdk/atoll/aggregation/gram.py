"""Exact integer Gram matrix and squared distances of int8 updates, and the types of a row.

Every product and partial sum is an integer that fp64 holds exactly (127² · chunk < 2^53), so
neither chunk length nor the BLAS in use can change a bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from atoll.aggregation.chunks import PassPlan

Int8Vector = npt.NDArray[np.int8]
Int64Matrix = npt.NDArray[np.int64]


def gram_numpy(rows: Sequence[Int8Vector], plan: PassPlan) -> Int64Matrix:
    """Inner products of all pairs of n vectors of d grid integers, (n, n) int64.

    Memory maps are read once, a chunk at a time.
    """
    n = len(rows)
    total = np.zeros((n, n), dtype=np.int64)
    for chunk in plan.chunks(len(rows[0]) if rows else 0):
        block = np.stack([row[chunk] for row in rows]).astype(np.float64)
        total += (block @ block.T).astype(np.int64)
    return total


def squared_distances(gram_nn: Int64Matrix) -> Int64Matrix:
    """‖a − b‖² of all pairs from their Gram matrix, (n, n) int64."""
    norms = np.diagonal(gram_nn)
    return norms[:, None] + norms[None, :] - 2 * gram_nn
