"""The merge rules of SPEC-MERGE.md, chapter 4: a row's weight, and what each rule needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import isqrt
from typing import Any

Gram = Sequence[Sequence[int]]
UNIT = 1 << 16


def lower_median(values: Sequence[Any]) -> Any:
    return sorted(values)[-(-len(values) // 2) - 1] if values else 0


def distance(G: Gram, i: int, j: int) -> int:
    return G[i][i] + G[j][j] - 2 * G[i][j]


def _only(chosen: Sequence[int], n: int) -> tuple[list[int], int]:
    return [int(i in chosen) for i in range(n)], len(chosen)


def _mean(G: Gram, _f: int) -> tuple[list[int], int]:
    return _only(range(len(G)), len(G))


def _krum_order(G: Gram, f: int) -> list[int]:
    n = len(G)
    scores = [sum(sorted(distance(G, i, j) for j in range(n))[: n - f - 1]) for i in range(n)]
    return sorted(range(n), key=lambda i: (scores[i], i))


def _krum(G: Gram, f: int) -> tuple[list[int], int]:
    return _only(_krum_order(G, f)[:1], len(G))


def _multi_krum(G: Gram, f: int) -> tuple[list[int], int]:
    return _only(_krum_order(G, f)[: len(G) - f], len(G))


def _minimum_diameter(G: Gram, f: int) -> tuple[list[int], int]:
    n = len(G)
    D = [[distance(G, i, j) for j in range(n)] for i in range(n)]

    def diameter(chosen: tuple[int, ...]) -> int:
        return max((D[i][j] for i, j in combinations(chosen, 2)), default=0)

    return _only(min(combinations(range(n), n - f), key=diameter), n)  # the first of equals


def _to_centre(G: Gram, weights: Sequence[int], total: int) -> list[int]:
    """⌊total · distance of row i to Σ w x / total⌋."""
    rows = range(len(G))
    cross = [sum(weights[j] * G[i][j] for j in rows) for i in rows]
    centre = sum(weights[i] * cross[i] for i in rows)
    return [isqrt(total * total * G[i][i] - 2 * total * cross[i] + centre) for i in rows]


def clipped(lengths: Sequence[int], unit: int) -> list[int]:
    radius = lower_median(lengths)
    return [unit if length <= radius else unit * radius // length for length in lengths]


def _geometric_median(G: Gram, _f: int) -> tuple[list[int], int]:
    weights = [UNIT // len(G)] * len(G)
    for _ in range(8):
        total = sum(weights)
        inverse = [(UNIT << 40) // max(d, total) for d in _to_centre(G, weights, total)]
        weights = [UNIT * value // sum(inverse) for value in inverse]
    return weights, sum(weights)


def _centred_clip(G: Gram, _f: int) -> tuple[list[int], int]:
    n, weights = len(G), [0] * len(G)
    for _ in range(5):
        kept = clipped(_to_centre(G, weights, UNIT), UNIT)
        stays = n * UNIT - sum(kept)
        weights = [(w * stays + UNIT * k) // (n * UNIT) for w, k in zip(weights, kept, strict=True)]
    return weights, UNIT


def _norm_clip(G: Gram, _f: int) -> tuple[list[int], int]:
    unit = UNIT // len(G)
    return clipped([isqrt(G[i][i]) for i in range(len(G))], unit), len(G) * unit


WEIGHTS = {
    "mean": _mean,
    "krum": _krum,
    "multi_krum": _multi_krum,
    "minimum_diameter": _minimum_diameter,
    "geometric_median": _geometric_median,
    "centred_clip": _centred_clip,
    "norm_clip": _norm_clip,
}


TRIMS: dict[str, Callable[[int, int], int]] = {
    "median": lambda n, _f: (n - 1) // 2,
    "trimmed_mean": lambda _n, f: f,
}
BASES = (*WEIGHTS, *TRIMS)
RULES = (*BASES, *(f"nnm_{base}" for base in BASES))
BEAR_NOBODY = ("mean", "contributor_mean")
NEED_MORE = ("krum", "multi_krum")
SUBSETS = {"minimum_diameter": 200_000}
"""How many of them a rule may try."""


def least(rule: str, f: int) -> int:
    """Updates that a rule needs to bear so many liars."""
    return 2 * f + (3 if f and rule.removeprefix("nnm_") in NEED_MORE else 1)
