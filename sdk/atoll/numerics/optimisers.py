"""The inner optimisers: a parameter and its slots after a step (SPEC-STEP.md, 15).

Rule of this file: only the operations of `Ops`, separate additions and multiplications of fp32
tensors, and comparisons of them, which round nothing. What each keeps and reads is in
`atoll.protocol.optimisers`, under the same name; the same step as a trace in
`atoll.numerics.trace.build.optimisers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from atoll.numerics.kernels.grid import FLOOR
from atoll.numerics.schedule import Recipe, adam_factors, decay_of

Stepped: TypeAlias = tuple[Tensor, dict[str, Tensor]]
"""The parameter, and its slots by name."""


@dataclass(frozen=True, slots=True)
class Update:
    """What a parameter is stepped by.

    Attributes:
        slots: what its optimiser kept of it.
        gradient: of the batch; `scale` clips it.
        count: of the step, from 1.
    """

    p: Tensor
    slots: Mapping[str, Tensor]
    gradient: Tensor
    scale: float
    rate: float
    count: int
    recipe: Recipe

    @property
    def momentum(self) -> float:
        """As the manifest has it."""
        return float(self.recipe.inner.momentum)

    @property
    def decay(self) -> float:
        """Of the parameter."""
        return decay_of(self.p, self.recipe.inner)


def adamw(of: Update) -> Stepped:
    """Loshchilov and Hutter 2019, in one pass of a kernel."""
    factors = adam_factors(of.recipe, of.count, of.scale, of.rate, of.decay)
    p, m, v = of.recipe.ops.adamw(of.p, of.slots["m"], of.slots["v"], of.gradient, factors)
    return p, {"m": m, "v": v}


def lion(of: Update) -> Stepped:
    """p ← p − rate · (sign(β₁ m + (1 − β₁) g) + decay · p);  m ← β₂ m + (1 − β₂) g.

    Chen et al. 2023. Both mixtures are of the moment before the step.
    """
    g, ops, inner = of.gradient * of.scale, of.recipe.ops, of.recipe.inner
    mixed, m = (
        ops.momentum(of.slots["m"], g, beta, 1.0 - beta)
        for beta in (float(inner.beta1), float(inner.beta2))
    )
    # Half of a grid's floor is the tie at which its one level rounds to 0, as is what has no grid.
    has_sign = mixed.isfinite() & (mixed.abs() > FLOOR / 2)
    step = torch.where(has_sign, mixed.sign(), 0.0)
    return of.p - (step + of.p * of.decay) * of.rate, {"m": m}


def muon(of: Update) -> Stepped:
    """m ← μ m + (1 − μ) g;  p ← p − rate · (0.2 √max(O, I) · orth(μ m + (1 − μ) g) + decay · p).

    Jordan et al. 2024. The factor makes a step as large as AdamW's, so that one rate serves both
    (Liu et al. 2025).
    """
    g, ops = of.gradient * of.scale, of.recipe.ops
    m = ops.momentum(of.slots["m"], g, of.momentum, 1.0 - of.momentum)
    ahead = ops.momentum(m, g, of.momentum, 1.0 - of.momentum)
    step = ops.orthogonalise(ahead) * (0.2 * math.sqrt(max(of.p.shape)))
    return of.p - (step + of.p * of.decay) * of.rate, {"m": m}


def sgd(of: Update) -> Stepped:
    """m ← μ m + g;  p ← p − rate · (m + decay · p), with g for m where there is no momentum."""
    g, slots = of.gradient * of.scale, {}
    if "m" in of.slots:
        slots["m"] = g = of.recipe.ops.momentum(of.slots["m"], g, of.momentum, 1.0)
    return of.p - (g + of.p * of.decay) * of.rate, slots


class OtherBits(ArithmeticError):
    """A parameter's step has other bits by the reference."""


STEPS: Mapping[str, Callable[[Update], Stepped]] = MappingProxyType(
    {"adamw": adamw, "lion": lion, "muon": muon, "sgd": sgd}
)


def stepped(optimiser: str, update: Update, reference: Recipe | None) -> Stepped:
    """By the optimiser of a name. Raises OtherBits where there is a reference that differs."""
    expected = None if reference is None else _by(optimiser, replace(update, recipe=reference))
    result = _by(optimiser, update)
    if expected is not None and not _same_bits(result, expected):
        raise OtherBits(f"{optimiser} has other bits by the reference")
    return result


def _by(optimiser: str, update: Update) -> Stepped:
    return STEPS[optimiser](update)


def _same_bits(result: Stepped, expected: Stepped) -> bool:
    (p, slots), (other, others) = result, expected
    pairs = [(p, other), *((slots[slot], others[slot]) for slot in others)]
    return all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in pairs)
