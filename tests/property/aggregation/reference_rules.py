"""The rules as the specification states them, one coordinate and one Python integer at a time.

Slow on purpose: the fast paths are tested against these, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import isqrt

Rows = Sequence[Sequence[int]]


def squared_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """‖a − b‖²."""
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def nearest(rows: Rows, i: int, count: int) -> list[int]:
    """The `count` rows nearest to row i, itself included, ties by row order."""
    order = sorted(range(len(rows)), key=lambda j: (squared_distance(rows[i], rows[j]), j))
    return order[:count]


def trimmed_sum(values: Sequence[int], f: int) -> int:
    """Sum without the f lowest and the f highest."""
    return sum(sorted(values)[f : len(values) - f])


def nnm_trimmed_mean(rows: Rows, f: int) -> tuple[list[int], int]:
    """Numerators and denominator of NNM(f) then trimmed mean(f)."""
    n = len(rows)
    numerators, _ = trimmed_mean(mixes(rows, f), f)
    return numerators, (n - f) * (n - 2 * f)


def trimmed_mean(rows: Rows, f: int) -> tuple[list[int], int]:
    """Numerators and denominator of the trimmed mean; with f = ⌊(n−1)/2⌋ the median."""
    numerators = [trimmed_sum([row[k] for row in rows], f) for k in range(len(rows[0]))]
    return numerators, len(rows) - 2 * f


def mixes(rows: Rows, f: int) -> list[list[int]]:
    """NNM(f): each row's n−f nearest added up; a mix is that over n−f."""
    count = len(rows) - f
    return [
        [sum(rows[j][k] for j in nearest(rows, i, count)) for k in range(len(rows[0]))]
        for i in range(len(rows))
    ]


def krum_order(rows: Rows, f: int) -> list[int]:
    """Rows by the sum of squared distances to their n−f−2 nearest others."""
    others = [
        sorted(squared_distance(a, b) for j, b in enumerate(rows) if j != i)
        for i, a in enumerate(rows)
    ]
    return sorted(range(len(rows)), key=lambda i: (sum(others[i][: len(rows) - f - 2]), i))


def minimum_diameter(rows: Rows, f: int) -> tuple[int, ...]:
    """The first n−f rows, in lexicographic order, of smallest largest mutual distance."""
    subsets = combinations(range(len(rows)), len(rows) - f)
    return min(
        subsets,
        key=lambda subset: max(squared_distance(rows[i], rows[j]) for i in subset for j in subset),
    )


def geometric_median(rows: Rows, scale: int, steps: int = 8) -> list[int]:
    """Weights of the smoothed Weiszfeld iteration."""
    weights = [scale // len(rows)] * len(rows)
    for _ in range(steps):
        total = sum(weights)
        distances = [max(d, total) for d in _distances_to_centre(rows, weights, total)]
        inverse = [(scale << 40) // d for d in distances]
        weights = [scale * value // sum(inverse) for value in inverse]
    return weights


def centred_clip(rows: Rows, scale: int, steps: int = 5) -> list[int]:
    """Weights of centred clipping from zero, over `scale`."""
    n, unit = len(rows), 1 << 16
    weights = [0] * n
    for _ in range(steps):
        kept = clip_factors(_distances_to_centre(rows, weights, scale), unit)
        stays = n * unit - sum(kept)
        weights = [
            (w * stays + scale * k) // (n * unit) for w, k in zip(weights, kept, strict=True)
        ]
    return weights


def clip_factors(distances: Sequence[int], unit: int) -> list[int]:
    """min(1, lower median / distance) in units of 1/unit."""
    radius = sorted(distances)[(len(distances) - 1) // 2]
    return [unit if d <= radius else unit * radius // d for d in distances]


def norms(rows: Rows) -> list[int]:
    """⌊‖row‖⌋."""
    return [isqrt(sum(x * x for x in row)) for row in rows]


def _distances_to_centre(rows: Rows, weights: Sequence[int], total: int) -> list[int]:
    centre = [
        sum(w * row[k] for w, row in zip(weights, rows, strict=True)) for k in range(len(rows[0]))
    ]
    return [isqrt(squared_distance([total * x for x in row], centre)) for row in rows]
