"""Attacks by f colluding seats that know every honest update, as rows on the shared grid.

Each takes the honest rows (h, d) as floats, the number of colluders and a generator, and returns
(f, d) floats; `on_grid` rounds and clamps them as the codec would, which is all a sender can do.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float64]
Attack = Callable[[Rows, int, np.random.Generator], Rows]


def on_grid(rows: Rows) -> npt.NDArray[np.int8]:
    """What arrives of these rows."""
    return np.clip(np.rint(rows), -127, 127).astype(np.int8)


def _same(row: Rows, f: int) -> Rows:
    return np.tile(row, (f, 1))


def sign_flip(honest: Rows, f: int, _rng: np.random.Generator) -> Rows:
    return _same(-honest.mean(axis=0), f)


def scaled_flip(honest: Rows, f: int, _rng: np.random.Generator) -> Rows:
    return _same(-10 * honest.mean(axis=0), f)


def scaling(honest: Rows, f: int, _rng: np.random.Generator) -> Rows:
    return _same(10 * honest.mean(axis=0), f)


def inner_product_manipulation(honest: Rows, f: int, _rng: np.random.Generator) -> Rows:
    """Xie et al. 2019, arXiv:1903.03936: a small step the other way."""
    return _same(-0.5 * honest.mean(axis=0), f)


def a_little_is_enough(honest: Rows, f: int, _rng: np.random.Generator) -> Rows:
    """Baruch et al. 2019, arXiv:1902.06156: as far as still has enough supporters."""
    n = len(honest) + f
    supporters = n // 2 + 1 - f
    z = NormalDist().inv_cdf(min(max((n - f - supporters) / (n - f), 0.01), 0.99))
    return _same(honest.mean(axis=0) - max(z, 0.3) * honest.std(axis=0), f)


def _squared(rows: Rows, point: Rows) -> Rows:
    return np.square(rows - point).sum(axis=1)


def furthest_within(honest: Rows, direction: Rows, *, summed: bool = False) -> Rows:
    """The honest mean moved along `direction` until it is as far from the honest as one of them.

    Args:
        summed: compares sums of squared distances (Min-Sum) instead of the largest (Min-Max).
    """
    measure = np.sum if summed else np.max
    limit = max(measure(_squared(honest, row)) for row in honest)
    mean, low, high = honest.mean(axis=0), 0.0, 256.0
    for _ in range(20):
        middle = (low + high) / 2
        fits = measure(_squared(honest, mean + middle * direction)) <= limit
        low, high = (middle, high) if fits else (low, middle)
    return mean + low * direction


def min_max(honest: Rows, f: int, _rng: np.random.Generator) -> Rows:
    """Shejwalkar and Houmansadr 2021: no further from anyone than honest updates are."""
    return _same(furthest_within(honest, -np.sign(honest.mean(axis=0))), f)


def min_sum(honest: Rows, f: int, _rng: np.random.Generator) -> Rows:
    """Shejwalkar and Houmansadr 2021: no larger a sum of squared distances."""
    return _same(furthest_within(honest, -np.sign(honest.mean(axis=0)), summed=True), f)


def mimic(honest: Rows, f: int, _rng: np.random.Generator) -> Rows:
    """Karimireddy et al. 2022, arXiv:2006.09365: copies one honest seat to over-represent it."""
    return _same(honest[0], f)


def zero(honest: Rows, f: int, _rng: np.random.Generator) -> Rows:
    return np.zeros((f, honest.shape[1]))


def gaussian(honest: Rows, f: int, rng: np.random.Generator) -> Rows:
    return rng.normal(0, 60, (f, honest.shape[1]))


def largest_payload(honest: Rows, f: int, _rng: np.random.Generator) -> Rows:
    """The extreme of the grid everywhere, against the sign: what an overflow would need."""
    return _same(np.where(honest.mean(axis=0) > 0, -127.0, 127.0), f)


def concentration(honest: Rows, f: int, rng: np.random.Generator) -> Rows:
    """Honest but for a few coordinates at the extreme."""
    row = honest.mean(axis=0).copy()
    row[rng.choice(len(row), max(1, len(row) // 50), replace=False)] = -127
    return _same(row, f)


def split_collusion(honest: Rows, f: int, rng: np.random.Generator) -> Rows:
    """Colluders on both sides, so that trimming wears out."""
    spread = honest.std(axis=0)
    signs = np.where(np.arange(f) % 2 == 0, 1.0, -1.0)[:, None]
    return honest.mean(axis=0) + 3 * signs * spread * rng.choice([-1, 1], honest.shape[1])


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        sign_flip, scaled_flip, scaling, inner_product_manipulation, a_little_is_enough, min_max,
        min_sum, mimic, zero, gaussian, largest_payload, concentration, split_collusion,
    )
}  # fmt: skip
