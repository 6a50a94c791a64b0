"""Rules whose result is one weight per update, worked out from the Gram matrix alone.

Everything is integers: a centre is Σ wⱼ xⱼ / W, its squared distance to an update follows from the
Gram matrix exactly, and roots and quotients are floored. Ties go to the earlier row. `scale` bounds
the weights' sum, so that a weighted sum of int8 rows fits int32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, isqrt
from types import MappingProxyType

from atoll.aggregation.gram import Int64Matrix, squared_distances
from atoll.errors import ConfigError
from atoll.protocol.checks import lower_median
from atoll.protocol.rules import MDA_SUBSETS

GEOMETRIC_MEDIAN_STEPS = 8  # a fixed number: a test of convergence would be one more rule
CENTRED_CLIP_STEPS = 5
_UNIT = 1 << 16
_PRECISION = 1 << 40  # so that the inverse of a large distance keeps its digits as an integer

Gram = Sequence[Sequence[int]]
"""The Gram matrix in Python integers, which do not overflow."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The merged update is Σ numerators[i] · row i / denominator."""

    numerators: tuple[int, ...]
    denominator: int


WeightRule = Callable[[Int64Matrix, int, int], Weights]


def mean(gram_nn: Int64Matrix, _f: int, _scale: int) -> Weights:
    """Every update the same."""
    return _subset(range(len(gram_nn)), len(gram_nn))


def krum(gram_nn: Int64Matrix, f: int, _scale: int) -> Weights:
    """The update with the lowest Krum score (Blanchard et al. 2017, arXiv:1703.02757).

    Raises:
        ConfigError: n < 2f + 3.
    """
    return _subset(_by_krum_score(gram_nn, f)[:1], len(gram_nn))


def multi_krum(gram_nn: Int64Matrix, f: int, _scale: int) -> Weights:
    """The mean of the n−f updates with the lowest Krum scores.

    Raises:
        ConfigError: n < 2f + 3.
    """
    n = len(gram_nn)
    return _subset(_by_krum_score(gram_nn, f)[: n - f], n)


def _by_krum_score(gram_nn: Int64Matrix, f: int) -> list[int]:
    n = len(gram_nn)
    if n < 2 * f + 3:
        raise ConfigError(f"Krum with f = {f} needs {2 * f + 3} updates or more: {n}")
    distances = squared_distances(gram_nn).tolist()
    # The distance to itself is 0, so n−f−2 others and itself are the n−f−1 smallest.
    scores = [sum(sorted(row)[: n - f - 1]) for row in distances]
    return sorted(range(n), key=lambda i: (scores[i], i))


def minimum_diameter(gram_nn: Int64Matrix, f: int, _scale: int) -> Weights:
    """MDA: the mean of the n−f updates whose largest mutual distance is smallest.

    El Mhamdi et al. 2018 (arXiv:1802.07927); every subset is tried, so n is small.

    Raises:
        ConfigError: more than 200,000 subsets.
    """
    n = len(gram_nn)
    if comb(n, f) > MDA_SUBSETS:
        raise ConfigError(f"MDA would try {comb(n, f)} subsets of {n} updates; at most 200,000")
    distances = squared_distances(gram_nn).tolist()
    # A subset's diameter is the first of all distances, from the largest down, of which both ends
    # are in it: looked for so, 256 updates take a second, and pair by pair minutes.
    falling = sorted(((distances[i][j], i, j) for i, j in combinations(range(n), 2)), reverse=True)

    def diameter(rows: tuple[int, ...]) -> int:
        inside = set(rows)
        return next((d for d, i, j in falling if i in inside and j in inside), 0)

    best = min(combinations(range(n), n - f), key=lambda rows: (diameter(rows), rows))
    return _subset(best, n)


def geometric_median(gram_nn: Int64Matrix, _f: int, scale: int) -> Weights:
    """Eight steps of the smoothed Weiszfeld iteration from the mean (Pillutla et al. 2022, RFA).

    Distances below one grid step count as one.
    """
    gram = gram_nn.tolist()
    n = len(gram)
    weights = [scale // n] * n
    for _ in range(GEOMETRIC_MEDIAN_STEPS):
        total = sum(weights)
        distances = _scaled_distances(gram, weights, total)
        inverse = [scale * _PRECISION // max(distance, total) for distance in distances]
        weights = [scale * value // sum(inverse) for value in inverse]
    return Weights(tuple(weights), sum(weights))


def centred_clip(gram_nn: Int64Matrix, _f: int, scale: int) -> Weights:
    """Five steps of centred clipping from zero (Karimireddy et al. 2021, arXiv:2012.10333).

    The radius of each step is the lower median distance to the centre.
    """
    gram = gram_nn.tolist()
    n = len(gram)
    weights = [0] * n
    for _ in range(CENTRED_CLIP_STEPS):
        kept = _clip_factors(_scaled_distances(gram, weights, scale), _UNIT)
        stays = n * _UNIT - sum(kept)
        weights = [
            (weight * stays + scale * factor) // (n * _UNIT)
            for weight, factor in zip(weights, kept, strict=True)
        ]
    return Weights(tuple(weights), scale)


def norm_clip(gram_nn: Int64Matrix, _f: int, scale: int) -> Weights:
    """The mean of updates whose norms are clipped to the lower median norm; ignores direction."""
    n = len(gram_nn)
    norms = [isqrt(int(gram_nn[i, i])) for i in range(n)]
    unit = scale // n
    return Weights(tuple(_clip_factors(norms, unit)), n * unit)


def _clip_factors(distances: Sequence[int], unit: int) -> list[int]:
    """min(1, radius / distance) in units of 1/unit; the radius is the lower median distance."""
    radius = lower_median(distances)
    return [unit if d <= radius else unit * radius // d for d in distances]


def _scaled_distances(gram: Gram, weights: Sequence[int], total: int) -> list[int]:
    """⌊total · ‖xᵢ − Σ wⱼ xⱼ / total‖⌋ for every i."""
    rows = range(len(gram))
    cross = [sum(weights[j] * gram[i][j] for j in rows) for i in rows]
    centre = sum(weights[i] * cross[i] for i in rows)
    # Never negative: total² times a squared distance, without any rounding.
    return [isqrt(total * total * gram[i][i] - 2 * total * cross[i] + centre) for i in rows]


def _subset(chosen: Sequence[int], n: int) -> Weights:
    members = set(chosen)
    return Weights(tuple(int(i in members) for i in range(n)), len(members))


BY_WEIGHTS: Mapping[str, WeightRule] = MappingProxyType(
    {
        "mean": mean,
        "geometric_median": geometric_median,
        "krum": krum,
        "multi_krum": multi_krum,
        "centred_clip": centred_clip,
        "minimum_diameter": minimum_diameter,
        "norm_clip": norm_clip,
    }
)
"""The rules of this file, by the names that `atoll.protocol.rules` has."""
