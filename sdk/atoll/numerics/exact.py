"""The exact operations of model and step: one set of bits on every machine, at int8 speed.

`ExactOps` has the interface of `atoll.train.ops.Ops`. See `docs/numerics.md` for what each
operation costs and loses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

import torch
from torch import Tensor

from atoll.numerics.attention import Attention
from atoll.numerics.elementary import sqrt
from atoll.numerics.gemm import Route, choose_route
from atoll.numerics.grid import exact_square_sum
from atoll.numerics.linear import Int8Linear, SplitLinear
from atoll.numerics.pointwise import CrossEntropy, Embedding, RmsNorm, Rotary, SwiGlu


@cache
def default_route() -> Route:
    """The fastest exact route of this machine's CPU, measured once a process."""
    return choose_route("auto")


def _apply(function: type[torch.autograd.Function], *arguments: object) -> Tensor:
    result: Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]
    return result


class ExactOps:
    """Shapes as in `atoll.train.ops.Ops`."""

    def __init__(self, route: Route | None = None) -> None:
        self.route = route or default_route()

    def embedding(self, ids_BT: Tensor, table_VD: Tensor) -> Tensor:
        rows = _apply(Embedding, ids_BT.flatten(), table_VD)
        return rows.view(*ids_BT.shape, table_VD.shape[1])

    def linear(self, x_BTI: Tensor, weight_OI: Tensor) -> Tensor:
        product = _apply(Int8Linear, x_BTI.flatten(0, 1), weight_OI, self.route)
        return product.view(*x_BTI.shape[:-1], weight_OI.shape[0])

    def head(self, x_BTI: Tensor, weight_OI: Tensor) -> Tensor:
        product = _apply(SplitLinear, x_BTI.flatten(0, 1), weight_OI, self.route)
        return product.view(*x_BTI.shape[:-1], weight_OI.shape[0])

    def rms_norm(self, x_BTD: Tensor, gain_D: Tensor, eps: float) -> Tensor:
        normed = _apply(RmsNorm, x_BTD.flatten(0, 1), gain_D, eps)
        return normed.view_as(x_BTD)

    def rotary(self, x_BHTd: Tensor, cos_Td: Tensor, sin_Td: Tensor) -> Tensor:
        return _apply(Rotary, x_BHTd, cos_Td, sin_Td)

    def attention(self, q_BHTd: Tensor, k_BKTd: Tensor, v_BKTd: Tensor) -> Tensor:
        return _apply(Attention, q_BHTd, k_BKTd, v_BKTd)

    def swiglu(self, gate: Tensor, up: Tensor) -> Tensor:
        return _apply(SwiGlu, gate, up)

    def cross_entropy(self, logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
        return _apply(CrossEntropy, logits_BTV.flatten(0, 1), targets_BT.flatten())

    def global_norm(self, gradients: Iterable[Tensor]) -> float:
        total = 0.0
        for gradient in gradients:
            integer, step = exact_square_sum(gradient)
            # Python's float arithmetic: IEEE, separate operations, one order.
            total += float(integer) * (float(step) * float(step))
        return math.sqrt(total)

    def adam_direction(self, m: Tensor, v: Tensor, eps: float) -> Tensor:
        return (m.double() / (sqrt(v).double() + eps)).float()
