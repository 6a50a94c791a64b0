"""What verifiers run again: the inner step, the outer step, and the digest of what they lead to.

Rule of this file: a step is a function of its arguments and nothing else. The inner step uses only
the operations of `Ops` and separate additions and multiplications of fp32 tensors; the outer step
is integers (`fixed`) up to the last subtraction, so that order, threads and devices cannot matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from atoll.numerics.gradients import BatchGradients, Gradients, StepInput, batch_gradients
from atoll.numerics.init import is_bounded
from atoll.numerics.kernels.freed_memory import give_back_freed_memory, let_go_of_pages
from atoll.numerics.optimisers import STEPS, Stepped, Update
from atoll.numerics.schedule import Recipe, clip_scale
from atoll.numerics.state import GlobalState, SeatState, Tensors, rng_digest
from atoll.numerics.state_layout import optimiser_of
from atoll.protocol.checkpoint_commitments import StateRoots, StepWork
from atoll.protocol.method_spec import CodecSpec


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step's result: the next state and the batch's mean loss in nats a token.

    When the step was not finite, `diverged` is set and the state is the one before it, where the
    step was not one in place.

    Attributes:
        work: what the segment's work tag takes in of it.
    """

    state: SeatState
    loss: float
    work: StepWork
    diverged: bool


Stepper: TypeAlias = Callable[[str, Update], Stepped]
"""Runs the optimiser of a name on one parameter."""


def stepped(optimiser: str, update: Update) -> Stepped:
    """By the optimiser's own operations."""
    return STEPS[optimiser](update)


def inner_step(
    state: SeatState, given: StepInput, recipe: Recipe, gradients: Gradients | None = None
) -> StepResult:
    """One step; the next state lies on the device of the recipe's operations."""
    result = step_in_place(state.unshared(), given, recipe, gradients)
    return replace(result, state=state) if result.diverged else result


def step_in_place(
    state: SeatState, given: StepInput, recipe: Recipe, gradients: Gradients | None = None
) -> StepResult:
    """`inner_step` in the state's own groups: no two states are there at any time.

    So the state of a step that diverged is nobody's: what the optimiser did to it is not undone.

    Args:
        gradients: what computes the batch's; None for this process by itself.
    """
    give_back_freed_memory()
    state = placed(state, recipe)
    batch = (gradients or batch_gradients)(state.params, given, recipe)
    return finish_step(state, batch, given, recipe)


def placed(state: SeatState, recipe: Recipe) -> SeatState:
    """A state where the recipe's steps want it."""
    return state.on(recipe.ops.device, moments_apart=recipe.memory.moments_apart)


def finish_step(
    state: SeatState,
    batch: BatchGradients,
    given: StepInput,
    recipe: Recipe,
    *,
    stepper: Stepper = stepped,
) -> StepResult:
    """`step_in_place` from the batch's gradients on, which are used up."""
    rollouts = given.rollouts
    loss = math.fsum(each * share for each, share in zip(batch.losses, given.shares, strict=True))
    norm = recipe.ops.global_norm(batch.gradients.values())
    work = StepWork(norm, batch.losses, () if rollouts is None else rollouts.drawn)
    is_finite = rollouts is None or rollouts.is_finite
    if not (is_finite and math.isfinite(loss) and math.isfinite(norm)):
        return StepResult(state, loss, work, diverged=True)
    scale = clip_scale(norm, float(recipe.inner.clip))
    rate = float(recipe.schedule.rates[given.global_step])
    give_back_freed_memory()  # of the backward pass
    state = _optimise(state, batch.gradients, recipe, scale=scale, rate=rate, stepper=stepper)
    if rollouts is not None:
        state = replace(state, rollouts=rollouts.after(state.rollouts))
    return StepResult(state, loss, work, diverged=not is_bounded(*state.params.values()))


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


def _optimise(
    state: SeatState,
    gradients: Tensors,
    recipe: Recipe,
    *,
    scale: float,
    rate: float,
    stepper: Stepper,
) -> SeatState:
    """Every parameter after its optimiser's step; the gradients are clipped by `scale`.

    Each tensor takes the place of the one before it, and a gradient is let go once it is used.
    """
    count, slots = state.count + 1, {"m": state.m, "v": state.v}
    for name, p in state.params.items():
        before = {slot: t[name].to(p.device) for slot, t in slots.items() if name in t}
        optimiser = optimiser_of(name, p.shape, recipe.inner)
        update = Update(p, before, gradients.pop(name), scale, rate, count, recipe)
        state.params[name], after = stepper(optimiser, update)
        del update, before  # else they would be there beside the next one's
        for slot, tensor in after.items():
            _keep(slots[slot], name, tensor, recipe)
    return replace(state, count=count, batches=state.batches + 1)


def _keep(slots: Tensors, name: str, tensor: Tensor, recipe: Recipe) -> None:
    """A moment in the place of the one before it: in its memory, where that is apart."""
    if recipe.memory.moments_apart:
        slots[name].copy_(tensor)
        let_go_of_pages(slots[name])
    else:
        slots[name] = tensor
