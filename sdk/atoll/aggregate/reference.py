"""The rules as the specification states them, one coordinate and one Python integer at a time.

Slow on purpose: the fast paths are tested against these, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    mixed = [
        [sum(rows[j][k] for j in nearest(rows, i, n - f)) for k in range(len(rows[0]))]
        for i in range(n)
    ]
    numerators = [trimmed_sum([row[k] for row in mixed], f) for k in range(len(rows[0]))]
    return numerators, (n - f) * (n - 2 * f)
