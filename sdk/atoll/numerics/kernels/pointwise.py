"""Norm, rotation, gate, embedding and loss, each with its gradient, as autograd functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from atoll.numerics.kernels.elementary import log
from atoll.numerics.kernels.grid import exact_sum
from atoll.numerics.kernels.interface import Engine
from atoll.numerics.kernels.philox import Mask


class Bias(torch.autograd.Function):
    """x + bias, x [..., O]; the bias's gradient is an exact sum over all rows.

    That sum is the embedding's gradient of a table of one row, which every row was looked up in.
    """

    @staticmethod
    def forward(ctx: Any, engine: Engine, x: Tensor, bias_O: Tensor) -> Tensor:
        ctx.engine = engine
        return x + bias_O

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor | None]:
        (g,) = gradients
        if not ctx.needs_input_grad[2]:
            return None, g, None
        g_NO = g.flatten(0, -2)
        only_N = torch.zeros(len(g_NO), dtype=torch.int64, device=g.device)
        return None, g, ctx.engine.kernels.embedding_gradient(g_NO, only_N, 1).squeeze(0)


class RmsNorm(torch.autograd.Function):
    """x / sqrt(mean(x²) + eps) · gain over the last axis; x [N, I]."""

    @staticmethod
    def forward(ctx: Any, engine: Engine, x_NI: Tensor, gain_I: Tensor, eps: float) -> Tensor:
        normed_NI, inverse_N1 = engine.kernels.rms_norm(x_NI, gain_I, eps)
        ctx.save_for_backward(x_NI, inverse_N1, gain_I)
        ctx.engine = engine
        return normed_NI

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor, None]:
        dx_NI, dgain_I = ctx.engine.kernels.rms_norm_gradient(gradients[0], *ctx.saved_tensors)
        return None, dx_NI, dgain_I, None


class Rotary(torch.autograd.Function):
    """Pairs (x[i], x[i + d/2]) turned by their position's angle; backward turns them back."""

    @staticmethod
    def forward(ctx: Any, engine: Engine, x_BHTd: Tensor, cos_Td: Tensor, sin_Td: Tensor) -> Tensor:
        ctx.save_for_backward(cos_Td, sin_Td)
        ctx.engine = engine
        return engine.kernels.rotate(x_BHTd, cos_Td, sin_Td, 1.0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None, None]:
        return None, ctx.engine.kernels.rotate(gradients[0], *ctx.saved_tensors, -1.0), None, None


class SwiGlu(torch.autograd.Function):
    """gate · sigmoid(gate) · up, all [N, O]."""

    @staticmethod
    def forward(ctx: Any, engine: Engine, gate_NO: Tensor, up_NO: Tensor) -> Tensor:
        ctx.save_for_backward(gate_NO, up_NO)
        ctx.engine = engine
        return engine.kernels.swiglu(gate_NO, up_NO)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        return None, *ctx.engine.kernels.swiglu_gradient(gradients[0], *ctx.saved_tensors)


class SquaredRelu(torch.autograd.Function):
    """max(x, 0)², element by element."""

    @staticmethod
    def forward(ctx: Any, engine: Engine, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.engine = engine
        return engine.kernels.squared_relu(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.engine.kernels.squared_relu_gradient(gradients[0], *ctx.saved_tensors)


class Dropout(torch.autograd.Function):
    """Drops the mask's elements of x and scales the others, forward and backward."""

    @staticmethod
    def forward(ctx: Any, engine: Engine, x: Tensor, mask: Mask) -> Tensor:
        ctx.engine, ctx.mask = engine, mask
        return engine.kernels.drop(x, mask)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        return None, ctx.engine.kernels.drop(gradients[0], ctx.mask), None


class Embedding(torch.autograd.Function):
    """Rows of a table; the gradient is summed on an integer grid per column."""

    @staticmethod
    def forward(ctx: Any, engine: Engine, ids_N: Tensor, table_VI: Tensor) -> Tensor:
        ctx.save_for_backward(ids_N)
        ctx.engine, ctx.vocabulary = engine, table_VI.shape[0]
        return table_VI[ids_N]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        (ids_N,) = ctx.saved_tensors
        kernels = ctx.engine.kernels
        return None, None, kernels.embedding_gradient(gradients[0], ids_N, ctx.vocabulary)


class PolicyLoss(torch.autograd.Function):
    """Σ of weight times negative log-likelihood of targets [N] under logits [N, V].

    Negative targets are none, whatever their weight is.
    """

    @staticmethod
    def forward(
        ctx: Any, engine: Engine, logits_NV: Tensor, targets_N: Tensor, weights_N: Tensor
    ) -> Tensor:
        slope_NV, total_N, picked_N = engine.kernels.softmax_loss(logits_NV, targets_N)
        ctx.save_for_backward(slope_NV, weights_N)
        losses_N = (log(total_N.float()) - picked_N) * weights_N
        return exact_sum(losses_N, 0).float().reshape(())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None, None]:
        slope_NV, weights_N = ctx.saved_tensors
        # Of a step the loss is the loss: its gradient is 1, and this is slope · weight.
        return None, slope_NV * (weights_N * gradients[0])[:, None], None, None


class CrossEntropy(torch.autograd.Function):
    """Mean negative log-likelihood in nats of targets [N] under logits [N, V].

    Negative targets are none: the mean is over the others, and 0 where there are no others.
    """

    @staticmethod
    def forward(ctx: Any, engine: Engine, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        slope_NV, total_N, picked_N = engine.kernels.softmax_loss(logits_NV, targets_N)
        counted = (targets_N >= 0).sum()
        share = counted.double().reciprocal().masked_fill(counted == 0, 0.0)
        ctx.save_for_backward(slope_NV, share)
        losses_N = log(total_N.float()) - picked_N
        return (exact_sum(losses_N, 0) * share).float().reshape(())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        slope_NV, share = ctx.saved_tensors
        return None, slope_NV * (gradients[0].double() * share).float(), None
