"""The inner steps of every seat of a round at once: the model of `atoll.train`, one batched call.

A tiny model's step is all overhead, so seats are stacked: parameters are one matrix (n, d), the
batch axis of activations is seat-major, and `SeatOps` is the native arithmetic with a weight per
seat. Up to the order of sums it is `atoll.numerics.step.inner_step`, against which it is tested.

Shapes: n seats, d parameters, B sequences a seat, T positions, D width, I in, O out, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own convention)
from torch import Tensor

from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps
from atoll.numerics.schedule import Recipe, adam_factors
from atoll.numerics.state import GlobalState


class SeatOps(NativeOps):
    """The native operations where every weight has a leading seat axis."""

    def __init__(self, seats: int) -> None:
        self._seats = seats

    def embedding(self, ids_BT: Tensor, table_VD: Tensor) -> Tensor:
        n, V, D = table_VD.shape
        first_n = torch.arange(n).repeat_interleave(len(ids_BT) // n) * V
        return F.embedding(ids_BT + first_n[:, None], table_VD.reshape(n * V, D))

    def linear(self, x_BTI: Tensor, weight_OI: Tensor) -> Tensor:
        n, outputs, inputs = weight_OI.shape
        out = torch.bmm(x_BTI.reshape(n, -1, inputs), weight_OI.transpose(1, 2))
        return out.view(*x_BTI.shape[:-1], outputs)

    def linears(self, x_BTI: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(self.linear(x_BTI, weight) for weight in weights)

    def head(self, x_BTD: Tensor, weight_VD: Tensor) -> Tensor:
        return self.linear(x_BTD, weight_VD)

    def rms_norm(self, x_BTD: Tensor, gain_D: Tensor, eps: float) -> Tensor:
        n, D = gain_D.shape
        normed = F.rms_norm(x_BTD, (D,), None, eps).reshape(n, -1, D)
        return (normed * gain_D[:, None]).view(x_BTD.shape)

    def cross_entropy(self, logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
        """Mean loss of every seat, [n]."""
        losses = F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="none")
        return losses.view(self._seats, -1).mean(dim=1)


@dataclass(frozen=True)
class Stack:
    """n seats' parameters and AdamW moments, each (n, d), and steps taken; flat as in `Layout`."""

    params: Tensor
    m: Tensor
    v: Tensor
    count: int

    @classmethod
    def initial(cls, state: GlobalState, seats: int, layout: Layout) -> Stack:
        """All at the global model with its moments; zero where it has none."""
        shared, names = state.moments, layout.names
        params_d = torch.cat([state.params[name].flatten() for name in names])
        m_d = v_d = torch.zeros_like(params_d)
        if shared.is_warm:
            m_d = torch.cat([shared.first(name).flatten() for name in names])
            v_d = torch.cat([shared.second(name).flatten() for name in names])
        rows = (flat.repeat(seats, 1) for flat in (params_d, m_d, v_d))
        return cls(*rows, shared.count)


Batches = Callable[[int], tuple[Tensor, Tensor]]
"""Step within the round to (inputs, targets), each [n · B, T], seat-major."""


def train_seats(
    stack: Stack, batches: Batches, global_step0: int, layout: Layout, recipe: Recipe
) -> Stack:
    """One round's inner steps of all seats.

    Raises:
        FloatingPointError: a seat's training is not finite.
    """
    decays_d = torch.cat(
        [torch.full((size,), float(len(shape) > 1)) for size, shape in _parts(layout)]
    )
    for step in range(recipe.inner.steps):
        inputs, targets = batches(step)
        params = stack.params.detach().requires_grad_()
        seats = len(params)
        named = _views(params, layout)
        ops = SeatOps(seats)
        losses = ops.cross_entropy(forward(named, inputs, recipe.model, ops), targets)
        (gradients,) = torch.autograd.grad(losses.sum(), params)
        rate = float(recipe.schedule.rates[global_step0 + step])
        stack = _adamw(stack, gradients, rate, decays_d, recipe)
    if not torch.isfinite(stack.params).all():
        raise FloatingPointError("an honest seat diverged: the setting trains too fast")
    return stack


def _parts(layout: Layout) -> zip[tuple[int, tuple[int, ...]]]:
    return zip(layout.sizes, layout.shapes, strict=True)


def _views(params_nd: Tensor, layout: Layout) -> dict[str, Tensor]:
    pieces = params_nd.split(layout.sizes, dim=1)
    return {
        name: piece.reshape(len(params_nd), *shape)
        for name, shape, piece in zip(layout.names, layout.shapes, pieces, strict=True)
    }


def _adamw(stack: Stack, gradients: Tensor, rate: float, decays_d: Tensor, recipe: Recipe) -> Stack:
    norms = gradients.double().square().sum(dim=1, keepdim=True).sqrt()
    scales = (float(recipe.inner.clip) / norms).clamp(max=1.0).float()
    count = stack.count + 1
    factors = adam_factors(recipe, count, 1.0, rate, decay=0.0)
    params, m, v = NativeOps().adamw(stack.params, stack.m, stack.v, gradients * scales, factors)
    decay = decays_d * (rate * float(recipe.inner.weight_decay))
    return Stack(params - stack.params * decay, m, v, count)
