"""Nearest-neighbour mixing followed by the trimmed mean, on integers.

Each update is replaced by the sum of its n−f nearest updates (itself included, distance ties by
seat order); then, per coordinate, the f lowest and f highest of these n sums are dropped and the
rest added. The result is that integer over (n−f)(n−2f). Allouah et al. 2023 (arXiv:2302.01772)
show the pair to be order-optimal for n > 2f.

Rows are in ascending seat order; the caller sorts, so arrival order never matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from atoll.aggregate.chunks import Plan
from atoll.aggregate.coordinatewise import BoolMatrix, Int32Vector
from atoll.aggregate.gram import Int8Vector, Int64Matrix, squared_distances
from atoll.aggregate.passes import gram, trimmed_sums
from atoll.errors import ConfigError


@dataclass(frozen=True)
class Aggregate:
    """A merged update on the grid.

    Attributes:
        numerators: (d,) int32; the merged update is numerators / denominator grid steps.
        denominator: positive integer.
        weights: each row's share in the mixes before trimming; they sum to 1.
    """

    numerators: Int32Vector
    denominator: int
    weights: tuple[Fraction, ...]


def check_counts(n: int, f: int) -> None:
    """Raises ConfigError unless n > 2f ≥ 0."""
    if f < 0 or n <= 2 * f:
        raise ConfigError(f"a rule that bears f = {f} faults needs more than {2 * f} updates: {n}")


def neighbours(distances_nn: Int64Matrix, f: int) -> BoolMatrix:
    """(n, n) mask: row i marks the n−f updates nearest to i, ties by seat order."""
    n = len(distances_nn)
    nearest = np.argsort(distances_nn, axis=1, kind="stable")[:, : n - f]
    mask = np.zeros((n, n), dtype=np.bool_)
    np.put_along_axis(mask, nearest, True, axis=1)
    return mask


def mixing_weights(mask_nn: BoolMatrix) -> tuple[Fraction, ...]:
    """Each row's share in the mixes."""
    return tuple(Fraction(int(count), int(mask_nn.sum())) for count in mask_nn.sum(axis=0))


def nnm_trimmed_mean(rows: Sequence[Int8Vector], f: int, plan: Plan | None = None) -> Aggregate:
    """NNM(f) then trimmed mean(f) of n int8 updates of length d, in two passes.

    Raises:
        ConfigError: n ≤ 2f.
    """
    n = len(rows)
    check_counts(n, f)
    plan = plan or Plan()
    mask_nn = neighbours(squared_distances(gram(rows, plan)), f)
    numerators = trimmed_sums(rows, f, mask_nn, plan)
    return Aggregate(numerators, (n - f) * (n - 2 * f), mixing_weights(mask_nn))
