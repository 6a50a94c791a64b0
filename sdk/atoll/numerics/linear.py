"""x · Wᵀ on integers, forward and backward.

Operands that contract over features are scaled per row, those that contract over tokens per column.
The scales of the backward operands are folded into the gradient, dX = (g·s_w) W_q and
dW = (g·s_x)ᵀ X_q, so weights and activations are quantised once a step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from atoll.numerics.gemm import Route
from atoll.numerics.grid import SPLIT_BASE, quantise_int8, quantise_split


def _integer_product(route: Route, x: Tensor, w: Tensor, step: Tensor) -> Tensor:
    return route.matmul(x, w).float() * step


class Int8Linear(torch.autograd.Function):
    """x [N, I] · weightᵀ [I, O] with int8 operands in all three products."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, route: Route) -> Tensor:
        xq_NI, xs_N1 = quantise_int8(x_NI, 1)
        wq_OI, ws_O1 = quantise_int8(weight_OI, 1)
        ctx.save_for_backward(xq_NI, xs_N1, wq_OI, ws_O1)
        ctx.route = route
        return _integer_product(route, xq_NI, wq_OI.t(), xs_N1 * ws_O1.t())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (g_NO,) = gradients
        xq_NI, xs_N1, wq_OI, ws_O1 = ctx.saved_tensors
        row_NO, row_step_N1 = quantise_int8(g_NO * ws_O1.t(), 1)
        column_NO, column_step_1O = quantise_int8(g_NO * xs_N1, 0)
        dx_NI = _integer_product(ctx.route, row_NO, wq_OI, row_step_N1)
        dw_OI = _integer_product(ctx.route, column_NO.t(), xq_NI, column_step_1O.t())
        return dx_NI, dw_OI, None


Slices = tuple[Tensor, Tensor]


def _split_product(route: Route, left: Slices, right: Slices, step: Tensor) -> Tensor:
    """(254·a + b)(254·c + d) without its smallest term b·d, below 2^-14 of the result's grid."""
    (a, b), (c, d) = left, right
    high = route.matmul(a, c).double() * float(SPLIT_BASE * SPLIT_BASE)
    middle = (route.matmul(a, d) + route.matmul(b, c)).double() * float(SPLIT_BASE)
    return (high + middle).float() * step


class SplitLinear(torch.autograd.Function):
    """As Int8Linear with two int8 slices an operand (15 bits): the output head needs them."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, route: Route) -> Tensor:
        xh_NI, xl_NI, xs_N1 = quantise_split(x_NI, 1)
        wh_OI, wl_OI, ws_O1 = quantise_split(weight_OI, 1)
        ctx.save_for_backward(xh_NI, xl_NI, xs_N1, wh_OI, wl_OI, ws_O1)
        ctx.route = route
        return _split_product(route, (xh_NI, xl_NI), (wh_OI.t(), wl_OI.t()), xs_N1 * ws_O1.t())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (g_NO,) = gradients
        xh_NI, xl_NI, xs_N1, wh_OI, wl_OI, ws_O1 = ctx.saved_tensors
        rh_NO, rl_NO, row_step_N1 = quantise_split(g_NO * ws_O1.t(), 1)
        ch_NO, cl_NO, column_step_1O = quantise_split(g_NO * xs_N1, 0)
        dx_NI = _split_product(ctx.route, (rh_NO, rl_NO), (wh_OI, wl_OI), row_step_N1)
        columns = ch_NO.t(), cl_NO.t()
        dw_OI = _split_product(ctx.route, columns, (xh_NI, xl_NI), column_step_1O.t())
        return dx_NI, dw_OI, None
