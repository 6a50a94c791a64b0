"""Votes on exponents and the outer step: SPEC-MERGE.md, chapters 5 and 6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import isqrt, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.second_client.codec import CODECS

Row = NDArray[np.int64]


def half_to_even(numerator: int, denominator: int) -> int:
    """The nearest integer to a quotient; of two the even one."""
    whole, rest = divmod(numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2))


# ------------------------------------------------------------------------------- votes (chapter 5)


def vote(kind: str, values: Row) -> int:
    """What one update says about one tensor's exponent."""
    target = CODECS[kind].votes
    assert target is not None
    p, a, b, d, c = target
    n = np.count_nonzero(values)

    def number(limit: int, k: int = 0) -> int:
        """N(limit / 2**k)."""
        return int(np.count_nonzero(abs(values.astype(np.int64)) << k > limit))

    if n == 0:
        return -4
    if p * number(a) > n:
        cut = number(c)
        return 4 if 2 * cut > n else 2 if 4 * cut > n else 1
    enough = [k for k in range(4) if p * number(b, k) > n and 4 * number(d, k) > n]
    least = min(enough, default=4)
    return -min(least, max(k for k in range(5) if p * number(c, k) <= n))


def middle(votes: Sequence[int]) -> int:
    """The middle vote."""
    ordered, half = sorted(votes), len(votes) // 2
    if len(votes) % 2:
        return ordered[half]
    low, high = ordered[half - 1], ordered[half]
    return 0 if low < 0 < high else min(low, high, key=abs)


def next_exponents(
    codec: Mapping[str, Any],
    exponents: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
    rows: Sequence[Row],
) -> dict[str, int]:
    """The next round's exponents of the tensors that were sent."""
    if codec["kind"] == "fp32":
        return dict(exponents)
    moved, votes = {}, [votes_of(codec["kind"], row, shapes) for row in rows]
    for name, said in zip(sorted(shapes), zip(*votes, strict=True), strict=True):
        move = middle(said)
        moved[name] = min(max(exponents[name] + move, codec["min_exponent"]), codec["max_exponent"])
    return moved


def votes_of(kind: str, row: Row, shapes: Mapping[str, tuple[int, ...]]) -> list[int]:
    """What a row says about every tensor's exponent."""
    votes, at = [], 0
    for name in sorted(shapes):
        end = at + prod(shapes[name])
        votes.append(vote(kind, row[at:end]))
        at = end
    return votes


# -------------------------------------------------------------------------- outer step (chapter 6)

MOMENTUM_LIMIT = 1 << 52


def rounded(numerator: int, denominator: int) -> int:
    """The nearest integer to a quotient, halves up."""
    return (2 * numerator + denominator) // (2 * denominator)


def clamped(value: int, limit: int) -> int:
    return min(max(value, -limit), limit)


@lru_cache(maxsize=64)
def rate(text: str) -> int:
    """A decimal in units of 2^-24, half to even."""
    return round(Fraction(text) * (1 << 24))


def times(value: int, factor: int) -> int:
    """A product by a rate in units of 2^-24, halves up."""
    return rounded(value * factor, 1 << 24)


def change_of(numerator: int, denominator: int, exponent: int) -> int:
    """The merged update of a coordinate in units of 2^-40."""
    shift = exponent + 40
    return rounded(numerator << max(shift, 0), denominator << max(-shift, 0))


def outer_step(
    outer: Mapping[str, Any], g: int, slots: Mapping[str, int], round: int
) -> tuple[int, dict[str, int]]:
    """A coordinate's step and what is kept of it."""
    mu, one = rate(outer["momentum"]), 1 << 24
    match outer["kind"]:
        case "sgd":
            return g, {}
        case "sign":
            return ((g > 0) - (g < 0)) << 40, {}
        case "nesterov":
            m = clamped(times(slots["momentum"], mu) + g, MOMENTUM_LIMIT)
            return times(m, mu) + g, {"momentum": m}
        case "adam":
            m = times(slots["momentum"], mu) + times(g, one - mu)
            coarse = clamped(rounded(g, 1 << 16), (1 << 31) - 1)
            beta = rate(outer["beta2"])
            v = times(slots["second"], beta) + times(coarse * coarse, one - beta)
            quotient = rounded(m << 24, isqrt(v) + rate(outer["eps"]))
            return clamped(quotient, 4096 << 40), {"momentum": m, "second": v}
        case "delayed_nesterov":
            period = outer["period"]
            share, b = rounded(g, period), clamped(slots["buffer"] + g, MOMENTUM_LIMIT)
            if (round + 1) % period:
                return share, {"momentum": slots["momentum"], "buffer": b}
            mean = rounded(b, period)
            m = clamped(times(slots["momentum"], mu) + mean, MOMENTUM_LIMIT)
            return times(m, mu) + share, {"momentum": m, "buffer": 0}
    raise ValueError(f"no outer optimiser is called {outer['kind']}")


def stepped(
    outer: Mapping[str, Any], p: Any, changes: Sequence[int], slots: Mapping[str, Any], round: int
) -> tuple[Any, dict[str, Any]]:
    """A tensor of parameters after the outer step, and its slots."""
    before = {name: tensor.reshape(-1).tolist() for name, tensor in slots.items()}
    steps, after = [], {name: [] for name in slots}
    for i, g in enumerate(changes):
        step, kept = outer_step(outer, g, {name: before[name][i] for name in before}, round)
        steps.append(times(step, rate(outer["lr"])))
        for name, value in kept.items():
            after[name].append(value)
    moves = np.array(steps, np.int64).astype(np.float64) * 2.0**-40
    with np.errstate(over="ignore"):
        params = (p.reshape(-1).astype(np.float64) - moves).astype(np.float32)
    kept_slots = {name: np.array(v, np.int64).reshape(p.shape) for name, v in after.items()}
    return params.reshape(p.shape), kept_slots
