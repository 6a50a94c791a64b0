"""The gradient's norm, and AdamW, SGD, Muon and Lion: SPEC-STEP.md, chapters 14 and 15.

Host scalars are Python floats; each is rounded to float32 where it meets an array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.second_client.arithmetic import (
    INT8,
    Array,
    Wide,
    grid,
    narrow,
    one_nan,
    product,
    root,
    square_sum,
)

Slots = dict[str, Array]
_A, _B, _C = np.float32(3.4445), np.float32(-4.7750), np.float32(2.0315)


def global_norm(gradients: Iterable[Array]) -> float:
    """Of all gradients together, in ascending order of their names."""
    total = 0.0
    for gradient in gradients:
        integer, step = square_sum(gradient)
        total += float(integer) * (step * step)
    return math.sqrt(total)


def clip_scale(norm: float, limit: float) -> float:
    """What every gradient is multiplied by."""
    return min(1.0, limit / norm) if norm > 0.0 else 1.0


def flushed(x: Array) -> Array:
    """Numbers below 2^-100 become 0."""
    return one_nan(np.where(np.abs(x) < np.float32(2.0**-100), np.float32(0.0), x))


def decay_of(p: Array, inner: dict[str, Any]) -> np.float32:
    """Only matrices decay."""
    return np.float32(float(inner["weight_decay"]) if p.ndim > 1 else 0.0)


def adamw(
    p: Array, m: Array, v: Array, g: Array, scalars: tuple[float, float, float, float], inner: Any
) -> tuple[Array, Array, Array]:
    """The next p, m and v. `scalars`: clipping factor, rate, and the two bias corrections."""
    scale, rate, first, second = (np.float32(scalar) for scalar in scalars)
    beta1, beta2 = float(inner["beta1"]), float(inner["beta2"])
    g = g * scale
    m = flushed(m * np.float32(beta1) + g * np.float32(1.0 - beta1))
    v = flushed(v * np.float32(beta2) + (g * g) * np.float32(1.0 - beta2))
    below = root(v * second) + np.float32(float(inner["eps"]))
    u = (m * first) / below + p * decay_of(p, inner)
    return one_nan(p - u * rate), m, v


def sgd(
    p: Array, m: Array | None, g: Array, scalars: tuple[float, float], inner: Any
) -> tuple[Array, Array | None]:
    """The next p and m, which is None without momentum. `scalars`: clipping factor and rate."""
    scale, rate = (np.float32(scalar) for scalar in scalars)
    g = g * scale
    if m is not None:
        m = g = flushed(m * np.float32(float(inner["momentum"])) + g)
    return p - (g + p * decay_of(p, inner)) * rate, m


def muon(
    p: Array, m: Array, g: Array, scalars: tuple[float, float], inner: Any
) -> tuple[Array, Array]:
    """The next p and m of a matrix."""
    scale, rate = (np.float32(scalar) for scalar in scalars)
    momentum = float(inner["momentum"])
    keep, add = np.float32(momentum), np.float32(1.0 - momentum)
    g = g * scale
    m = flushed(m * keep + g * add)
    ahead = flushed(m * keep + g * add)
    step = orthogonalised(ahead) * np.float32(0.2 * math.sqrt(max(p.shape)))
    return p - (step + p * decay_of(p, inner)) * rate, m


def lion(
    p: Array, m: Array, g: Array, scalars: tuple[float, float], inner: Any
) -> tuple[Array, Array]:
    """The next p and m."""
    scale, rate = (np.float32(scalar) for scalar in scalars)
    beta1, beta2 = float(inner["beta1"]), float(inner["beta2"])
    g = g * scale
    c = flushed(m * np.float32(beta1) + g * np.float32(1.0 - beta1))
    n, _ = grid(c.reshape(-1, 1), 1, 1)
    m = flushed(m * np.float32(beta2) + g * np.float32(1.0 - beta2))
    return one_nan(p - (narrow(n).reshape(p.shape) + p * decay_of(p, inner)) * rate), m


def orthogonalised(matrix_OI: Array) -> Array:
    """About U·Vᵀ of the matrix's singular value decomposition U·S·Vᵀ."""
    integer, step = square_sum(matrix_OI)
    norm = max(math.sqrt(float(integer)) * step, 2.0**-60)
    x = matrix_OI * np.float32(1.0 / norm)
    if x.shape[0] > x.shape[1]:
        return np.ascontiguousarray(_iterated(np.ascontiguousarray(x.T)).T)
    return _iterated(x)


def _iterated(x_SL: Array) -> Array:
    """x ← a·x + (b·G + c·G²)·x with G = x·xᵀ, five times, G's diagonal apart from its rest."""
    for _ in range(5):
        n, x_step = grid(x_SL, 1, INT8)
        gram = _rescaled(product(n, n.T), x_step)
        d = gram.diagonal().copy()
        np.fill_diagonal(gram, 0.0)
        n_rest, rest_step = grid(gram, 1, INT8)
        square = _rescaled(product(n_rest, n_rest.T), rest_step)
        along = one_nan((d * d + square.diagonal()) * _C + d * _B + _A)
        across = gram * ((d[:, None] + d) * _C + _B) + square * _C
        np.fill_diagonal(across, 0.0)
        n_across, across_step = grid(across * x_step.T, 1, INT8)
        x_SL = one_nan(x_SL * along[:, None] + narrow(product(n_across, n)) * across_step)
    return x_SL


def _rescaled(sums_SS: Wide, step_S1: Array) -> Array:
    return one_nan(narrow(sums_SS) * (step_S1 * step_S1.T))


@dataclass(frozen=True)
class Optimiser:
    """What one reads of the manifest, keeps of a parameter, and does to it."""

    step: Callable[[Array, Slots, Array, tuple[float, ...], Any], tuple[Array, Slots]]
    reads: tuple[str, ...]
    slots: tuple[str, ...]
    rest: str | None = None
    is_corrected: bool = False
    needs_momentum: bool = False

    def slots_in(self, inner: Any) -> tuple[str, ...]:
        return () if self.needs_momentum and inner["momentum"] == "0" else self.slots


def _adamw(p: Array, slots: Slots, g: Array, scalars: Any, inner: Any) -> tuple[Array, Slots]:
    p, m, v = adamw(p, slots["m"], slots["v"], g, scalars, inner)
    return p, {"m": m, "v": v}


def _muon(p: Array, slots: Slots, g: Array, scalars: Any, inner: Any) -> tuple[Array, Slots]:
    p, m = muon(p, slots["m"], g, scalars[:2], inner)
    return p, {"m": m}


def _sgd(p: Array, slots: Slots, g: Array, scalars: Any, inner: Any) -> tuple[Array, Slots]:
    p, m = sgd(p, slots.get("m"), g, scalars[:2], inner)
    return p, {} if m is None else {"m": m}


def _lion(p: Array, slots: Slots, g: Array, scalars: Any, inner: Any) -> tuple[Array, Slots]:
    p, m = lion(p, slots["m"], g, scalars[:2], inner)
    return p, {"m": m}


FIELDS = ("momentum", "beta1", "beta2", "eps")
OPTIMISERS = {
    "adamw": Optimiser(_adamw, ("beta1", "beta2", "eps"), ("m", "v"), is_corrected=True),
    "lion": Optimiser(_lion, ("beta1", "beta2"), ("m",)),
    "muon": Optimiser(_muon, FIELDS, ("m",), rest="adamw", is_corrected=True),
    "sgd": Optimiser(_sgd, ("momentum",), ("m",), needs_momentum=True),
}
