"""Norm, rotation, gate, embedding and loss, each with its gradient, from exact sums and safe maths.

A product that feeds an addition is formed in fp64, where it is exact (24 × 24 bits), so that a
fused multiply-add rounds to the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from atoll.numerics.elementary import exp, log, rsqrt, sigmoid
from atoll.numerics.grid import exact_sum, quantise

LOSS_LEVELS = 2**22


def multiply_add(x: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """x + u·v, rounded to fp32 from an fp64 sum whose product is exact."""
    return (x.double() + u.double() * v.double()).float()


class RmsNorm(torch.autograd.Function):
    """x / sqrt(mean(x²) + eps) · gain over the last axis; x [N, D]."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, gain_D: Tensor, eps: float) -> Tensor:
        integers, step_N1 = quantise(x_ND, -1, 2**20)
        wide = integers.double()
        square_N1 = (wide * wide).sum(-1, keepdim=True) * (step_N1.double() * step_N1.double())
        inverse_N1 = rsqrt((square_N1 * (1.0 / x_ND.shape[-1])).float() + eps)
        ctx.save_for_backward(x_ND, inverse_N1, gain_D)
        return x_ND * inverse_N1 * gain_D

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (g_ND,) = gradients
        x_ND, inverse_N1, gain_D = ctx.saved_tensors
        unit_ND, gained_ND = x_ND * inverse_N1, g_ND * gain_D
        mean_N1 = (exact_sum(gained_ND * unit_ND, -1) * (1.0 / x_ND.shape[-1])).float()
        dx_ND = multiply_add(gained_ND, unit_ND, -mean_N1) * inverse_N1
        return dx_ND, exact_sum(g_ND * unit_ND, 0).float().squeeze(0), None


def _rotate(x_BHTd: Tensor, cos_Td: Tensor, sin_Td: Tensor) -> Tensor:
    a, b = x_BHTd.double().chunk(2, dim=-1)
    c, s = cos_Td.double(), sin_Td.double()
    return torch.cat(((a * c - b * s).float(), (b * c + a * s).float()), dim=-1)


class Rotary(torch.autograd.Function):
    """Pairs (x[i], x[i + d/2]) turned by their position's angle; backward turns them back."""

    @staticmethod
    def forward(ctx: Any, x_BHTd: Tensor, cos_Td: Tensor, sin_Td: Tensor) -> Tensor:
        ctx.save_for_backward(cos_Td, sin_Td)
        return _rotate(x_BHTd, cos_Td, sin_Td)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos_Td, sin_Td = ctx.saved_tensors
        return _rotate(gradients[0], cos_Td, -sin_Td), None, None


class SwiGlu(torch.autograd.Function):
    """gate · sigmoid(gate) · up."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return gate * sigmoid(gate) * up

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (g,) = gradients
        gate, up = ctx.saved_tensors
        s = sigmoid(gate)
        silu = gate * s
        slope = multiply_add(s, silu, 1.0 - s)
        return g * up * slope, g * silu


class Embedding(torch.autograd.Function):
    """Rows of a table; the gradient is summed on an integer grid per column."""

    @staticmethod
    def forward(ctx: Any, ids_N: Tensor, table_VD: Tensor) -> Tensor:
        ctx.save_for_backward(ids_N)
        ctx.vocabulary = table_VD.shape[0]
        return table_VD[ids_N]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        (g_ND,) = gradients
        (ids_N,) = ctx.saved_tensors
        integers, step_1D = quantise(g_ND, 0, 2**22)
        sums_VD = torch.zeros(
            ctx.vocabulary, g_ND.shape[1], dtype=torch.int64, device=g_ND.device
        ).index_add_(0, ids_N, integers.long())
        return None, (sums_VD.double() * step_1D.double()).float()


class CrossEntropy(torch.autograd.Function):
    """Mean negative log-likelihood in nats of targets [N] under logits [N, V]."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        shifted_NV = logits_NV - logits_NV.amax(-1, keepdim=True)
        weights_NV = exp(shifted_NV)
        total_N1 = torch.round(weights_NV * 2.0**30).double().sum(-1, keepdim=True) * 2.0**-30
        ctx.save_for_backward(weights_NV, total_N1, targets_N)
        picked_N1 = shifted_NV.gather(1, targets_N[:, None])
        losses_N1 = log(total_N1.float()) - picked_N1
        return (exact_sum(losses_N1, 0) * (1.0 / losses_N1.shape[0])).float().reshape(())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (g,) = gradients
        weights_NV, total_N1, targets_N = ctx.saved_tensors
        share_NV = weights_NV * total_N1.reciprocal().float()
        one = torch.ones((), dtype=share_NV.dtype, device=share_NV.device)
        hot_NV = torch.zeros_like(share_NV).scatter_(1, targets_N[:, None], one.item())
        return (share_NV - hot_NV) * (g.double() * (1.0 / targets_N.shape[0])).float(), None
