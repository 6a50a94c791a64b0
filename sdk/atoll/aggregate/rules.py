"""Byzantine-robust rules over int8 updates on the shared grid, all in integers.

A rule turns n updates into an integer vector over one denominator. Nearest-neighbour mixing (NNM)
may go in front of any: each update is replaced by the sum of its n−f nearest (itself included,
distance ties by row order); NNM with the trimmed mean is order-optimal for n > 2f (Allouah et al.
2023, arXiv:2302.01772) and the default.

Rows are in ascending seat order; the caller sorts, so arrival order never matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np

from atoll.aggregate import weights as weight_rules
from atoll.aggregate.chunks import Plan
from atoll.aggregate.coordinatewise import BoolMatrix, Int32Vector
from atoll.aggregate.gram import Int8Vector, Int64Matrix, squared_distances
from atoll.aggregate.passes import gram, trimmed_sums, weighted_sums
from atoll.aggregate.weights import WeightRule, Weights
from atoll.errors import ConfigError

MAX_DENOMINATOR = 1 << 16
"""What the outer step takes; every rule stays within it for n ≤ 256."""


class Rule(StrEnum):
    """Names of the rules, as a configuration writes them."""

    MEAN = "mean"
    MEDIAN = "median"
    TRIMMED_MEAN = "trimmed_mean"
    GEOMETRIC_MEDIAN = "geometric_median"
    KRUM = "krum"
    MULTI_KRUM = "multi_krum"
    CENTRED_CLIP = "centred_clip"
    MINIMUM_DIAMETER = "minimum_diameter"
    NORM_CLIP = "norm_clip"


BY_WEIGHTS: dict[Rule, WeightRule] = {
    Rule.MEAN: weight_rules.mean,
    Rule.GEOMETRIC_MEDIAN: weight_rules.geometric_median,
    Rule.KRUM: weight_rules.krum,
    Rule.MULTI_KRUM: weight_rules.multi_krum,
    Rule.CENTRED_CLIP: weight_rules.centred_clip,
    Rule.MINIMUM_DIAMETER: weight_rules.minimum_diameter,
    Rule.NORM_CLIP: weight_rules.norm_clip,
}


@dataclass(frozen=True)
class Aggregate:
    """A merged update on the grid.

    Attributes:
        numerators: (d,) int32; the merged update is numerators / denominator grid steps.
        denominator: 1 to 65536.
        weights: each row's share; of a coordinate-wise rule, its share before trimming. They sum
            to 1, or to less where a rule clips towards zero.
    """

    numerators: Int32Vector
    denominator: int
    weights: tuple[Fraction, ...]


def aggregate(
    rule: Rule, rows: Sequence[Int8Vector], f: int, *, nnm: bool = False, plan: Plan | None = None
) -> Aggregate:
    """Merges n int8 updates of length d, in at most two passes over them.

    Args:
        rule: what to apply.
        rows: updates in ascending seat order; memory maps will do.
        f: faulty updates to bear.
        nnm: whether nearest-neighbour mixing goes first.

    Raises:
        ConfigError: n and f do not meet the rule's condition; the message states it.
    """
    n = len(rows)
    check_counts(n, f)
    if rule in (Rule.MEDIAN, Rule.TRIMMED_MEAN):
        trim = f if rule is Rule.TRIMMED_MEAN else (n - 1) // 2
        return _by_trimming(rows, f if nnm else None, trim, plan)
    gram_nn = _no_gram(n) if rule is Rule.MEAN and not nnm else gram(rows, plan)
    mask_nn = neighbours(squared_distances(gram_nn), f) if nnm else np.eye(n, dtype=np.bool_)
    return _by_weights(BY_WEIGHTS[rule], rows, gram_nn, (mask_nn, f), plan)


def nnm_trimmed_mean(rows: Sequence[Int8Vector], f: int, plan: Plan | None = None) -> Aggregate:
    """The default: NNM(f) then trimmed mean(f), an integer over (n−f)(n−2f).

    Raises:
        ConfigError: n ≤ 2f.
    """
    return aggregate(Rule.TRIMMED_MEAN, rows, f, nnm=True, plan=plan)


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
    rows: Sequence[Int8Vector], mixing_f: int | None, trim: int, plan: Plan | None
) -> Aggregate:
    n = len(rows)
    mixed, mask_nn, shares = 1, None, (Fraction(1, n),) * n
    if mixing_f is not None:
        mixed = n - mixing_f
        mask_nn = neighbours(squared_distances(gram(rows, plan)), mixing_f)
        shares = tuple(Fraction(int(count), n * mixed) for count in mask_nn.sum(axis=0))
    return Aggregate(trimmed_sums(rows, trim, mask_nn, plan), mixed * (n - 2 * trim), shares)


def _by_weights(
    rule: WeightRule,
    rows: Sequence[Int8Vector],
    gram_nn: Int64Matrix,
    mixing: tuple[BoolMatrix, int],
    plan: Plan | None,
) -> Aggregate:
    mask_nn, f = mixing
    mask = mask_nn.astype(np.int64)
    # With one row a mix this is the Gram matrix itself; else that of the mixes.
    found = rule(mask @ gram_nn @ mask.T, f, MAX_DENOMINATOR)
    weights = _of_updates(found, mask)
    shares = tuple(Fraction(value, weights.denominator) for value in weights.numerators)
    return Aggregate(weighted_sums(rows, weights.numerators, plan), weights.denominator, shares)


def _of_updates(found: Weights, mask: Int64Matrix) -> Weights:
    """Weights of the updates from those of their mixes, over at most MAX_DENOMINATOR, floored."""
    numerators = (np.array(found.numerators, dtype=np.int64) @ mask).tolist()
    denominator = found.denominator * int(mask[0].sum())
    if denominator <= MAX_DENOMINATOR:
        return Weights(tuple(numerators), denominator)
    floored = tuple(value * MAX_DENOMINATOR // denominator for value in numerators)
    return Weights(floored, MAX_DENOMINATOR)


def _no_gram(n: int) -> Int64Matrix:
    return np.zeros((n, n), dtype=np.int64)
