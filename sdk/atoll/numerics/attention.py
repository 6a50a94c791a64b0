"""Causal softmax attention on integers, forward and backward (Vaswani et al. 2017).

Scores, mixtures and their three gradients are products of integers small enough that fp32 holds
every partial sum; the softmax's denominator is a fixed-point sum. The steps of keys and values are
folded into the other operand, as in `linear`.
Shapes: B batch, H heads, T positions, d head width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from atoll.numerics.elementary import exp
from atoll.numerics.grid import exact_sum, operand_levels, quantise

_MASKED = -1e30


class Attention(torch.autograd.Function):
    """q [B, H, T, d], k and v [B, K, T, d] → [B, H, T, d], scores scaled by d^(−1/2)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        length, width = q.shape[-2:]
        key_heads = k.shape[1]
        k, v = (t.repeat_interleave(q.shape[1] // key_heads, dim=1) for t in (k, v))
        narrow, wide = operand_levels(width), operand_levels(length)
        scale = 1.0 / math.sqrt(width)
        (qi, qs), (ki, ks) = quantise(q, -1, narrow), quantise(k, -1, narrow)
        vi, vs = quantise(v, -1, min(narrow, wide))
        scores = (qi @ ki.mT) * (qs * scale) * ks.mT
        future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, _MASKED)
        weights = exp(scores - scores.amax(-1, keepdim=True))
        total = torch.round(weights * 2.0**23).double().sum(-1, keepdim=True)
        inverse = (total * 2.0**-23).reciprocal().float()
        mixed, mixed_step = quantise(weights * vs.mT, -1, wide)
        output = (mixed @ vi) * mixed_step * inverse
        ctx.key_heads = key_heads
        ctx.save_for_backward(qi, qs, ki, ks, vi, vs, weights, inverse, output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (g,) = gradients
        qi, qs, ki, ks, vi, vs, weights, inverse, output = ctx.saved_tensors
        length, width = qi.shape[-2:]
        scale = 1.0 / math.sqrt(width)
        wide = operand_levels(length)
        gi, gs = quantise(g, -1, min(operand_levels(width), wide))
        delta = exact_sum(g * output, -1)
        share = weights * inverse
        d_share = (gi @ vi.mT).double() * (gs * vs.mT).double() - delta
        d_scores = share * d_share.float() * scale
        (vq, v_step) = quantise(share * gs, -2, wide)
        (row, row_step) = quantise(d_scores * ks.mT, -1, wide)
        (column, column_step) = quantise(d_scores * qs, -2, wide)
        dq = (row @ ki) * row_step
        dk = (column.mT @ qi) * column_step.mT
        dv = (vq.mT @ gi) * v_step.mT
        return dq, _sum_groups(dk, ctx.key_heads), _sum_groups(dv, ctx.key_heads)


def _sum_groups(x_BHTd: Tensor, key_heads: int) -> Tensor:
    """The gradient of shared key heads: [B, K, T, d], added in the order of query heads."""
    batch, heads, length, width = x_BHTd.shape
    members = x_BHTd.view(batch, key_heads, heads // key_heads, length, width).unbind(2)
    total = members[0]
    for member in members[1:]:
        total = total + member
    return total
