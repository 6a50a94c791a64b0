"""Sorting networks cut down to the order statistics that are wanted.

A network is a fixed list of compare-exchanges, so a whole chunk of coordinates goes through each at
once with vector minimum and maximum. Batcher's odd-even merge sort (Batcher 1968; Knuth, TAOCP 3,
5.2.2 M) is within a few percent of the best known networks at the sizes in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Exchange:
    """Lane `low` gets the minimum and lane `high` the maximum, each only where it is needed."""

    low: int
    high: int
    needs_min: bool
    needs_max: bool


def batcher(n: int) -> list[tuple[int, int]]:
    """Pairs (low, high) that sort any n lanes, for any n."""
    pairs = []
    top = 1 << max(0, (n - 1).bit_length() - 1)
    p = top
    while p > 0:
        q, r, d = top, 0, p
        while True:
            pairs += [(i, i + d) for i in range(n - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1
    return pairs


@lru_cache(maxsize=256)
def middle_network(n: int, f: int) -> tuple[Exchange, ...]:
    """Exchanges after which lanes f … n−f−1 hold the middle n−2f values, in any order.

    Walking back from the end, an exchange is dropped when both its lanes end in the middle or both
    outside it, since then only their order would change; and a result nobody reads is not computed.
    """
    wanted = [f <= lane < n - f for lane in range(n)]
    touched = [False] * n
    kept: list[Exchange] = []
    for low, high in reversed(batcher(n)):
        if not (touched[low] or touched[high]) and _same_side(low, high, n, f):
            continue
        kept.append(Exchange(low, high, wanted[low], wanted[high]))
        touched[low] = touched[high] = True
        wanted[low] = wanted[high] = True
    return tuple(reversed(kept))


def _same_side(low: int, high: int, n: int, f: int) -> bool:
    return (low < f) == (high < f) and (low >= n - f) == (high >= n - f)
