"""The passes over the updates: compiled where this machine can and it pays, numpy otherwise.

Both give the same bits, so which one runs is nobody's business but the clock's. Rows are taken a
block at a time, so that a round of many seats takes no more memory than one of few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from atoll.aggregation.chunks import CHUNK, PassPlan, blocks
from atoll.aggregation.coordinatewise import (
    BoolMatrix,
    Int32Vector,
    trimmed_sums_numpy,
    weighted_sums_numpy,
)
from atoll.aggregation.gram import Int8Vector, Int64Matrix, gram_numpy
from atoll.aggregation.merge_kernels import MAX_ROWS, MergeKernels, kernels
from atoll.numerics.codec.update_codec import VectorRow

WORTH_COMPILING = 1 << 24
"""Values in all rows together below which numpy is done before a compiler would have started."""


def gram(rows: Sequence[VectorRow], plan: PassPlan | None = None) -> Int64Matrix:
    """Inner products of all pairs, (n, n) int64."""
    plan, total = plan or PassPlan(), np.zeros((len(rows), len(rows)), dtype=np.int64)
    native = _native(rows, plan)
    act = native.gram if native else gram_numpy
    for span in blocks(rows):
        total += act(_lanes(rows, span), plan)
    return total


def chunk_grams(rows: Sequence[VectorRow], plan: PassPlan | None = None) -> Iterator[Int64Matrix]:
    """`gram` of every chunk of `CHUNK` coordinates, of which the last may be shorter."""
    plan = plan or PassPlan()
    native = _native(rows, plan)
    act, length = native.gram if native else gram_numpy, len(rows[0])
    step = min(CHUNK, next(blocks(rows)).stop)
    for begin in range(0, length, CHUNK):
        total, end = np.zeros((len(rows), len(rows)), dtype=np.int64), min(begin + CHUNK, length)
        for at in range(begin, end, step):
            total += act(_lanes(rows, slice(at, min(at + step, end))), plan)
        yield total


def trimmed_sums(
    rows: Sequence[VectorRow], f: int, mask_nn: BoolMatrix | None, plan: PassPlan | None = None
) -> Int32Vector:
    """Per coordinate the sum of the middle n−2f values, or of the middle mixes; (d,) int32."""
    plan, out = plan or PassPlan(), np.empty(len(rows[0]), dtype=np.int32)
    native = _native(rows, plan)
    act = native.trimmed_sums if native else trimmed_sums_numpy
    for span in blocks(rows):
        out[span] = act(_lanes(rows, span), f, mask_nn, plan)
    return out


def weighted_sums(
    rows: Sequence[VectorRow], weights: Sequence[int], plan: PassPlan | None = None
) -> Int32Vector:
    """Σ weights[i] · rows[i]; the weights' magnitudes add to at most 2^24; (d,) int32."""
    plan = plan or PassPlan()
    if set(weights) <= {0, 1} and 1 in weights:  # a plain sum needs no products
        chosen = [row for row, weight in zip(rows, weights, strict=True) if weight]
        return trimmed_sums(chosen, 0, None, plan)
    out, native = np.empty(len(rows[0]), dtype=np.int32), _native(rows, plan)
    act = native.weighted_sums if native else weighted_sums_numpy
    for span in blocks(rows):
        out[span] = act(_lanes(rows, span), weights, plan)
    return out


def _lanes(rows: Sequence[VectorRow], span: slice) -> list[Int8Vector]:
    """The rows' values of a span, each one after another in memory."""
    return [np.ascontiguousarray(row[span]) for row in rows]


def _native(rows: Sequence[VectorRow], plan: PassPlan) -> MergeKernels | None:
    if not plan.native or not 1 <= len(rows) <= MAX_ROWS:
        return None
    return kernels() if len(rows) * len(rows[0]) >= WORTH_COMPILING else None
