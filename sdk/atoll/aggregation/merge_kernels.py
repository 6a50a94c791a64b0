"""The compiled passes of `kernels.c`, where this machine has a C compiler.

The source is compiled once into the user's cache (`kernels.build`), and used only after it has
agreed with the numpy path on extreme and on mixed values. Without a compiler, or where anything
differs, `kernels()` is None and the numpy path runs: slower, the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from atoll.aggregation.chunks import PassPlan
from atoll.aggregation.coordinatewise import (
    BoolMatrix,
    Int32Vector,
    trimmed_sums_numpy,
    weighted_sums_numpy,
)
from atoll.aggregation.gram import Int8Vector, Int64Matrix, gram_numpy
from atoll.aggregation.networks import middle_network
from atoll.numerics.kernels.build import Unusable, accepted, load_library

MAX_ROWS = 256
SOURCE = Path(__file__).with_name("kernels.c")


class _Network(ctypes.Structure):
    _fields_ = (
        ("pairs", ctypes.c_void_p),
        ("length", ctypes.c_int32),
        ("first", ctypes.c_int32),
        ("last", ctypes.c_int32),
    )


class MergeKernels:
    """The compiled functions with numpy arguments; rows are n ≤ 256 contiguous int8 vectors."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def gram(self, rows: Sequence[Int8Vector], plan: PassPlan) -> Int64Matrix:
        """As `gram_numpy`."""
        n, table = len(rows), _table(rows)

        def partial(start: int, stop: int) -> Int64Matrix:
            out = np.zeros((n, n), dtype=np.int64)
            self._library.atoll_gram(table, n, *_span(start, stop), _pointer(out))
            return out

        upper = np.sum(plan.share(len(rows[0]), partial), axis=0, dtype=np.int64)
        return np.triu(upper) + np.triu(upper, 1).T

    def trimmed_sums(
        self, rows: Sequence[Int8Vector], f: int, mask_nn: BoolMatrix | None, plan: PassPlan
    ) -> Int32Vector:
        """As `trimmed_sums_numpy`."""
        n, table = len(rows), _table(rows)
        out = np.empty(len(rows[0]), dtype=np.int32)
        pairs = np.array([(x.low, x.high) for x in middle_network(n, f)], dtype=np.int32)
        network = _Network(pairs.ctypes.data, len(pairs), f, n - f)
        dropped = [] if mask_nn is None else [np.flatnonzero(~row) for row in mask_nn]
        ends = np.cumsum([0, *map(len, dropped)], dtype=np.int32)
        excluded = np.concatenate([*dropped, np.empty(0)]).astype(np.int32)
        mixing = (None, None) if mask_nn is None else (_pointer(ends), _pointer(excluded))

        def work(start: int, stop: int) -> None:
            span = _span(start, stop)
            self._library.atoll_trimmed(
                table, n, *span, *mixing, ctypes.byref(network), _pointer(out)
            )

        plan.share(len(out), work)
        return out

    def weighted_sums(
        self, rows: Sequence[Int8Vector], weights: Sequence[int], plan: PassPlan
    ) -> Int32Vector:
        """As `weighted_sums_numpy`."""
        n, table = len(rows), _table(rows)
        out = np.empty(len(rows[0]), dtype=np.int32)
        factors = np.array(weights, dtype=np.int32)

        def work(start: int, stop: int) -> None:
            span = _span(start, stop)
            self._library.atoll_weighted(table, n, *span, _pointer(factors), _pointer(out))

        plan.share(len(out), work)
        return out


@lru_cache(maxsize=1)
def kernels() -> MergeKernels | None:
    """The compiled passes, or None where they cannot be had or do not agree."""
    library = accepted("the merge's passes", lambda: MergeKernels(load_library(SOURCE)), _parted)
    return None if isinstance(library, Unusable) else library


def _parted(passes: MergeKernels) -> list[str]:
    """The passes that do not give the numpy path's bits here."""
    n, d = 9, 1500
    mixed = (np.arange(n * d, dtype=np.int64) * 2654435761 % 255 - 127).astype(np.int8)
    extreme = np.full((n, d), 127, dtype=np.int8)
    extreme[1::2] = -127
    mask_nn = np.eye(n, dtype=np.bool_) | np.tri(n, dtype=np.bool_)[::-1]
    weights = [(1 << 20) + i for i in range(n)]
    plan, parted = PassPlan(threads=1), []
    for rows in (list(mixed.reshape(n, d)), list(extreme)):
        if not np.array_equal(passes.gram(rows, plan), gram_numpy(rows, plan)):
            parted.append("gram")
        sums = passes.weighted_sums(rows, weights, plan)
        if not np.array_equal(sums, weighted_sums_numpy(rows, weights, plan)):
            parted.append("weighted sums")
        for mask in (None, mask_nn):
            trimmed = passes.trimmed_sums(rows, 2, mask, plan)
            if not np.array_equal(trimmed, trimmed_sums_numpy(rows, 2, mask, plan)):
                parted.append("trimmed sums")
    return parted


def _table(rows: Sequence[Int8Vector]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(rows))(*(row.ctypes.data for row in rows))


def _span(start: int, stop: int) -> tuple[ctypes.c_int64, ctypes.c_int64]:
    return ctypes.c_int64(start), ctypes.c_int64(stop)


def _pointer(array: npt.NDArray[np.int32] | Int64Matrix) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
