"""The gradients of a batch, summed micro-batch by micro-batch and let go of layer by layer.

Rule of this file: a parameter's gradient of a micro-batch is one tensor, a lane's are added one
after another, and then the lanes' sums are: fp32 sums in another order have other bits. Where a
backward pass is cut decides no bit: what flows between two layers is the same tensor, and a layer
that is computed again gives what it gave.

Shapes: B sequences in a batch, b in a micro-batch, T positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from atoll.numerics.batch import MicroBatch, shares_of
from atoll.numerics.kernels.philox import Mask
from atoll.numerics.model import (
    Dropper,
    TrainedModel,
    Weights,
    embedded,
    keep_all,
    layer_output,
    logits,
    rotary_of,
    weights_of,
)
from atoll.numerics.rollouts import Rollouts
from atoll.numerics.schedule import Recipe, dropper
from atoll.numerics.shards import Held
from atoll.numerics.state import Tensors
from atoll.protocol.method_spec import InnerSpec, lane_length
from atoll.protocol.model_spec import ModelSpec

_EMBEDDING, _LAYERS = "model.embed_tokens.weight", "model.layers."
Taker: TypeAlias = Callable[[str, Tensor], None]
"""Is given the gradient of each parameter of a micro-batch, once, by its name."""
LossOf: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Makes of logits, targets and weights a micro-batch's loss."""


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
        if any(micro_batch.is_sampled for micro_batch in self.batch):
            return [1.0] * len(self.batch)
        return shares_of([micro_batch.count for micro_batch in self.batch])


@dataclass(frozen=True, slots=True)
class BatchGradients:
    """Each micro-batch's loss, and the gradients of the batch's, by parameter in their order."""

    losses: tuple[float, ...]
    gradients: Held


def batch_gradients(
    params: Mapping[str, Tensor], given: StepInput, recipe: Recipe
) -> BatchGradients:
    """Of all micro-batches, summed lane by lane in their order."""
    losses: list[float] = []
    sums: Tensors = {}
    for run in lanes_of(len(given.batch), recipe.inner):
        lane = _Sums(of_many=len(given.batch) > 1)
        losses += [_add_micro_batch(lane, params, given, recipe, index) for index in run]
        while lane.tensors:
            add_to(sums, *lane.tensors.popitem())
    return BatchGradients(tuple(losses), {name: sums[name] for name in params})


def lanes_of(micro_batches: int, inner: InnerSpec) -> list[range]:
    """The micro-batches of each lane."""
    length = lane_length(micro_batches, inner.lanes)
    return [range(start, start + length) for start in range(0, micro_batches, length)]


def micro_batch_gradients(
    params: Mapping[str, Tensor], given: StepInput, recipe: Recipe, index: int, take: Taker
) -> float:
    """Gives the gradients of a micro-batch, from the last layer on; its loss."""
    inputs = _inputs(params, given, recipe, index)
    drop, loss_of = _drop_of(given, recipe, index), _loss_of(given, recipe, index)
    return float(_work(inputs, tuple(params), recipe, drop, loss_of=loss_of, take=take))


def add_to(sums: Tensors, name: str, gradient: Tensor) -> None:
    """Adds a gradient that is nobody else's, and keeps its memory where it is the first."""
    if name in sums:
        sums[name] += gradient
    else:
        sums[name] = gradient


class _Sums:
    """The micro-batches' gradients so far; each is let go of once it is added."""

    def __init__(self, *, of_many: bool) -> None:
        self.tensors: Tensors = {}
        self._of_many = of_many

    def add(self, name: str, gradient: Tensor) -> None:
        """As `add_to`."""
        add_to(self.tensors, name, gradient)

    def add_lent(self, name: str, gradient: Tensor) -> None:
        """Adds one whose memory is written over by the next micro-batch's."""
        is_copied = self._of_many and name not in self.tensors
        self.add(name, gradient.clone() if is_copied else gradient)


def _add_micro_batch(
    sums: _Sums, params: Mapping[str, Tensor], given: StepInput, recipe: Recipe, index: int
) -> float:
    """Adds a micro-batch's share of the gradients; its loss."""
    ops, drop = recipe.ops, _drop_of(given, recipe, index)
    # A graph has all gradients of a micro-batch at once; a mask is another one at each step.
    if not ops.is_graphed or recipe.memory.recomputes_layers or drop is not keep_all:
        return micro_batch_gradients(params, given, recipe, index, sums.add)
    loss_of = _loss_of(given, recipe, index)

    def work(inputs: Sequence[Tensor]) -> list[Tensor]:
        gradients: Tensors = {}
        keep = gradients.__setitem__
        loss = _work(inputs, tuple(params), recipe, drop, loss_of=loss_of, take=keep)
        return [loss, *(gradients[name] for name in params)]

    held = recipe.base, rotary_of(recipe.model, ops.device)
    what = recipe.model, id(recipe.base), tuple(params), given.batch[index].is_sampled
    loss, *gradients = ops.graphed(work, _inputs(params, given, recipe, index), what, held)
    for name, gradient in zip(params, gradients, strict=True):
        sums.add_lent(name, gradient)
    return float(loss)


def _inputs(
    params: Mapping[str, Tensor], given: StepInput, recipe: Recipe, index: int
) -> list[Tensor]:
    m, device = given.batch[index].to(recipe.ops.device), recipe.ops.device
    share = torch.tensor(given.shares[index], device=device)
    return [m.ids, m.targets, m.weights, share, *params.values()]


def _drop_of(given: StepInput, recipe: Recipe, index: int) -> Dropper:
    inner, step = recipe.inner, given.global_step & 0xFFFFFFFF
    mask = Mask(inner.dropout, given.dropout_key, step, site=0, first=0)
    return dropper(mask, index * inner.micro_batch, recipe.ops)


def _loss_of(given: StepInput, recipe: Recipe, index: int) -> LossOf:
    ops = recipe.ops
    return ops.policy_loss if given.batch[index].is_sampled else ops.cross_entropy


def _work(
    inputs: Sequence[Tensor],
    names: Sequence[str],
    recipe: Recipe,
    drop: Dropper,
    *,
    loss_of: LossOf,
    take: Taker,
) -> Tensor:
    """The loss of inputs as `_add_micro_batch` has them; each gradient is given to `take`."""
    ids_bT, targets_bT, weights_bT, share, *values = inputs
    leaves = {name: p.detach().requires_grad_() for name, p in zip(names, values, strict=True)}
    weights = weights_of(leaves, recipe.model, recipe.ops, recipe.base)
    if isinstance(weights, TrainedModel):
        weights = replace(weights, rounded=recipe.rounded)
    stages = _stages(weights, leaves, ids_bT, drop)
    passes = list(_forward_passes(stages, is_kept=not recipe.memory.recomputes_layers))
    x_bTD = passes[-1].output_leaf()
    loss = loss_of(logits(x_bTD, weights), targets_bT, weights_bT)
    head = _head_names(leaves, weights.spec)
    wanted = [x_bTD, *(leaves[name] for name in head)]
    upstream, *gradients = torch.autograd.grad(loss * share, wanted)
    # Of a tied head the embedding has a second gradient to come: their sum is the micro-batch's.
    waiting: Tensors = {}
    for name in head:
        (waiting.__setitem__ if name == _EMBEDDING else take)(name, gradients.pop(0))
    for name, gradient in _backward(passes, upstream, leaves):
        take(name, waiting.pop(name) + gradient if name in waiting else gradient)
    return loss.detach()


def _head_names(leaves: Mapping[str, Tensor], spec: ModelSpec) -> list[str]:
    """The trained parameters that the logits are made with behind the last layer."""
    behind = [name for name in leaves if not name.startswith(_LAYERS) and name != _EMBEDDING]
    return [*behind, _EMBEDDING] if spec.tied and _EMBEDDING in leaves else behind


@dataclass(frozen=True, slots=True)
class _Stage:
    """The embedding, or a layer.

    Attributes:
        names: of its trained parameters.
        run: what it makes of the values before it; the embedding reads none.
        follows_trained: whether what it reads depends on parameters that are trained.
    """

    names: tuple[str, ...]
    run: Callable[[Tensor], Tensor]
    follows_trained: bool

    @property
    def is_trained(self) -> bool:
        """Whether what it gives depends on such parameters."""
        return self.follows_trained or bool(self.names)


def _stages(
    weights: Weights, leaves: Mapping[str, Tensor], ids_bT: Tensor, drop: Dropper
) -> Iterator[_Stage]:
    ends = tuple(name for name in leaves if name == _EMBEDDING)
    yield _Stage(ends, lambda _: embedded(ids_bT, weights, drop), follows_trained=False)
    is_trained = bool(ends)
    for layer in range(weights.spec.layers):
        names = tuple(name for name in leaves if name.startswith(f"{_LAYERS}{layer}."))
        run = partial(layer_output, layer=layer, weights=weights, drop=drop)
        yield _Stage(names, run, follows_trained=is_trained)
        is_trained = is_trained or bool(names)


@dataclass(slots=True)
class _Pass:
    """A stage's forward pass, cut off from those before and behind it.

    Attributes:
        x: what the stage read, its gradient being wanted where it follows from what is trained.
        y: what it gave, with its graph; what it gave alone, where it is computed again.
    """

    stage: _Stage
    x: Tensor
    y: Tensor

    def output_leaf(self) -> Tensor:
        """What the next stage reads."""
        return self.y.detach().requires_grad_(self.stage.is_trained)


def _forward_passes(stages: Iterator[_Stage], is_kept: bool) -> Iterator[_Pass]:
    x = torch.empty(0)
    for stage in stages:
        with torch.set_grad_enabled(is_kept):
            made = _Pass(stage, x, stage.run(x))
        x = made.output_leaf()
        yield made


def _backward(
    passes: list[_Pass], upstream: Tensor, leaves: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """Gradients by name, from the last layer to the embedding."""
    while passes:
        made = passes.pop()
        stage, x, y = made.stage, made.x, made.y
        del made
        if not stage.is_trained:
            return  # nor is anything before it
        if not y.requires_grad:
            with torch.enable_grad():
                y = stage.run(x)
        inputs = [x] if stage.follows_trained else []
        wanted = [*inputs, *(leaves[name] for name in stage.names)]
        gradients = list(torch.autograd.grad(y, wanted, upstream))
        del y, wanted
        if inputs:
            upstream = gradients.pop(0)
        for name in stage.names:
            yield name, gradients.pop(0)
