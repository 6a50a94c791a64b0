"""What verifiers run again: the inner step, the outer step, and the digest of what they lead to.

Rule of this file: a step is a function of its arguments and nothing else. The inner step uses only
the operations of `Ops` and separate additions and multiplications of fp32 tensors; the outer step
is integers (`fixed`) up to the last subtraction, so that order, threads and devices cannot matter.

Shapes: B sequences in a batch, b in a micro-batch, T positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from atoll.bits.errors import MalformedState
from atoll.bits.fixed import (
    ROOT_BITS,
    ROOT_LIMIT,
    UNIT_BITS,
    divided,
    fixed,
    limited,
    ratio,
    rest,
    root,
    times,
    to_units,
)
from atoll.bits.kernels.philox import Mask
from atoll.bits.layout import OUTER_SLOTS, optimiser_of
from atoll.bits.model import forward
from atoll.bits.schedule import Recipe, adam_factors, clip_scale, decay_of, dropper, learning_rate
from atoll.bits.state import GlobalState, SeatState, Tensors, rng_digest
from atoll.bits.tensors import check_layout
from atoll.law.manifest import CodecSpec, OuterSpec
from atoll.law.trace import StateRoots
from atoll.law.words import ZERO_DIGEST

PARAMETER_LIMIT = 2.0**64
"""A parameter at or beyond it counts as not finite: its update could not be written in fp32."""
Stepped: TypeAlias = tuple[Tensor, Tensors]
"""An outer step of one parameter, and the slots after it."""
OuterKind: TypeAlias = Callable[[Tensor, Tensors, OuterSpec, int], Stepped]


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
    scale = clip_scale(norm, float(recipe.inner.clip))
    rate = learning_rate(global_step, recipe.inner, recipe.total_steps)
    after = _optimised(state, gradients, scale, rate, recipe)
    if not all(_is_bounded(p) for p in after.params.values()):
        return StepOutcome(state, loss, diverged=True)
    return StepOutcome(after, loss, diverged=False)


def take_in(state: SeatState, model: GlobalState, codec: CodecSpec) -> SeatState:
    """Mixes in the fragment that the round before the model's merged: p ← a·p + (1 − a)·g.

    a is the codec's mixing, g the model's value (Douillard et al. 2025, arXiv:2501.18512).
    """
    own = torch.tensor(float(codec.mixing), dtype=torch.float32)
    others = 1.0 - own
    # Products and sum are separate operations: fused, they would round elsewhere.
    mixed = {
        name: p * own + model.params[name] * others
        for name, p in state.params.items()
        if codec.is_sent(name, model.round - 1)
    }
    return replace(state, params=state.params | mixed)


def state_roots(state: SeatState) -> StateRoots:
    """digest = H(params root, optimiser root, buffers root, RNG counters); there are no buffers."""
    counters = rng_digest(state.batches)
    return StateRoots(state.params_root(), state.optimiser_root(), ZERO_DIGEST, counters)


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
        drop = dropper(mask, index * recipe.inner.micro_batch, recipe.ops)
        logits_bTV = forward(leaves, piece_bT1[:, :-1], recipe.model, recipe.ops, drop)
        loss = recipe.ops.cross_entropy(logits_bTV, piece_bT1[:, 1:])
        gradients = torch.autograd.grad(loss * share, list(leaves.values()))
        sums = [a + g for a, g in zip(sums, gradients, strict=True)] if sums else list(gradients)
        losses.append(loss.item() * share)
    return math.fsum(losses), dict(zip(leaves, sums, strict=True))


def _is_bounded(parameter: Tensor) -> bool:
    low, high = torch.aminmax(parameter)  # NaN if any element is
    return bool(low > -PARAMETER_LIMIT) and bool(high < PARAMETER_LIMIT)


def _optimised(
    state: SeatState, gradients: Tensors, scale: float, rate: float, recipe: Recipe
) -> SeatState:
    """Every parameter after its optimiser's step; the gradients are clipped by `scale`."""
    inner, count, ops = recipe.inner, state.count + 1, recipe.ops
    params, ms, vs = {}, {}, {}
    for name, p in state.params.items():
        g, kind = gradients[name], optimiser_of(name, p.shape, inner)
        if kind == "adamw":
            factors = adam_factors(inner, count, scale, rate, decay_of(p, inner))
            after = ops.adamw(p, state.m[name], state.v[name], g, factors)
            params[name], ms[name], vs[name] = after
        elif kind == "muon":
            params[name], ms[name] = _muon(p, state.m[name], g * scale, rate, recipe)
        else:
            params[name], m = _sgd(p, state.m.get(name), g * scale, rate, recipe)
            ms |= {name: m} if m is not None else {}
    return replace(state, params=params, m=ms, v=vs, count=count, batches=state.batches + 1)


def _muon(p: Tensor, m: Tensor, g: Tensor, rate: float, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """m ← μ m + (1 − μ) g;  p ← p − rate · (0.2 √max(O, I) · orth(μ m + (1 − μ) g) + decay · p).

    Jordan et al. 2024. The factor makes a step as large as AdamW's, so that one rate serves both
    (Liu et al. 2025).
    """
    momentum, ops = float(recipe.inner.momentum), recipe.ops
    m = ops.momentum(m, g, momentum, 1.0 - momentum)
    ahead = ops.momentum(m, g, momentum, 1.0 - momentum)
    step = ops.orthogonalise(ahead) * (0.2 * math.sqrt(max(p.shape)))
    return p - (step + p * decay_of(p, recipe.inner)) * rate, m


def _sgd(
    p: Tensor, m: Tensor | None, g: Tensor, rate: float, recipe: Recipe
) -> tuple[Tensor, Tensor | None]:
    """m ← μ m + g;  p ← p − rate · (m + decay · p), with g for m where there is no momentum."""
    if m is not None:
        m = g = recipe.ops.momentum(m, g, float(recipe.inner.momentum), 1.0)
    return p - (g + p * decay_of(p, recipe.inner)) * rate, m


def outer_step(
    state: GlobalState,
    numerators: Mapping[str, Tensor],
    denominator: int,
    exponents: Mapping[str, int],
    outer: OuterSpec,
) -> GlobalState:
    """The next round's global model.

    Args:
        state: the global model that the round started from.
        numerators: int64 by name; the merged update (global − local, averaged) of a tensor is
            numerator / denominator · 2**state.exponents[name], below 128 in magnitude.
        denominator: 1 to 65536.
        exponents: the next round's grid exponents, which the new state carries.
        outer: the manifest's choice.

    Raises:
        MalformedState: numerators, exponents or slots are not of the model's tensors and kind.
        ManifestError: a grid exponent or the denominator is out of range.
    """
    check_layout("merged update", numerators, {n: p.shape for n, p in state.params.items()})
    if exponents.keys() != state.params.keys():
        raise MalformedState("merged update: exponents are not one a tensor")
    if set(state.outer) != set(OUTER_SLOTS[outer.kind]):
        raise MalformedState(f"the state's slots {sorted(state.outer)} are not {outer.kind}'s")
    params: Tensors = {}
    slots: dict[str, Tensors] = {slot: {} for slot in OUTER_SLOTS[outer.kind]}
    for name, p in state.params.items():
        change = to_units(numerators[name], denominator, state.exponents[name])
        before = {slot: tensors[name] for slot, tensors in state.outer.items()}
        step, after = _OUTER[outer.kind](change, before, outer, state.round)
        for slot, tensor in after.items():
            slots[slot][name] = tensor
        params[name] = (p.double() - times(step, outer.lr).double() * 2.0**-UNIT_BITS).float()
    return GlobalState(state.round + 1, params, slots, dict(exponents))


def _outer_sgd(change: Tensor, _slots: Tensors, _outer: OuterSpec, _round: int) -> Stepped:
    return change, {}


def _outer_sign(change: Tensor, _slots: Tensors, _outer: OuterSpec, _round: int) -> Stepped:
    return change.sign() << UNIT_BITS, {}


def _outer_nesterov(change: Tensor, slots: Tensors, outer: OuterSpec, _round: int) -> Stepped:
    momentum = limited(times(slots["momentum"], outer.momentum) + change)
    return times(momentum, outer.momentum) + change, {"momentum": momentum}


def _outer_delayed(change: Tensor, slots: Tensors, outer: OuterSpec, round: int) -> Stepped:
    """In the last round of a period momentum takes in the period's mean change, and acts."""
    share, buffer = divided(change, outer.period), limited(slots["buffer"] + change)
    if (round + 1) % outer.period:
        return share, {"buffer": buffer, "momentum": slots["momentum"]}
    mean = divided(buffer, outer.period)
    momentum = limited(times(slots["momentum"], outer.momentum) + mean)
    after = {"buffer": torch.zeros_like(buffer), "momentum": momentum}
    return times(momentum, outer.momentum) + share, after


def _outer_adam(change: Tensor, slots: Tensors, outer: OuterSpec, _round: int) -> Stepped:
    momentum = times(slots["momentum"], outer.momentum) + rest(change, outer.momentum)
    coarse = divided(change, 1 << (UNIT_BITS - ROOT_BITS)).clamp(-ROOT_LIMIT, ROOT_LIMIT)
    second = times(slots["second"], outer.beta2) + rest(coarse * coarse, outer.beta2)
    step = ratio(momentum, root(second) + fixed(outer.eps))
    return step, {"momentum": momentum, "second": second}


_OUTER: dict[str, OuterKind] = {
    "sgd": _outer_sgd,
    "nesterov": _outer_nesterov,
    "adam": _outer_adam,
    "sign": _outer_sign,
    "delayed_nesterov": _outer_delayed,
}
