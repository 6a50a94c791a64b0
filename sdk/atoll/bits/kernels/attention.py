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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atoll.bits.kernels.grid import operand_levels
from atoll.bits.kernels.interface import TILE, Engine, Levels, Scores


@dataclass(frozen=True, slots=True)
class _Operands:
    """Integers and steps [G, T, d] and [G, T, 1]; `q_step` holds the factor d^(−1/2)."""

    q: Tensor
    q_step: Tensor
    k: Tensor
    k_step: Tensor
    v: Tensor
    v_step: Tensor

    def parts(self, count: int) -> Iterator[tuple[slice, _Operands]]:
        for start in range(0, len(self.q), count):
            part = slice(start, start + count)
            names = "q", "q_step", "k", "k_step", "v", "v_step"
            yield part, _Operands(*(getattr(self, name)[part] for name in names))

    @property
    def levels(self) -> int:
        return _levels(self.q)

    def tiles(self) -> list[slice]:
        length = self.q.shape[1]
        return [slice(at, min(at + TILE, length)) for at in range(0, length, TILE)]


class Attention(torch.autograd.Function):
    """q [B, H, T, d], k and v [B, K, T, d] → [B, H, T, d], scores scaled by d^(−1/2)."""

    @staticmethod
    def forward(ctx: Any, engine: Engine, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        group = q.shape[1] // k.shape[1]
        operands = _quantised(engine, q, k, v, group)
        output = q.new_zeros(operands.q.shape)
        peak, inverse = (q.new_empty(operands.q_step.shape) for _ in range(2))
        for part, some in operands.parts(engine.slices):
            for rows in some.tiles():
                _attend(engine, some, rows, (output[part], peak[part], inverse[part]))
        ctx.engine, ctx.group, ctx.shape = engine, group, q.shape
        ctx.save_for_backward(
            operands.q, operands.q_step, operands.k, operands.k_step, operands.v, operands.v_step,
            output, peak, inverse,
        )  # fmt: skip
        return output.view(q.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        engine: Engine = ctx.engine
        operands, (output, peak, inverse) = _Operands(*ctx.saved_tensors[:6]), ctx.saved_tensors[6:]
        g = gradients[0].reshape(output.shape)
        delta = engine.kernels.row_dot(g, output)
        gi, g_step = engine.kernels.quantise_levels(g, operands.levels)
        dq, dk, dv = (torch.zeros_like(output) for _ in range(3))
        for part, some in operands.parts(engine.slices):
            saved = tuple(t[part] for t in (peak, inverse, delta, gi, g_step))
            for rows in some.tiles():
                for keys in some.tiles():
                    if keys.start <= rows.start:
                        _add_gradients(
                            engine, some, saved, (rows, keys), (dq[part], dk[part], dv[part])
                        )
        dq = dq * _scale(g.shape[-1])
        shape = ctx.shape
        dk, dv = (_sum_groups(t.view(shape), ctx.group) for t in (dk, dv))
        return None, dq.view(shape), dk, dv


def _scale(width: int) -> float:
    return 1.0 / math.sqrt(width)


def _levels(x: Tensor) -> int:
    """Of every operand [..., T, d]."""
    length, width = x.shape[-2:]
    return operand_levels(max(width, min(TILE, length)))


def _quantised(engine: Engine, q: Tensor, k: Tensor, v: Tensor, group: int) -> _Operands:
    levels = _levels(q)

    def slices(x: Tensor, repeats: int) -> Levels:
        integers, step = engine.kernels.quantise_levels(x, levels)
        if repeats > 1:
            integers, step = (t.repeat_interleave(repeats, dim=1) for t in (integers, step))
        return integers.flatten(0, 1), step.flatten(0, 1)

    qi, q_step = slices(q, 1)
    return _Operands(qi, q_step * _scale(q.shape[-1]), *slices(k, group), *slices(v, group))


def _attend(
    engine: Engine, of: _Operands, rows: slice, outputs: tuple[Tensor, Tensor, Tensor]
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
    of: _Operands,
    saved: tuple[Tensor, ...],
    tile: tuple[slice, slice],
    outputs: tuple[Tensor, Tensor, Tensor],
) -> None:
    """What one tile of queries by keys adds to the gradients of q, k and v."""
    (rows, keys), (dq, dk, dv) = tile, outputs
    peak, inverse, delta, g, g_step = (t[:, rows] for t in saved)
    q, k, v = of.q[:, rows], of.k[:, keys], of.v[:, keys]
    scores = Scores(
        engine.batched(q, k.mT), engine.batched(g, v.mT),
        of.q_step[:, rows], of.k_step[:, keys], g_step, of.v_step[:, keys],
        peak, inverse, delta, rows.start - keys.start, of.levels,
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
