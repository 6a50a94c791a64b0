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

from atoll.numerics.batch import MicroBatch, shares_of
from atoll.numerics.init import is_bounded
from atoll.numerics.kernels.freed_memory import give_back_freed_memory
from atoll.numerics.kernels.philox import Mask
from atoll.numerics.model import Dropper, forward, keep_all, rotary_of
from atoll.numerics.optimisers import STEPS, Update
from atoll.numerics.rollouts import Rollouts
from atoll.numerics.schedule import Recipe, clip_scale, dropper
from atoll.numerics.state import GlobalState, SeatState, Tensors, rng_digest
from atoll.numerics.state_layout import optimiser_of
from atoll.protocol.checkpoint_commitments import StateRoots, StepWork
from atoll.protocol.method_spec import CodecSpec


@dataclass(frozen=True, slots=True)
class StepInput:
    """What a step reads beside the state and the recipe.

    Attributes:
        batch: on the CPU; a gradient is summed over it, micro-batch by micro-batch.
        global_step: counts from 0 over the job; the schedule and dropout follow from it.
        dropout_key: of Philox, two words below 2³².
        rollouts: what was generated for the step, where that is learned.
    """

    batch: Sequence[MicroBatch]
    global_step: int
    dropout_key: tuple[int, int] = (0, 0)
    rollouts: Rollouts | None = None

    @property
    def shares(self) -> list[float]:
        """Of each micro-batch in the batch's loss.

        A mean over the whole batch, which no cut into micro-batches changes: each has the share of
        all targets that are its own. A mean of means would weigh a short answer's tokens more. What
        was sampled has weights of the whole batch already.
        """
        if self.rollouts is not None:
            return [1.0] * len(self.batch)
        return shares_of([micro_batch.count for micro_batch in self.batch])


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


def inner_step(state: SeatState, given: StepInput, recipe: Recipe) -> StepResult:
    """One step; the next state lies on the device of the recipe's operations."""
    give_back_freed_memory()
    state = state.on(recipe.ops.device)
    shares, rollouts = given.shares, given.rollouts
    batch = _batch_gradients(state.params, given, shares, recipe)
    loss = math.fsum(each * share for each, share in zip(batch.losses, shares, strict=True))
    norm = recipe.ops.global_norm(batch.gradients.values())
    work = StepWork(norm, batch.losses, () if rollouts is None else rollouts.drawn)
    is_finite = rollouts is None or rollouts.is_finite
    if not (is_finite and math.isfinite(loss) and math.isfinite(norm)):
        return StepResult(state, loss, work, diverged=True)
    scale = clip_scale(norm, float(recipe.inner.clip))
    rate = float(recipe.schedule.rates[given.global_step])
    give_back_freed_memory()  # of the backward pass, before there is a second state
    after = _optimised(state, batch.gradients, recipe, scale=scale, rate=rate)
    if rollouts is not None:
        after = replace(after, rollouts=rollouts.after(state.rollouts))
    if not is_bounded(*after.params.values()):
        return StepResult(state, loss, work, diverged=True)
    return StepResult(after, loss, work, diverged=False)


def mix_in(state: SeatState, model: GlobalState, codec: CodecSpec) -> SeatState:
    """Mixes in the fragment that the round before the model's merged: p ← a·p + (1 − a)·g.

    a is the codec's mixing, g the model's value (Douillard et al. 2025, arXiv:2501.18512). What the
    last update excluded is now what is fed back.
    """
    kept = torch.tensor(float(codec.mixing), dtype=torch.float32)
    taken = 1.0 - kept
    # Products and sum are separate operations: fused, they would round elsewhere.
    mixed = {
        name: p * kept + model.params[name].to(p.device) * taken
        for name, p in state.params.items()
        if codec.is_sent(name, model.round - 1)
    }
    return replace(state, params=state.params | mixed, feedback=state.residual)


def state_roots(state: SeatState) -> StateRoots:
    """digest = H(params root, optimiser root, buffers root, RNG counters).

    The buffers are what was sampled in the round.
    """
    counters = rng_digest(state.batches)
    return StateRoots(state.params_root(), state.optimiser_root(), state.rollouts, counters)


@dataclass(frozen=True, slots=True)
class BatchGradients:
    """Each micro-batch's loss, and the gradients of the batch's, by parameter."""

    losses: tuple[float, ...]
    gradients: Tensors


def _batch_gradients(
    params: Tensors, given: StepInput, shares: Sequence[float], recipe: Recipe
) -> BatchGradients:
    """Of all micro-batches, summed in their order: fp32 sums in another one have other bits."""
    inner, step = recipe.inner, given.global_step & 0xFFFFFFFF
    mask = Mask(inner.dropout, given.dropout_key, step, site=0, first=0)
    losses: list[float] = []
    sums: list[Tensor] = []
    for index, (micro_batch, share) in enumerate(zip(given.batch, shares, strict=True)):
        drop = dropper(mask, index * inner.micro_batch, recipe.ops)
        placed = micro_batch.to(recipe.ops.device)
        loss, *gradients = _loss_and_gradients(params, placed, share, recipe, drop)
        losses.append(loss.item())
        # One by one, so that three sets are never there at once.
        if index == 0 and len(given.batch) > 1:
            sums = [gradients.pop(0).clone() for _ in params]
        elif index == 0:
            sums = gradients
        else:
            for i in range(len(sums)):
                sums[i] = sums[i] + gradients.pop(0)
    return BatchGradients(tuple(losses), dict(zip(params, sums, strict=True)))


def _loss_and_gradients(
    params: Tensors, micro_batch: MicroBatch, share: float, recipe: Recipe, drop: Dropper
) -> list[Tensor]:
    """A micro-batch's loss, and its share of the gradients, until the next micro-batch's."""

    device, m = recipe.ops.device, micro_batch

    def work(inputs: Sequence[Tensor]) -> list[Tensor]:
        ids_bT, targets_bT, weights_bT, share, *values = inputs
        leaves = {n: p.detach().requires_grad_() for n, p in zip(params, values, strict=True)}
        logits_bTV = forward(leaves, ids_bT, recipe.model, recipe.ops, drop, base=recipe.base)
        loss_of = recipe.ops.policy_loss if m.is_sampled else recipe.ops.cross_entropy
        loss = loss_of(logits_bTV, targets_bT, weights_bT)
        del logits_bTV  # as large as its gradient, which comes
        return [loss.detach(), *torch.autograd.grad(loss * share, list(leaves.values()))]

    inputs = [m.ids, m.targets, m.weights, torch.tensor(share, device=device), *params.values()]
    if drop is not keep_all:  # whose mask is another one at each step
        return work(inputs)
    held = recipe.base, rotary_of(recipe.model, device)
    what = recipe.model, id(recipe.base), tuple(params), m.is_sampled
    return recipe.ops.graphed(work, inputs, what, held)


def _optimised(
    state: SeatState, gradients: Tensors, recipe: Recipe, *, scale: float, rate: float
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
    counted = replace(state, count=count, batches=state.batches + 1)
    return replace(counted, params=params, m=after["m"], v=after["v"])
