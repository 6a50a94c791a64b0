"""Byzantine-robust rules over int8 updates on the shared grid, all in integers.

A rule turns n updates into an integer vector over one denominator. The default is the median of
each coordinate (`atoll.job.methods.DENSE_RULE`), which never leaves what honest updates say of it.
Nearest-neighbour mixing (NNM) may go in front of any: each update is replaced by the sum of its
n−f nearest (itself included, distance ties by row order). Its error is order-optimal for n > 2f
(Allouah et al. 2023, arXiv:2302.01772), which says nothing of single coordinates: updates that
differ from honest ones in few are mixed into every row, and a backdoor passes (docs/attacks.md).

Rows are in ascending seat order; the caller sorts, so arrival order never matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.aggregation.chunks import PassPlan
from atoll.aggregation.coordinatewise import BoolMatrix
from atoll.aggregation.gram import Int64Matrix, squared_distances
from atoll.aggregation.passes import gram, trimmed_sums, weighted_sums
from atoll.aggregation.weights import BY_WEIGHTS, Weights
from atoll.errors import ConfigError
from atoll.numerics.codec.update_codec import VectorRow
from atoll.protocol.rules import RULES

MAX_DENOMINATOR = 1 << 16
"""What the outer step takes; every rule stays within it for n ≤ 256."""


BY_TRIMMING: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {"median": lambda n, _f: (n - 1) // 2, "trimmed_mean": lambda _n, f: f}
)
"""Values that a rule of each coordinate drops at either end, of n updates and f."""


@dataclass(frozen=True)
class Aggregate:
    """A merged update on the grid.

    Attributes:
        numerators: (d,) integers; the merged update is numerators / denominator grid steps.
        denominator: 1 to 65536.
        weights: each row's share; of a coordinate-wise rule, its share before trimming. They sum
            to 1, or to less where a rule clips towards zero.
    """

    numerators: npt.NDArray[np.signedinteger[Any]]
    denominator: int
    weights: tuple[Fraction, ...]


def aggregate(
    rule: str,
    rows: Sequence[VectorRow],
    f: int,
    *,
    plan: PassPlan | None = None,
    gram_nn: Int64Matrix | None = None,
) -> Aggregate:
    """Merges n int8 updates of length d, in at most two passes over them.

    Args:
        rule: its name in `atoll.protocol.rules`, of one that is not for sparse updates.
        rows: updates in ascending seat order; decoded as they are read, or arrays.
        f: faulty updates to bear.
        gram_nn: the rows' Gram matrix, where the caller has it already; it saves a pass.

    Raises:
        ConfigError: n and f do not meet the rule's condition; the message states it.
    """
    n, chosen = len(rows), RULES[rule]
    check_counts(n, f)
    if gram_nn is None:
        is_needed = chosen.mixes or chosen.compares
        gram_nn = gram(rows, plan) if is_needed else np.zeros((n, n), dtype=np.int64)
    mask_nn = neighbours(squared_distances(gram_nn), f) if chosen.mixes else None
    if chosen.base in BY_TRIMMING:
        return _by_trimming(rows, BY_TRIMMING[chosen.base](n, f), mask_nn, plan)
    mask = np.eye(n, dtype=np.int64) if mask_nn is None else mask_nn.astype(np.int64)
    # Without mixing this is the Gram matrix itself; else that of the mixes.
    found = BY_WEIGHTS[chosen.base](mask @ gram_nn @ mask.T, f, MAX_DENOMINATOR)
    return _by_weights(rows, _of_updates(found, mask), plan)


def check_counts(n: int, f: int) -> None:
    """Raises ConfigError unless n > 2f ≥ 0."""
    if f < 0 or n <= 2 * f:
        raise ConfigError(f"a rule that bears f = {f} faults needs more than {2 * f} updates: {n}")


def neighbours(distances_nn: Int64Matrix, f: int) -> BoolMatrix:
    """(n, n) mask: row i marks the n−f updates nearest to i, ties by row order."""
    n = len(distances_nn)
    nearest = np.argsort(distances_nn, axis=1, kind="stable")[:, : n - f]
    mask_nn = np.zeros((n, n), dtype=np.bool_)
    np.put_along_axis(mask_nn, nearest, True, axis=1)
    return mask_nn


def _by_trimming(
    rows: Sequence[VectorRow], trim: int, mask_nn: BoolMatrix | None, plan: PassPlan | None
) -> Aggregate:
    n = len(rows)
    mixed, shares = 1, (Fraction(1, n),) * n
    if mask_nn is not None:
        mixed = int(mask_nn[0].sum())
        shares = tuple(Fraction(int(count), n * mixed) for count in mask_nn.sum(axis=0))
    return Aggregate(trimmed_sums(rows, trim, mask_nn, plan), mixed * (n - 2 * trim), shares)


def _by_weights(rows: Sequence[VectorRow], weights: Weights, plan: PassPlan | None) -> Aggregate:
    shares = tuple(Fraction(value, weights.denominator) for value in weights.numerators)
    return Aggregate(weighted_sums(rows, weights.numerators, plan), weights.denominator, shares)


def _of_updates(weights: Weights, mask: Int64Matrix) -> Weights:
    """Weights of the updates from those of their mixes, over at most MAX_DENOMINATOR, floored."""
    numerators = (np.array(weights.numerators, dtype=np.int64) @ mask).tolist()
    denominator = weights.denominator * int(mask[0].sum())
    if denominator <= MAX_DENOMINATOR:
        return Weights(tuple(numerators), denominator)
    floored = tuple(value * MAX_DENOMINATOR // denominator for value in numerators)
    return Weights(floored, MAX_DENOMINATOR)
