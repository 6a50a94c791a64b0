"""The passes over the updates: compiled where this machine can and it pays, numpy otherwise.

Both give the same bits, so which one runs is nobody's business but the clock's.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.merge.chunks import Plan
from atoll.merge.compiled import MAX_ROWS, MergeKernels, kernels
from atoll.merge.coordinatewise import (
    BoolMatrix,
    Int32Vector,
    trimmed_sums_numpy,
    weighted_sums_numpy,
)
from atoll.merge.gram import Int8Vector, Int64Matrix, gram_numpy

WORTH_COMPILING = 1 << 24
"""Values in all rows together below which numpy is done before a compiler would have started."""


def gram(rows: Sequence[Int8Vector], plan: Plan | None = None) -> Int64Matrix:
    """Inner products of all pairs, (n, n) int64."""
    plan = plan or Plan()
    native = _native(rows, plan)
    return native.gram(rows, plan) if native else gram_numpy(rows, plan)


def trimmed_sums(
    rows: Sequence[Int8Vector], f: int, mask_nn: BoolMatrix | None, plan: Plan | None = None
) -> Int32Vector:
    """Per coordinate the sum of the middle n−2f values, or of the middle mixes; (d,) int32."""
    plan = plan or Plan()
    native = _native(rows, plan)
    if native:
        return native.trimmed_sums(rows, f, mask_nn, plan)
    return trimmed_sums_numpy(rows, f, mask_nn, plan)


def weighted_sums(
    rows: Sequence[Int8Vector], weights: Sequence[int], plan: Plan | None = None
) -> Int32Vector:
    """Σ weights[i] · rows[i]; the weights' magnitudes add to at most 2^24; (d,) int32."""
    plan = plan or Plan()
    if set(weights) <= {0, 1} and 1 in weights:  # a plain sum needs no products
        chosen = [row for row, weight in zip(rows, weights, strict=True) if weight]
        return trimmed_sums(chosen, 0, None, plan)
    native = _native(rows, plan)
    if native:
        return native.weighted_sums(rows, weights, plan)
    return weighted_sums_numpy(rows, weights, plan)


def _native(rows: Sequence[Int8Vector], plan: Plan) -> MergeKernels | None:
    if not plan.native or not 1 <= len(rows) <= MAX_ROWS:
        return None
    if len(rows) * len(rows[0]) < WORTH_COMPILING:
        return None
    return kernels() if all(row.flags.c_contiguous for row in rows) else None
