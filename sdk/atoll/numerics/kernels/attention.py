"""Causal softmax attention on integers, forward and backward, in memory linear in its length.

After Vaswani et al. 2017, in tiles of `TILE` queries by `TILE` keys as in FlashAttention (Dao et
al. 2022), with scores computed again for the gradient. Every product is of integers small enough
that fp32 holds each partial sum: products contract over d or over a tile, any two operands may
meet, and so all have one number of levels, of which max(d, tile) squares stay within 2^24. A grid
belongs to one tile and tiles are added in one order, so nothing depends on how many slices are
worked on at a time. The steps of keys and values are folded into the other operand, as in `linear`.

Shapes: G slices (batch × query heads), T positions, d head width, t queries and s keys of a tile.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from atoll.numerics.kernels.interface import (
    Engine,
    Incoming,
    Levels,
    Operands,
    Scores,
    WholeAttention,
    attention_levels,
)


class Attention(torch.autograd.Function):
    """q [B, H, T, d], k and v [B, K, T, d] → [B, H, T, d], scores scaled by d^(−1/2)."""

    @staticmethod
    def forward(  # noqa: PLR0917 -- autograd passes all by place
        ctx: Any, engine: Engine, context: int, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        group = q.shape[1] // k.shape[1]
        whole = _whole(engine, q.shape[-1])
        held_in = torch.float32 if whole is None else torch.float16
        operands = _quantised(engine, (q, k, v), group, held_in, context)
        output, peak, inverse = (
            _forward(engine, operands) if whole is None else whole.forward(operands)
        )
        ctx.engine, ctx.whole, ctx.group, ctx.shape = engine, whole, group, q.shape
        ctx.levels = operands.levels
        ctx.save_for_backward(*operands.tensors, output, peak, inverse)
        return output.view(q.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor, Tensor, Tensor]:
        engine: Engine = ctx.engine
        whole: WholeAttention | None = ctx.whole
        q, q_step, k, k_step, v, v_step, output, peak, inverse = ctx.saved_tensors
        operands = Operands(q, q_step, k, k_step, v, v_step, ctx.levels)
        g = gradients[0].reshape(output.shape)
        delta = engine.kernels.row_dot(g, output)
        gi, g_step = engine.kernels.quantise_levels(g, operands.levels)
        incoming = Incoming(gi.to(operands.q.dtype), g_step, peak, inverse, delta)
        dq, dk, dv = (
            _backward(engine, operands, incoming)
            if whole is None
            else whole.backward(operands, incoming)
        )
        dq = dq * _scale(g.shape[-1])
        shape = ctx.shape
        dk, dv = (_sum_groups(t.view(shape), ctx.group) for t in (dk, dv))
        return None, None, dq.view(shape), dk, dv


def _whole(engine: Engine, width: int) -> WholeAttention | None:
    found = engine.attention
    return found if found is not None and found.holds(width) else None


def _scale(width: int) -> float:
    return 1.0 / math.sqrt(width)


def _quantised(
    engine: Engine,
    of: tuple[Tensor, Tensor, Tensor],
    group: int,
    held_in: torch.dtype,
    context: int,
) -> Operands:
    q, k, v = of
    levels = attention_levels(context, q.shape[-1])

    def slices(x: Tensor, repeats: int) -> Levels:
        integers, step = engine.kernels.quantise_levels(x, levels)
        integers = integers.to(held_in)
        if repeats > 1:
            integers, step = (t.repeat_interleave(repeats, dim=1) for t in (integers, step))
        return integers.flatten(0, 1), step.flatten(0, 1)

    qi, q_step = slices(q, 1)
    q_step = q_step * _scale(q.shape[-1])
    return Operands(qi, q_step, *slices(k, group), *slices(v, group), levels)


def _forward(engine: Engine, operands: Operands) -> tuple[Tensor, Tensor, Tensor]:
    output = torch.zeros_like(operands.q)
    peak, inverse = (torch.empty_like(operands.q_step) for _ in range(2))
    for part, some in operands.parts(engine.slices):
        for rows in some.tiles():
            _attend(engine, some, rows, (output[part], peak[part], inverse[part]))
    return output, peak, inverse


def _backward(
    engine: Engine, operands: Operands, incoming: Incoming
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.zeros_like(operands.q) for _ in range(3))
    for part, some in operands.parts(engine.slices):
        for rows in some.tiles():
            for keys in some.tiles():
                if keys.start <= rows.start:
                    outputs = dq[part], dk[part], dv[part]
                    _add_gradients(engine, some, incoming.of(part), (rows, keys), outputs)
    return dq, dk, dv


def _attend(
    engine: Engine, of: Operands, rows: slice, outputs: tuple[Tensor, Tensor, Tensor]
) -> None:
    """One tile of queries over all the keys they see."""
    output, peak, inverse = outputs
    seen = slice(0, rows.stop)
    scores = engine.batched(of.q[:, rows], of.k[:, seen].mT)
    weights, peak[:, rows], inverse[:, rows] = engine.kernels.attention_weights(
        scores, of.q_step[:, rows], of.k_step[:, seen], rows.start
    )
    total = output[:, rows]
    for keys in of.tiles():
        if keys.start <= rows.start:
            mixed, step = engine.kernels.quantise_mixture(
                weights, of.v_step[:, keys], keys.start, of.levels
            )
            total += engine.batched(mixed, of.v[:, keys]) * step
    # Once, at the end: divided before, every tile's weights would be rounded once more.
    total *= inverse[:, rows]


def _add_gradients(
    engine: Engine,
    of: Operands,
    incoming: Incoming,
    tile: tuple[slice, slice],
    outputs: tuple[Tensor, Tensor, Tensor],
) -> None:
    """What one tile of queries by keys adds to the gradients of q, k and v."""
    (rows, keys), (dq, dk, dv) = tile, outputs
    q, k, v, g = of.q[:, rows], of.k[:, keys], of.v[:, keys], incoming.g[:, rows]
    scores = Scores(
        engine.batched(q, k.mT), engine.batched(g, v.mT),
        of.q_step[:, rows], of.k_step[:, keys], incoming.g_step[:, rows], of.v_step[:, keys],
        incoming.peak[:, rows], incoming.inverse[:, rows], incoming.delta[:, rows],
        rows.start - keys.start, of.levels,
    )  # fmt: skip
    mixed, row, column = engine.kernels.attention_gradient(scores)
    dv[:, keys] += engine.batched(mixed[0].mT, g) * mixed[1].mT
    dq[:, rows] += engine.batched(row[0], k) * row[1]
    dk[:, keys] += engine.batched(column[0].mT, q) * column[1].mT


def _sum_groups(x_BHTd: Tensor, group: int) -> Tensor:
    """The gradient of shared key heads: [B, K, T, d], added in the order of query heads."""
    batch, heads, length, width = x_BHTd.shape
    members = x_BHTd.view(batch, heads // group, group, length, width).unbind(2)
    total = members[0]
    for member in members[1:]:
        total = total + member
    return total
