"""The exact operations of model and step: one set of bits on every machine, at int8 speed.

`ExactOps` has the interface of `atoll.numerics.ops.Ops`. `docs/numerics.md` says what each
operation costs and loses.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

import torch
from torch import Tensor

from atoll.numerics.kernels.attention import Attention
from atoll.numerics.kernels.graphs import Graphs, Work
from atoll.numerics.kernels.interface import AdamFactors, Engine, Frozen
from atoll.numerics.kernels.linear import (
    FrozenLinear,
    FrozenSplitLinear,
    Int8Linear,
    RoundedLinear,
    SplitLinear,
    freeze,
)
from atoll.numerics.kernels.muon import orthogonalise
from atoll.numerics.kernels.philox import Mask
from atoll.numerics.kernels.pointwise import (
    Bias,
    CrossEntropy,
    Dropout,
    Embedding,
    PolicyLoss,
    RmsNorm,
    Rotary,
    SquaredRelu,
    SwiGlu,
)


def _apply(function: type[torch.autograd.Function], *arguments: object) -> Tensor:
    result: Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]
    return result


class ExactOps:
    """Shapes as in `atoll.numerics.ops.Ops`."""

    def __init__(self, engine: Engine, *, is_graphed: bool = True) -> None:
        self.engine = engine
        self._graphs = Graphs() if is_graphed and engine.device.type == "cuda" else None

    @property
    def device(self) -> torch.device:
        return self.engine.device

    @property
    def is_graphed(self) -> bool:
        return self._graphs is not None

    def graphed(
        self, work: Work, inputs: Sequence[Tensor], what: Hashable, held: object
    ) -> list[Tensor]:
        if self._graphs is None:
            return work(inputs)
        return self._graphs.run(work, inputs, what, held)

    def embedding(self, ids_BT: Tensor, table_VD: Tensor) -> Tensor:
        rows = _apply(Embedding, self.engine, ids_BT.flatten(), table_VD)
        return rows.view(*ids_BT.shape, table_VD.shape[1])

    def linear(self, x_BTI: Tensor, weight_OI: Tensor) -> Tensor:
        product = _apply(Int8Linear, self.engine, x_BTI.flatten(0, 1), weight_OI)
        return product.view(*x_BTI.shape[:-1], weight_OI.shape[0])

    def linears(self, x_BTI: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
        products = _apply(Int8Linear, self.engine, x_BTI.flatten(0, 1), *weights)
        parts = [products] if len(weights) == 1 else products
        return tuple(p.view(*x_BTI.shape[:-1], p.shape[1]) for p in parts)

    def rounded_linears(
        self, x_BTI: Tensor, rounded: Frozen, weights: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        products = _apply(RoundedLinear, self.engine, x_BTI.flatten(0, 1), rounded, *weights)
        parts = [products] if len(weights) == 1 else products
        return tuple(p.view(*x_BTI.shape[:-1], p.shape[1]) for p in parts)

    def head(self, x_BTD: Tensor, weight_VD: Tensor) -> Tensor:
        product = _apply(SplitLinear, self.engine, x_BTD.flatten(0, 1), weight_VD)
        return product.view(*x_BTD.shape[:-1], weight_VD.shape[0])

    def freeze(self, weights: Sequence[Tensor]) -> Frozen:
        return freeze(self.engine, weights, split=False)

    def freeze_head(self, weight_VD: Tensor) -> Frozen:
        return freeze(self.engine, [weight_VD], split=True)

    def frozen_linears(self, x_BTI: Tensor, frozen: Frozen) -> tuple[Tensor, ...]:
        products = _apply(FrozenLinear, self.engine, x_BTI.flatten(0, 1), frozen)
        parts = [products] if len(frozen.widths) == 1 else products
        return tuple(p.view(*x_BTI.shape[:-1], p.shape[1]) for p in parts)

    def frozen_head(self, x_BTD: Tensor, frozen: Frozen) -> Tensor:
        product = _apply(FrozenSplitLinear, self.engine, x_BTD.flatten(0, 1), frozen)
        return product.view(*x_BTD.shape[:-1], product.shape[1])

    def add_bias(self, x_BTO: Tensor, bias_O: Tensor) -> Tensor:
        return _apply(Bias, self.engine, x_BTO, bias_O)

    def rms_norm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        normed = _apply(RmsNorm, self.engine, x.flatten(0, -2), gain, eps)
        return normed.view(x.shape)

    def rotary(self, x_BHTd: Tensor, cos_Td: Tensor, sin_Td: Tensor) -> Tensor:
        return _apply(Rotary, self.engine, x_BHTd, cos_Td, sin_Td)

    def attention(self, q_BHTd: Tensor, k_BKTd: Tensor, v_BKTd: Tensor, *, context: int) -> Tensor:
        return _apply(Attention, self.engine, context, q_BHTd, k_BKTd, v_BKTd)

    def swiglu(self, gate_BTF: Tensor, up_BTF: Tensor) -> Tensor:
        gated = _apply(SwiGlu, self.engine, gate_BTF.flatten(0, 1), up_BTF.flatten(0, 1))
        return gated.view(gate_BTF.shape)

    def squared_relu(self, x: Tensor) -> Tensor:
        return _apply(SquaredRelu, self.engine, x)

    def dropout(self, x: Tensor, mask: Mask) -> Tensor:
        return _apply(Dropout, self.engine, x, mask)

    def cross_entropy(self, logits_BTV: Tensor, targets_BT: Tensor, weights_BT: Tensor) -> Tensor:
        # Kernels, traces and the chain have both in one integer: negative is no target.
        signed_N = targets_BT.masked_fill(weights_BT == 0, -1).flatten()
        return _apply(CrossEntropy, self.engine, logits_BTV.flatten(0, 1), signed_N)

    def policy_loss(self, logits_BTV: Tensor, targets_BT: Tensor, weights_BT: Tensor) -> Tensor:
        flat = logits_BTV.flatten(0, 1), targets_BT.flatten(), weights_BT.flatten()
        return _apply(PolicyLoss, self.engine, *flat)

    def global_norm(self, gradients: Iterable[Tensor]) -> float:
        total = 0.0
        for integer, step in self.engine.kernels.square_sums(list(gradients)):
            # Python's float arithmetic: IEEE, separate operations, one order.
            total += float(integer) * (step * step)
        return math.sqrt(total)

    def momentum(self, m: Tensor, g: Tensor, keep: float, add: float) -> Tensor:
        return self.engine.kernels.momentum(m, g, keep, add)

    def orthogonalise(self, matrix_OI: Tensor) -> Tensor:
        return orthogonalise(self.engine, matrix_OI)

    def adamw(
        self, p: Tensor, m: Tensor, v: Tensor, g: Tensor, factors: AdamFactors
    ) -> tuple[Tensor, Tensor, Tensor]:
        return self.engine.kernels.adamw(p, m, v, g, factors)
