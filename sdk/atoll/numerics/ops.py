"""The operations of model and step, behind one small interface, so that exactness is a choice.

Rule of this file: the model and the step call nothing on tensors but these, separate IEEE
additions and multiplications, and comparisons. Other arithmetic is another implementation of `Ops`,
never a second model. Jobs compute with the exact one; PyTorch's own is what experiments compare it
with.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own convention)
from torch import Tensor

from atoll.numerics.kernels.engine import default_engine, reference_engine
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.graphs import Work
from atoll.numerics.kernels.interface import CPU, AdamFactors, Frozen
from atoll.numerics.kernels.muon import COEFFICIENTS, ITERATIONS, LEAST_NORM
from atoll.numerics.kernels.philox import Mask, kept

_IGNORED = -100
"""PyTorch's number for a target that is none."""


class Ops(Protocol):
    """What a way to compute provides; the operations down to the loss are differentiable.

    Shapes: B batch, T positions, D width, I in, O out, V vocabulary, H query heads, K key heads,
    d head width.
    """

    @property
    def device(self) -> torch.device:
        """Where operands lie."""

    @property
    def is_graphed(self) -> bool:
        """Whether `graphed` may launch a function's kernels as one."""

    def graphed(
        self, work: Work, inputs: Sequence[Tensor], what: Hashable, held: object
    ) -> list[Tensor]:
        """What a function gives of tensors; they last until the next call.

        On a GPU its kernels may be launched as one, so it must not wait for any.

        Args:
            what: names all that the function depends on beside the inputs.
            held: has the tensors that it reads beside them.
        """

    def embedding(self, ids_BT: Tensor, table_VD: Tensor) -> Tensor:
        """Rows of the table: [B, T, D]."""

    def linear(self, x_BTI: Tensor, weight_OI: Tensor) -> Tensor:
        """x · weightᵀ: [B, T, O]."""

    def linears(self, x_BTI: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """`linear` with each of several weights, which some do in one product."""

    def rounded_linears(
        self, x_BTI: Tensor, rounded: Frozen, weights: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """As `linears`, by what `freeze` made of the weights: of these, each of which has its
        gradient, no number is read.
        """

    def head(self, x_BTD: Tensor, weight_VD: Tensor) -> Tensor:
        """As `linear`, for the logits, which some compute more finely: [B, T, V]."""

    def freeze(self, weights: Sequence[Tensor]) -> Frozen:
        """Weights [O, I] of one input for `frozen_linears`, which has no gradient of them."""

    def freeze_head(self, weight_VD: Tensor) -> Frozen:
        """A weight for `frozen_head`, likewise."""

    def frozen_linears(self, x_BTI: Tensor, frozen: Frozen) -> tuple[Tensor, ...]:
        """As `linears`."""

    def frozen_head(self, x_BTD: Tensor, frozen: Frozen) -> Tensor:
        """As `head`."""

    def add_bias(self, x_BTO: Tensor, bias_O: Tensor) -> Tensor:
        """x + bias, the same for every token."""

    def rms_norm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        """x / sqrt(mean(x²) + eps) · gain, over the last axis (Zhang and Sennrich 2019).

        x is [B, T, D], or of queries and keys [B, T, H, d], or [B, T, 1, H · d] all heads at once.
        """

    def rotary(self, x_BHTd: Tensor, cos_Td: Tensor, sin_Td: Tensor) -> Tensor:
        """Each pair (x[i], x[i + d/2]) rotated by its position's angle; tables are [T, d/2]."""

    def attention(self, q_BHTd: Tensor, k_BKTd: Tensor, v_BKTd: Tensor, *, context: int) -> Tensor:
        """Causal softmax attention scaled by d^(−1/2); H/K query heads share a key head.

        Args:
            context: positions that the model has, which grids follow from; T is at most that.
        """

    def swiglu(self, gate: Tensor, up: Tensor) -> Tensor:
        """gate · sigmoid(gate) · up (Shazeer 2020)."""

    def squared_relu(self, x: Tensor) -> Tensor:
        """max(x, 0)² (So et al. 2021)."""

    def dropout(self, x: Tensor, mask: Mask) -> Tensor:
        """x / (1 − share) where the mask keeps an element, else 0 (Srivastava et al. 2014)."""

    def cross_entropy(self, logits_BTV: Tensor, targets_BT: Tensor, weights_BT: Tensor) -> Tensor:
        """Mean negative log-likelihood in nats of the targets of weight 1, a scalar.

        It is 0, and so is its gradient, where all have weight 0.
        """

    def policy_loss(self, logits_BTV: Tensor, targets_BT: Tensor, weights_BT: Tensor) -> Tensor:
        """Σ weight · negative log-likelihood of the targets that are not negative, a scalar."""

    def global_norm(self, gradients: Iterable[Tensor]) -> float:
        """Euclidean norm of all gradients together."""

    def momentum(self, m: Tensor, g: Tensor, keep: float, add: float) -> Tensor:
        """keep · m + add · g."""

    def orthogonalise(self, matrix_OI: Tensor) -> Tensor:
        """About U·Vᵀ of the singular value decomposition U·S·Vᵀ (see `kernels.muon`): [O, I]."""

    def adamw(
        self, p: Tensor, m: Tensor, v: Tensor, g: Tensor, factors: AdamFactors
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The next parameter and moments (Loshchilov and Hutter 2019, algorithm 2):

        g ← scale · g;  m ← β₁ m + (1 − β₁) g;  v ← β₂ v + (1 − β₂) g²;
        p ← p − rate · (correct₁ m / (sqrt(correct₂ v) + eps) + decay · p).
        """


class NativeOps:
    """PyTorch's own fp32 kernels."""

    is_graphed = False

    def __init__(self, device: torch.device = CPU) -> None:
        self.device = device

    def graphed(
        self, work: Work, inputs: Sequence[Tensor], what: Hashable, held: object
    ) -> list[Tensor]:
        return work(inputs)

    def embedding(self, ids_BT: Tensor, table_VD: Tensor) -> Tensor:
        return F.embedding(ids_BT, table_VD)

    def linear(self, x_BTI: Tensor, weight_OI: Tensor) -> Tensor:
        return F.linear(x_BTI, weight_OI)

    def linears(self, x_BTI: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(F.linear(x_BTI, weight_OI) for weight_OI in weights)

    def rounded_linears(
        self, x_BTI: Tensor, rounded: Frozen, weights: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        (values,) = rounded.parts
        given = torch.cat(list(weights))
        products = F.linear(x_BTI, values + (given - given.detach()))
        return torch.split(products, list(rounded.widths), dim=-1)

    def head(self, x_BTD: Tensor, weight_VD: Tensor) -> Tensor:
        return F.linear(x_BTD, weight_VD)

    def freeze(self, weights: Sequence[Tensor]) -> Frozen:
        stacked = weights[0] if len(weights) == 1 else torch.cat(list(weights))
        return Frozen((stacked,), tuple(len(weight) for weight in weights))

    def freeze_head(self, weight_VD: Tensor) -> Frozen:
        return self.freeze([weight_VD])

    def frozen_linears(self, x_BTI: Tensor, frozen: Frozen) -> tuple[Tensor, ...]:
        return torch.split(F.linear(x_BTI, *frozen.parts), list(frozen.widths), dim=-1)

    def frozen_head(self, x_BTD: Tensor, frozen: Frozen) -> Tensor:
        return F.linear(x_BTD, *frozen.parts)

    def add_bias(self, x_BTO: Tensor, bias_O: Tensor) -> Tensor:
        return x_BTO + bias_O

    def rms_norm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return F.rms_norm(x, gain.shape, gain, eps)

    def rotary(self, x_BHTd: Tensor, cos_Td: Tensor, sin_Td: Tensor) -> Tensor:
        a, b = x_BHTd.chunk(2, dim=-1)
        return torch.cat((a * cos_Td - b * sin_Td, b * cos_Td + a * sin_Td), dim=-1)

    def attention(self, q_BHTd: Tensor, k_BKTd: Tensor, v_BKTd: Tensor, *, context: int) -> Tensor:
        group = q_BHTd.shape[1] // k_BKTd.shape[1]
        k_BHTd, v_BHTd = (t.repeat_interleave(group, dim=1) for t in (k_BKTd, v_BKTd))
        return F.scaled_dot_product_attention(q_BHTd, k_BHTd, v_BHTd, is_causal=True)

    def swiglu(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(gate) * up

    def squared_relu(self, x: Tensor) -> Tensor:
        return F.relu(x).square()

    def dropout(self, x: Tensor, mask: Mask) -> Tensor:
        return torch.where(kept(mask, x.numel(), x.device).view(x.shape), x * mask.scale, 0.0)

    def cross_entropy(self, logits_BTV: Tensor, targets_BT: Tensor, weights_BT: Tensor) -> Tensor:
        targets_N = targets_BT.masked_fill(weights_BT == 0, _IGNORED).flatten()
        # PyTorch's mean over no target is 0/0.
        kind = "mean" if bool((targets_N >= 0).any()) else "sum"
        return F.cross_entropy(
            logits_BTV.flatten(0, 1), targets_N, ignore_index=_IGNORED, reduction=kind
        )

    def policy_loss(self, logits_BTV: Tensor, targets_BT: Tensor, weights_BT: Tensor) -> Tensor:
        targets_N = targets_BT.masked_fill(targets_BT < 0, _IGNORED).flatten()
        losses_N = F.cross_entropy(
            logits_BTV.flatten(0, 1), targets_N, ignore_index=_IGNORED, reduction="none"
        )
        return (losses_N * weights_BT.flatten()).sum()

    def global_norm(self, gradients: Iterable[Tensor]) -> float:
        total = 0.0
        for gradient in gradients:  # `sum` compensates from Python 3.12 on
            total += float(gradient.double().square().sum())
        return math.sqrt(total)

    def momentum(self, m: Tensor, g: Tensor, keep: float, add: float) -> Tensor:
        return m * keep + g * add

    def orthogonalise(self, matrix_OI: Tensor) -> Tensor:
        x = matrix_OI * (1.0 / max(self.global_norm([matrix_OI]), LEAST_NORM))
        x = x if x.shape[0] <= x.shape[1] else x.t()
        a, b, c = COEFFICIENTS
        for _ in range(ITERATIONS):
            gram = x @ x.t()
            x = x * a + (gram * b + gram @ gram * c) @ x
        return x if x.shape == matrix_OI.shape else x.t()

    def adamw(
        self, p: Tensor, m: Tensor, v: Tensor, g: Tensor, factors: AdamFactors
    ) -> tuple[Tensor, Tensor, Tensor]:
        f = factors
        g = g * f.scale
        m = m * f.beta1 + g * (1.0 - f.beta1)
        v = v * f.beta2 + (g * g) * (1.0 - f.beta2)
        u = (m * f.correct1) / (torch.sqrt(v * f.correct2) + f.eps)
        if f.decay:
            u = u + p * f.decay
        return p - u * f.rate, m, v


def operations() -> ExactOps:
    """What jobs compute with: the same bits on every machine and device."""
    return ExactOps(default_engine())


def reference_operations(device: torch.device = CPU) -> Ops:
    """The same bits by what everything faster is held to: slow, and nothing but plain PyTorch."""
    return ExactOps(reference_engine(device), is_graphed=False)
