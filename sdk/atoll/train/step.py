"""The inner step: what providers run and verifiers replay, bit for bit.

Rule of this file: a step is a function of (state, batch, recipe) and nothing else, and it uses
only the operations of `Ops` and separate additions and multiplications of tensors. Scalars are
binary64, each rounded once from the manifest's decimals; tensors are fp32.

Shapes: B sequences in a batch, b in a micro-batch, T positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from atoll.numerics.kernels import AdamFactors
from atoll.numerics.philox import Mask
from atoll.protocol.manifest import InnerSpec, Manifest, ModelSpec
from atoll.train.data import Tokens
from atoll.train.decimals import cosine_fraction, one_minus_power
from atoll.train.layout import optimiser_of
from atoll.train.model import Dropper, forward, keep_all
from atoll.train.ops import Ops, operations
from atoll.train.state import SeatState, Tensors

PARAMETER_LIMIT = 2.0**64
"""A parameter at or beyond it counts as not finite: its update could not be written in fp32."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the manifest says about a step.

    Attributes:
        total_steps: global steps of the whole job, for schedules that end.
    """

    model: ModelSpec
    inner: InnerSpec
    total_steps: int
    ops: Ops

    @classmethod
    def of(cls, manifest: Manifest) -> Recipe:
        total_steps = manifest.terms.rounds * manifest.inner.steps
        return cls(manifest.model, manifest.inner, total_steps, operations(manifest.numerics.mode))


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """A step's result: the next state and the batch's mean loss in nats a token.

    When the step was not finite, `diverged` is set and the state is the one before it.
    """

    state: SeatState
    loss: float
    diverged: bool


def inner_step(
    state: SeatState,
    batch_BT1: Tensor,
    global_step: int,
    recipe: Recipe,
    dropout_key: tuple[int, int] = (0, 0),
) -> StepOutcome:
    """One step on token ids [B, T + 1]; `global_step` counts from 0 over the whole job."""
    mask = Mask(recipe.inner.dropout, dropout_key, global_step & 0xFFFFFFFF, site=0, first=0)
    loss, gradients = _loss_and_gradients(state.params, batch_BT1, recipe, mask)
    norm = recipe.ops.global_norm(gradients.values())
    if not (math.isfinite(loss) and math.isfinite(norm)):
        return StepOutcome(state, loss, diverged=True)
    scale = _clip_scale(norm, float(recipe.inner.clip))
    rate = learning_rate(global_step, recipe.inner, recipe.total_steps)
    after = _optimised(state, gradients, scale, rate, recipe)
    if not all(_is_bounded(p) for p in after.params.values()):
        return StepOutcome(state, loss, diverged=True)
    return StepOutcome(after, loss, diverged=False)


def gather_batch(tokens: Tokens, offsets: Sequence[int], seq: int) -> Tensor:
    """Token ids [B, T + 1], int64: a sequence and the token after it from each offset."""
    rows = [tokens[start : start + seq + 1] for start in offsets]
    return torch.from_numpy(np.stack(rows).astype(np.int64))


def _loss_and_gradients(
    params: Tensors, batch_BT1: Tensor, recipe: Recipe, mask: Mask
) -> tuple[float, Tensors]:
    """Mean loss over the batch and its gradients, summed over micro-batches in order."""
    leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
    losses: list[float] = []
    sums: list[Tensor] = []
    pieces = torch.split(batch_BT1, recipe.inner.micro_batch)
    share = 1.0 / len(pieces)
    for index, piece_bT1 in enumerate(pieces):
        drop = _dropper(mask, index * recipe.inner.micro_batch, recipe.ops)
        logits_bTV = forward(leaves, piece_bT1[:, :-1], recipe.model, recipe.ops, drop)
        loss = recipe.ops.cross_entropy(logits_bTV, piece_bT1[:, 1:])
        gradients = torch.autograd.grad(loss * share, list(leaves.values()))
        sums = [a + g for a, g in zip(sums, gradients, strict=True)] if sums else list(gradients)
        losses.append(loss.item() * share)
    return math.fsum(losses), dict(zip(leaves, sums, strict=True))


def _dropper(mask: Mask, sequences: int, ops: Ops) -> Dropper:
    """Dropout of a micro-batch with so many sequences before it: masks are of the whole batch."""
    if mask.share == "0":
        return keep_all

    def drop(x_bTD: Tensor, site: int) -> Tensor:
        return ops.dropout(x_bTD, replace(mask, site=site, first=sequences * x_bTD[0].numel()))

    return drop


def _is_bounded(parameter: Tensor) -> bool:
    low, high = torch.aminmax(parameter)  # NaN if any element is
    return bool(low > -PARAMETER_LIMIT) and bool(high < PARAMETER_LIMIT)


def _clip_scale(norm: float, limit: float) -> float:
    """The factor that brings a gradient of this norm within the limit; 1 when it is already."""
    return min(1.0, limit / norm) if norm > 0.0 else 1.0


def learning_rate(global_step: int, inner: InnerSpec, total_steps: int) -> float:
    """Linear warm-up, then constant, or a half cosine that reaches zero at the job's end."""
    peak = float(inner.lr)
    if global_step < inner.warmup_steps:
        return peak * ((global_step + 1) / inner.warmup_steps)
    if inner.schedule == "constant":
        return peak
    done, span = global_step - inner.warmup_steps, max(1, total_steps - inner.warmup_steps)
    return peak * cosine_fraction(min(done, span), span)


def _optimised(
    state: SeatState, gradients: Tensors, scale: float, rate: float, recipe: Recipe
) -> SeatState:
    """Every parameter after its optimiser's step; the gradients are clipped by `scale`."""
    inner, count, ops = recipe.inner, state.count + 1, recipe.ops
    params, ms, vs = {}, {}, {}
    for name, p in state.params.items():
        g, kind = gradients[name], optimiser_of(name, p.shape, inner)
        if kind == "adamw":
            factors = _adam_factors(inner, count, scale, rate, _decay(p, inner))
            params[name], ms[name], vs[name] = ops.adamw(
                p, state.m[name], state.v[name], g, factors
            )
        elif kind == "muon":
            params[name], ms[name] = _muon(p, state.m[name], g * scale, rate, recipe)
        else:
            params[name], m = _sgd(p, state.m.get(name), g * scale, rate, recipe)
            ms |= {} if m is None else {name: m}
    return replace(state, params=params, m=ms, v=vs, count=count, batches=state.batches + 1)


def _decay(p: Tensor, inner: InnerSpec) -> float:
    """Decoupled weight decay: only matrices decay."""
    return float(inner.weight_decay) if p.dim() > 1 else 0.0


def _adam_factors(
    inner: InnerSpec, count: int, scale: float, rate: float, decay: float
) -> AdamFactors:
    return AdamFactors(
        scale=scale,
        beta1=float(inner.beta1),
        beta2=float(inner.beta2),
        correct1=1.0 / one_minus_power(inner.beta1, count),
        correct2=1.0 / one_minus_power(inner.beta2, count),
        eps=float(inner.eps),
        decay=decay,
        rate=rate,
    )


def _muon(p: Tensor, m: Tensor, g: Tensor, rate: float, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """m ← μ m + (1 − μ) g;  p ← p − rate · (0.2 √max(O, I) · orth(μ m + (1 − μ) g) + decay · p).

    Jordan et al. 2024. The factor makes a step as large as AdamW's, so that one rate serves both
    (Liu et al. 2025).
    """
    momentum, ops = float(recipe.inner.momentum), recipe.ops
    m = ops.momentum(m, g, momentum, 1.0 - momentum)
    ahead = ops.momentum(m, g, momentum, 1.0 - momentum)
    step = ops.orthogonalise(ahead) * (0.2 * math.sqrt(max(p.shape)))
    return p - (step + p * _decay(p, recipe.inner)) * rate, m


def _sgd(
    p: Tensor, m: Tensor | None, g: Tensor, rate: float, recipe: Recipe
) -> tuple[Tensor, Tensor | None]:
    """m ← μ m + g;  p ← p − rate · (m + decay · p), with g for m where there is no momentum."""
    if m is not None:
        m = g = recipe.ops.momentum(m, g, float(recipe.inner.momentum), 1.0)
    return p - (g + p * _decay(p, recipe.inner)) * rate, m
