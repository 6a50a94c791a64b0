"""What verifiers run again: the inner step, the outer step, and the digest of what they lead to.

Rule of this file: a step is a function of its arguments and nothing else. The inner step uses only
the operations of `Ops` and separate additions and multiplications of fp32 tensors; the outer step
is integers (`fixed`) up to the last subtraction, so that order, threads and devices cannot matter.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from atoll.numerics.gradients import BatchGradients, StepInput, batch_gradients
from atoll.numerics.init import is_bounded
from atoll.numerics.kernels.freed_memory import let_go_of_pages, make_room_for
from atoll.numerics.optimisers import Update, stepped
from atoll.numerics.schedule import Recipe, clip_scale
from atoll.numerics.shards import Held, Shards, copied
from atoll.numerics.state import GlobalState, SeatState, rng_digest
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


@dataclass(frozen=True, slots=True)
class OptimiserStep:
    """What all parameters of a step are stepped by.

    Attributes:
        count: of the step, from 1.
        scale: clips the gradients.
        rate: of learning.
        reference: steps every parameter a second time, by its operations, where there is one.
    """

    count: int
    scale: float
    rate: float
    recipe: Recipe
    reference: Recipe | None = None


class ShardedParams(Shards):
    """Parameters that are trained by those who hold them."""

    @abstractmethod
    def gradients(self, given: StepInput, recipe: Recipe) -> BatchGradients:
        """As `batch_gradients`, bit for bit; they are held as the parameters are."""

    @abstractmethod
    def norm(self, gradients: Held, recipe: Recipe) -> float:
        """As `Ops.global_norm` of such gradients."""

    @abstractmethod
    def optimise(self, slots: Mapping[str, Held], gradients: Held, step: OptimiserStep) -> bool:
        """As `optimise`, of these parameters."""


def gradients_of(params: Held, given: StepInput, recipe: Recipe) -> BatchGradients:
    """Of a batch, by whoever holds the parameters."""
    if isinstance(params, ShardedParams):
        return params.gradients(given, recipe)
    return batch_gradients(params, given, recipe)


def norm_of(params: Held, gradients: Held, recipe: Recipe) -> float:
    """Of the gradients of such parameters, likewise."""
    if isinstance(params, ShardedParams):
        return params.norm(gradients, recipe)
    return recipe.ops.global_norm(gradients.values())


def inner_step(state: SeatState, given: StepInput, recipe: Recipe) -> StepResult:
    """One step; the next state lies on the device of the recipe's operations."""
    result = step_in_place(state.unshared(), given, recipe)
    return replace(result, state=state) if result.diverged else result


def step_in_place(state: SeatState, given: StepInput, recipe: Recipe) -> StepResult:
    """`inner_step` in the state's own groups: no two states are there at any time.

    So the state of a step that diverged is nobody's: what the optimiser did to it is not undone.
    """
    state = placed(state, recipe)
    batch = gradients_of(state.params, given, recipe)
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
    reference: Recipe | None = None,
) -> StepResult:
    """`step_in_place` from the batch's gradients on, which are used up.

    Args:
        reference: has every parameter stepped a second time, by its operations.

    Raises:
        OtherBits: that gave other bits.
    """
    rollouts = given.rollouts
    loss = math.fsum(each * share for each, share in zip(batch.losses, given.shares, strict=True))
    norm = norm_of(state.params, batch.gradients, recipe)
    work = StepWork(norm, batch.losses, () if rollouts is None else rollouts.drawn)
    is_finite = rollouts is None or rollouts.is_finite
    if not (is_finite and math.isfinite(loss) and math.isfinite(norm)):
        return StepResult(state, loss, work, diverged=True)
    scale = clip_scale(norm, float(recipe.inner.clip))
    rate = float(recipe.schedule.rates[given.global_step])
    make_room_for(batch.gradients.values())  # in what the backward pass had
    step = OptimiserStep(state.count + 1, scale, rate, recipe, reference)
    slots = {"m": state.m, "v": state.v}
    params = state.params
    by = params.optimise if isinstance(params, ShardedParams) else partial(optimise, params)
    is_safe = by(slots, batch.gradients, step)
    state = replace(state, count=state.count + 1, batches=state.batches + 1)
    if rollouts is not None:
        state = replace(state, rollouts=rollouts.after(state.rollouts))
    return StepResult(state, loss, work, diverged=not is_safe)


def mix_in(state: SeatState, model: GlobalState, codec: CodecSpec) -> SeatState:
    """Mixes in the fragment that the round before the model's merged: p ← a·p + (1 − a)·g.

    a is the codec's mixing, g the model's value (Douillard et al. 2025, arXiv:2501.18512). What the
    last update excluded is now what is fed back.
    """
    kept = torch.tensor(float(codec.mixing), dtype=torch.float32)
    taken = 1.0 - kept
    # Products and sum are separate operations: fused, they would round elsewhere.
    params = copied(state.params)
    for name in params:
        if codec.is_sent(name, model.round - 1):
            p = params[name]
            params[name] = p * kept + model.params[name].to(p.device) * taken
    return replace(state, params=params, feedback=state.residual)


def state_roots(state: SeatState) -> StateRoots:
    """digest = H(params root, optimiser root, buffers root, RNG counters).

    The buffers are what was sampled in the round.
    """
    counters = rng_digest(state.batches)
    return StateRoots(state.params_root(), state.optimiser_root(), state.rollouts, counters)


def optimise(
    params: Held,
    slots: Mapping[str, Held],
    gradients: Held,
    step: OptimiserStep,
) -> bool:
    """Every parameter, or some rows of it, after its optimiser's step; whether all are bounded.

    Each tensor takes the place of the one before it, and a gradient is let go once it is used.

    Args:
        slots: by name, and then by parameter.

    Raises:
        OtherBits: the step's reference gives other bits.
    """
    recipe = step.recipe
    for name, p in params.items():
        before = {slot: t[name].to(p.device) for slot, t in slots.items() if name in t}
        optimiser = optimiser_of(name, p.shape, recipe.inner)
        scalars = step.scale, step.rate, step.count
        update = Update(p, before, gradients.pop(name), *scalars, recipe)
        params[name], after = stepped(optimiser, update, step.reference)
        del update, before  # else they would be there beside the next one's
        for slot, tensor in after.items():
            _keep(slots[slot], name, tensor, recipe)
    return not params or is_bounded(*params.values())


def _keep(slots: Held, name: str, tensor: Tensor, recipe: Recipe) -> None:
    """A moment in the place of the one before it: in its memory, where that is apart."""
    if recipe.memory.moments_apart:
        slots[name].copy_(tensor)
        let_go_of_pages(slots[name])
    else:
        slots[name] = tensor
