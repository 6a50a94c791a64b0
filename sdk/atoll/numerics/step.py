"""What verifiers run again: the inner step, the outer step, and the digest of what they lead to.

Rule of this file: a step is a function of its arguments and nothing else. The inner step uses only
the operations of `Ops` and separate additions and multiplications of fp32 tensors; the outer step
is integers (`fixed`) up to the last subtraction, so that order, threads and devices cannot matter.

Shapes: B sequences in a batch, b in a micro-batch, T positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atoll.numerics.batch import count_targets, inputs_of, shares_of, targets_of
from atoll.numerics.init import is_bounded
from atoll.numerics.kernels.memory import give_back_freed_memory
from atoll.numerics.kernels.philox import Mask
from atoll.numerics.layout import optimiser_of
from atoll.numerics.model import Dropper, forward, keep_all, rotary_of
from atoll.numerics.optimisers import STEPS, Update
from atoll.numerics.schedule import Recipe, clip_scale, dropper
from atoll.numerics.state import GlobalState, SeatState, Tensors, rng_digest
from atoll.protocol.leaves import StateRoots, StepWork
from atoll.protocol.manifest import CodecSpec
from atoll.protocol.words import ZERO_DIGEST


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step's result: the next state and the batch's mean loss in nats a token.

    When the step was not finite, `diverged` is set and the state is the one before it.

    Attributes:
        work: what the segment's work tag takes in of it.
    """

    state: SeatState
    loss: float
    work: StepWork
    diverged: bool


def inner_step(
    state: SeatState,
    batch_BT1: Tensor,
    global_step: int,
    recipe: Recipe,
    dropout_key: tuple[int, int] = (0, 0),
) -> StepResult:
    """One step on token ids [B, T + 1] (`batch`); `global_step` counts from 0 over the job.

    The next state lies on the device of the recipe's operations.
    """
    give_back_freed_memory()
    state, batch_BT1 = state.on(recipe.ops.device), batch_BT1.to(recipe.ops.device)
    mask = Mask(recipe.inner.dropout, dropout_key, global_step & 0xFFFFFFFF, site=0, first=0)
    pieces = torch.split(batch_BT1, recipe.inner.micro_batch)
    shares = shares_of([count_targets(piece) for piece in pieces])
    losses, gradients = _losses_and_gradients(state.params, pieces, shares, recipe, mask)
    loss = math.fsum(each * share for each, share in zip(losses, shares, strict=True))
    norm = recipe.ops.global_norm(gradients.values())
    work = StepWork(norm, losses)
    if not (math.isfinite(loss) and math.isfinite(norm)):
        return StepResult(state, loss, work, diverged=True)
    scale = clip_scale(norm, float(recipe.inner.clip))
    rate = float(recipe.schedule.rates[global_step])
    give_back_freed_memory()  # of the backward pass, before there is a second state
    after = _optimised(state, gradients, scale, rate, recipe)
    if not is_bounded(*after.params.values()):
        return StepResult(state, loss, work, diverged=True)
    return StepResult(after, loss, work, diverged=False)


def take_in(state: SeatState, model: GlobalState, codec: CodecSpec) -> SeatState:
    """Mixes in the fragment that the round before the model's merged: p ← a·p + (1 − a)·g.

    a is the codec's mixing, g the model's value (Douillard et al. 2025, arXiv:2501.18512). What the
    last update excluded is now what is fed back.
    """
    own = torch.tensor(float(codec.mixing), dtype=torch.float32)
    others = 1.0 - own
    # Products and sum are separate operations: fused, they would round elsewhere.
    mixed = {
        name: p * own + model.params[name].to(p.device) * others
        for name, p in state.params.items()
        if codec.is_sent(name, model.round - 1)
    }
    return replace(state, params=state.params | mixed, feedback=state.left)


def state_roots(state: SeatState) -> StateRoots:
    """digest = H(params root, optimiser root, buffers root, RNG counters); there are no buffers."""
    counters = rng_digest(state.batches)
    return StateRoots(state.params_root(), state.optimiser_root(), ZERO_DIGEST, counters)


def _losses_and_gradients(
    params: Tensors,
    pieces: Sequence[Tensor],
    shares: Sequence[float],
    recipe: Recipe,
    mask: Mask,
) -> tuple[tuple[float, ...], Tensors]:
    """Each micro-batch's loss, and the gradients of the batch's, summed in their order."""
    losses: list[float] = []
    sums: list[Tensor] = []
    for index, (piece_bT1, share) in enumerate(zip(pieces, shares, strict=True)):
        drop = dropper(mask, index * recipe.inner.micro_batch, recipe.ops)
        loss, *gradients = _loss_and_gradients(params, piece_bT1, share, recipe, drop)
        losses.append(loss.item())
        # One by one, so that three sets are never there at once.
        if index == 0 and len(pieces) > 1:
            sums = [gradients.pop(0).clone() for _ in params]
        elif index == 0:
            sums = gradients
        else:
            for i in range(len(sums)):
                sums[i] = sums[i] + gradients.pop(0)
    return tuple(losses), dict(zip(params, sums, strict=True))


def _loss_and_gradients(
    params: Tensors, piece_bT1: Tensor, share: float, recipe: Recipe, drop: Dropper
) -> list[Tensor]:
    """A micro-batch's loss, and its share of the gradients, until the next micro-batch's."""

    def work(inputs: Sequence[Tensor]) -> list[Tensor]:
        piece_bT1, share, *values = inputs
        leaves = {n: p.detach().requires_grad_() for n, p in zip(params, values, strict=True)}
        ids_bT = inputs_of(piece_bT1)
        logits_bTV = forward(leaves, ids_bT, recipe.model, recipe.ops, drop, base=recipe.base)
        loss = recipe.ops.cross_entropy(logits_bTV, targets_of(piece_bT1))
        del logits_bTV  # as large as its gradient, which comes
        return [loss.detach(), *torch.autograd.grad(loss * share, list(leaves.values()))]

    device = piece_bT1.device
    inputs = [piece_bT1, torch.tensor(share, device=device), *params.values()]
    if drop is not keep_all:  # whose mask is another one at each step
        return work(inputs)
    held = recipe.base, rotary_of(recipe.model, device)
    what = recipe.model, id(recipe.base), tuple(params)
    return recipe.ops.graphed(work, inputs, what, held)


def _optimised(
    state: SeatState, gradients: Tensors, scale: float, rate: float, recipe: Recipe
) -> SeatState:
    """Every parameter after its optimiser's step; the gradients are clipped by `scale`.

    Each gradient is let go once it is used: two states are all that is there in the end.
    """
    count, before = state.count + 1, {"m": state.m, "v": state.v}
    params: dict[str, Tensor] = {}
    after: dict[str, dict[str, Tensor]] = {slot: {} for slot in before}
    for name, p in state.params.items():
        slots = {slot: tensors[name] for slot, tensors in before.items() if name in tensors}
        step = STEPS[optimiser_of(name, p.shape, recipe.inner)]
        gradient = gradients.pop(name)
        params[name], kept = step(Update(p, slots, gradient, scale, rate, count, recipe))
        for slot, tensor in kept.items():
            after[slot][name] = tensor
    return replace(state, params=params, **after, count=count, batches=state.batches + 1)
