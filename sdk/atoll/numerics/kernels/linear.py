"""x · Wᵀ on integers, forward and backward.

Operands that contract over features are scaled per row, those that contract over tokens per column.
The scales of the backward operands are folded into the gradient, dX = (g·s_w) W_q and
dW = (g·s_x)ᵀ X_q, so weights and activations are quantised once a step. Gradients have two int8
slices (15 bits): in one slice their rounding moved the loss of a run by half a percent to either
side. Several weights that read the same input are one product. Frozen weights are quantised once,
when they are read, and only their integers are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from atoll.numerics.kernels.gemm import long_product
from atoll.numerics.kernels.interface import Engine, Frozen, Grid

_SUMS_AT_ONCE = 1 << 24
"""Numbers of a product in two slices whose three sums are there at once."""


class Int8Linear(torch.autograd.Function):
    """x [N, I] · weightᵀ [I, O] for each weight, x and weights in int8, gradients in two slices."""

    @staticmethod
    def forward(
        ctx: Any, engine: Engine, x_NI: Tensor, *weights: Tensor
    ) -> Tensor | tuple[Tensor, ...]:
        w = _stacked([engine.kernels.quantise_rows(weight, split=False) for weight in weights])
        return _products(ctx, engine, x_NI, w, [weight.shape[0] for weight in weights])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        dx_NI, weights = _backward(ctx, gradients)
        return None, dx_NI, *weights


class RoundedLinear(torch.autograd.Function):
    """As `Int8Linear` of weights that were rounded before: of each there may be but its shape."""

    @staticmethod
    def forward(
        ctx: Any, engine: Engine, x_NI: Tensor, rounded: Frozen, *weights: Tensor
    ) -> Tensor | tuple[Tensor, ...]:
        return _products(ctx, engine, x_NI, Grid(*rounded.parts), list(rounded.widths))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        dx_NI, weights = _backward(ctx, gradients)
        return None, dx_NI, None, *weights


def _products(
    ctx: Any, engine: Engine, x_NI: Tensor, w: Grid, widths: list[int]
) -> Tensor | tuple[Tensor, ...]:
    x = engine.kernels.quantise_rows(x_NI, split=False)
    ctx.save_for_backward(x.high, x.step, w.high, w.step)
    ctx.engine, ctx.widths = engine, widths
    sums_NO = engine.route.matmul(x.high, w.high.t())
    product_NO = engine.kernels.rescale(sums_NO, x.step, w.step.t())
    return product_NO if len(widths) == 1 else torch.split(product_NO, widths, dim=1)


def _backward(ctx: Any, gradients: Sequence[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
    x, x_step, w, w_step = ctx.saved_tensors
    kernels, multiply = ctx.engine.kernels, ctx.engine.route.matmul
    rows, columns = kernels.quantise_gradient(gradients, x_step, w_step.t())
    dx_NI = kernels.rescale_stacked(multiply(rows[0], w), rows[1])
    dw_OI = kernels.rescale_stacked(multiply(columns[0].t(), x), columns[1].t())
    return dx_NI, torch.split(dw_OI, ctx.widths)


def _stacked(grids: Sequence[Grid]) -> Grid:
    if len(grids) == 1:
        return grids[0]
    return Grid(torch.cat([g.high for g in grids]), torch.cat([g.step for g in grids]))


class SplitLinear(torch.autograd.Function):
    """One weight, with two int8 slices an operand (15 bits): the output head needs them."""

    @staticmethod
    def forward(ctx: Any, engine: Engine, x_NI: Tensor, weight_OI: Tensor) -> Tensor:
        x = engine.kernels.quantise_rows(x_NI, split=True)
        w = engine.kernels.quantise_rows(weight_OI, split=True)
        ctx.save_for_backward(x.high, x.low_slice, x.step, w.high, w.low_slice, w.step)
        ctx.engine = engine
        transposed = Grid(w.high.t(), w.step.t(), w.low_slice.t())
        return _split_product(engine, x, transposed, x.step, w.step.t())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        x_high, x_low, x_step, w_high, w_low, w_step = ctx.saved_tensors
        engine: Engine = ctx.engine
        (rows, row_step), (columns, column_step) = engine.kernels.quantise_gradient(
            gradients, x_step, w_step.t()
        )
        count, width = len(x_high), len(w_high)
        g = Grid(rows[:count], row_step, rows[count:])
        ones_1I = x_step.new_ones(1, x_high.shape[1])
        dx_NI = _split_product(engine, g, Grid(w_high, w_step, w_low), row_step, ones_1I)
        del g, rows
        g_t = Grid(columns[:, :width].t(), column_step.t(), columns[:, width:].t())
        dw_OI = _split_product(engine, g_t, Grid(x_high, x_step, x_low), column_step.t(), ones_1I)
        return None, dx_NI, dw_OI


def freeze(engine: Engine, weights: Sequence[Tensor], split: bool) -> Frozen:
    """Integers and steps of weights [O, I] that share their input, as `FrozenLinear` reads them."""
    grids = [engine.kernels.quantise_rows(weight, split=split) for weight in weights]
    slices = [[g.high for g in grids], [g.low_slice for g in grids] if split else []]
    parts = [torch.cat(part) for part in (*slices, [g.step for g in grids]) if part]
    return Frozen(tuple(parts), tuple(len(weight) for weight in weights))


class FrozenLinear(torch.autograd.Function):
    """As `Int8Linear` with weights that have no gradient: what theirs would need is not kept."""

    @staticmethod
    def forward(
        ctx: Any, engine: Engine, x_NI: Tensor, frozen: Frozen
    ) -> Tensor | tuple[Tensor, ...]:
        x = engine.kernels.quantise_rows(x_NI, split=False)
        w, w_step = frozen.parts
        ctx.engine, ctx.parts = engine, frozen.parts
        sums_NO = engine.route.matmul(x.high, w.t())
        product_NO = engine.kernels.rescale(sums_NO, x.step, w_step.t())
        if len(frozen.widths) == 1:
            return product_NO
        return torch.split(product_NO, list(frozen.widths), dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        w, w_step = ctx.parts
        kernels = ctx.engine.kernels
        g = kernels.quantise_rows(torch.cat(gradients, dim=1) * w_step.t(), split=True)
        sums_2NI = ctx.engine.route.matmul(torch.cat((g.high, g.low_slice)), w)
        return None, kernels.rescale_stacked(sums_2NI, g.step), None


class FrozenSplitLinear(torch.autograd.Function):
    """As `SplitLinear` with a weight that has no gradient."""

    @staticmethod
    def forward(ctx: Any, engine: Engine, x_NI: Tensor, frozen: Frozen) -> Tensor:
        x = engine.kernels.quantise_rows(x_NI, split=True)
        high, low, step = frozen.parts
        ctx.engine, ctx.parts = engine, frozen.parts
        return _split_product(engine, x, Grid(high.t(), step.t(), low.t()), x.step, step.t())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        high, low, step = ctx.parts
        engine: Engine = ctx.engine
        g = engine.kernels.quantise_rows(gradients[0] * step.t(), split=True)
        ones_1I = step.new_ones(1, high.shape[1])
        dx_NI = _split_product(engine, g, Grid(high, step, low), g.step, ones_1I)
        return None, dx_NI, None


def _split_product(
    engine: Engine, left: Grid, right: Grid, row_step: Tensor, column_step: Tensor
) -> Tensor:
    """(254·a + b)(254·c + d) without its smallest term b·d, below 2^-14 of the result's grid.

    It may contract over the vocabulary, which is more than an int32 holds the sum of. Some rows at
    a time, as each number takes twelve bytes of sums or twice that.
    """
    multiply, low_slice = partial(long_product, engine.route), left.low_slice
    found = row_step.new_empty(len(left.high), right.high.shape[1])
    rows = max(1, _SUMS_AT_ONCE // found.shape[1])
    for at in range(0, len(found), rows):
        span = slice(at, at + rows)
        high = multiply(left.high[span], right.high)
        middle = multiply(left.high[span], right.low_slice), multiply(low_slice[span], right.high)
        sums = high, *middle
        found[span] = engine.kernels.rescale_split(sums, row_step[span], column_step)
    return found
