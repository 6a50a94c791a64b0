"""The kernels in plain PyTorch: the definition that compiled ones are held to, on any device.

Every operation is one tensor operation, rounded once: this file runs eager, where nothing is fused.
fp32 is divided and rooted through fp64, whose result, rounded again, is the correct fp32 one.

Every kernel is defined for every input. What is not finite follows IEEE 754 through the operations
as they stand here, with three rules where IEEE 754 or libraries leave a choice: there is one NaN
(`one_nan`), integers have no −0 and are 0 for NaN (`whole`), and maxima are NaN if anything is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from atoll.numerics.kernels.elementary import exp, rsqrt, sigmoid, sqrt
from atoll.numerics.kernels.grid import (
    SPLIT_BASE,
    SUM_LEVELS,
    exact_square_sum,
    exact_sum,
    one_nan,
    quantise,
    quantise_int8,
    quantise_split,
    whole,
)
from atoll.numerics.kernels.interface import AdamFactors, Grid, Levels, Scores, Stacked
from atoll.numerics.kernels.muon import COEFFICIENTS
from atoll.numerics.kernels.philox import Mask, kept

NORM_LEVELS = 2**18
"""2^36 a square: the sum over a row is exact in fp64 up to 2^17 columns."""
FLUSH = 2.0**-100
"""Moments below it become 0, so that rows without gradients do not decay into subnormals."""
_AT_ONCE, _AT_ONCE_GPU = 1 << 20, 1 << 25
"""Elements of the largest tensors that are worked on at once: each takes forty bytes meanwhile, and
a second run of a step (`train.second_run`) has to fit where the first one did. A GPU waits for
whoever hands it little at a time."""


def _at_once(x: Tensor) -> int:
    return _AT_ONCE_GPU if x.is_cuda else _AT_ONCE


def _in_parts(
    compute: Callable[[slice], tuple[Tensor, ...]], x: Tensor, dim: int
) -> tuple[Tensor, ...]:
    """What `compute` gives for each range of the matrix x along `dim`, put together along it.

    A range has as much of the matrix as is worked on at once; of an empty one there is one too.
    """
    length = max(1, _at_once(x) // max(1, x.shape[1 - dim]))
    starts = range(0, max(1, x.shape[dim]), length)
    parts = [compute(slice(at, at + length)) for at in starts]
    if len(parts) == 1:
        return parts[0]
    return tuple(torch.cat(each, dim) for each in zip(*parts, strict=True))


def flushed(x: Tensor) -> Tensor:
    """x, with +0 for what is below `FLUSH`, and with one NaN."""
    return one_nan(torch.where(x.abs() < FLUSH, 0.0, x))


def _top(x: Tensor) -> Tensor:
    """The largest of the last axis (kept); NaN if any is, and +0 for a zero of either sign."""
    return one_nan(x.amax(-1, keepdim=True) + 0.0)


class TorchKernels:
    """See `Kernels`."""

    name = "eager"

    def quantise_rows(self, x_NI: Tensor, split: bool) -> Grid:
        if not split:
            return Grid(*_in_parts(lambda span: quantise_int8(x_NI[span], 1), x_NI, 0))
        high, low, step = _in_parts(lambda span: quantise_split(x_NI[span], 1), x_NI, 0)
        return Grid(high, step, low)

    def quantise_gradient(
        self, parts: Sequence[Tensor], row_N1: Tensor, column_1O: Tensor
    ) -> tuple[Stacked, Stacked]:
        g_NO = parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)
        high, low, row_step = _in_parts(
            lambda span: quantise_split(g_NO[span] * column_1O, 1), g_NO, 0
        )
        rows = torch.cat((high, low), dim=0)
        high, low, column_step = _in_parts(
            lambda span: quantise_split(g_NO[:, span] * row_N1, 0), g_NO, 1
        )
        return (rows, row_step), (torch.cat((high, low), dim=1), column_step)

    def rescale(self, sums_NO: Tensor, row_N1: Tensor, column_1O: Tensor) -> Tensor:
        return one_nan(sums_NO.float() * (row_N1 * column_1O))

    def rescale_stacked(self, sums_2NO: Tensor, row_N1: Tensor) -> Tensor:
        high, low = sums_2NO.float().chunk(2)
        return one_nan((high * SPLIT_BASE + low) * row_N1)

    def rescale_split(
        self, sums: tuple[Tensor, Tensor, Tensor], row_N1: Tensor, column_1O: Tensor
    ) -> Tensor:
        out_NO = torch.empty(sums[0].shape, device=row_N1.device)
        rows = max(1, _at_once(out_NO) // sums[0].shape[1])
        for at in range(0, len(out_NO), rows):
            span = slice(at, at + rows)
            high, middle, middle2 = (part[span].double() for part in sums)
            both = middle + middle2  # may exceed 32 bits
            wide = high * float(SPLIT_BASE**2) + both * SPLIT_BASE
            out_NO[span] = one_nan(wide.float() * (row_N1[span] * column_1O))
        return out_NO

    def rms_norm(self, x_NI: Tensor, gain_I: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        integers, step_N1 = quantise(x_NI, -1, NORM_LEVELS)
        wide = integers.double()
        square_N1 = (wide * wide).sum(-1, keepdim=True) * (step_N1.double() * step_N1.double())
        inverse_N1 = rsqrt((square_N1 * (1.0 / x_NI.shape[-1])).float() + eps)
        return one_nan(x_NI * inverse_N1 * gain_I), one_nan(inverse_N1)

    def rms_norm_gradient(
        self, g_NI: Tensor, x_NI: Tensor, inverse_N1: Tensor, gain_I: Tensor
    ) -> tuple[Tensor, Tensor]:
        unit_NI, gained_NI = x_NI * inverse_N1, g_NI * gain_I
        mean_N1 = (exact_sum(gained_NI * unit_NI, -1) * (1.0 / x_NI.shape[-1])).float()
        dx_NI = one_nan((gained_NI - unit_NI * mean_N1) * inverse_N1)
        return dx_NI, one_nan(exact_sum(g_NI * unit_NI, 0).float().squeeze(0))

    def rotate(self, x_BHTd: Tensor, cos_Td: Tensor, sin_Td: Tensor, sign: float) -> Tensor:
        a, b = x_BHTd.chunk(2, dim=-1)
        c, s = cos_Td, sin_Td * sign
        return one_nan(torch.cat((a * c - b * s, b * c + a * s), dim=-1))

    def swiglu(self, gate_NO: Tensor, up_NO: Tensor) -> Tensor:
        return one_nan(gate_NO * sigmoid(gate_NO) * up_NO)

    def swiglu_gradient(
        self, g_NO: Tensor, gate_NO: Tensor, up_NO: Tensor
    ) -> tuple[Tensor, Tensor]:
        s = sigmoid(gate_NO)
        silu = gate_NO * s
        slope = s + silu * (1.0 - s)
        return one_nan(g_NO * up_NO * slope), one_nan(g_NO * silu)

    def squared_relu(self, x: Tensor) -> Tensor:
        positive = torch.where(x < 0, 0.0, x)
        return one_nan(positive * positive)

    def squared_relu_gradient(self, g: Tensor, x: Tensor) -> Tensor:
        return one_nan(g * (torch.where(x < 0, 0.0, x) * 2.0))

    def drop(self, x: Tensor, mask: Mask) -> Tensor:
        stays = kept(mask, x.numel(), x.device).view(x.shape)
        return torch.where(stays, one_nan(x * mask.scale), 0.0)

    def embedding_gradient(self, g_NI: Tensor, ids_N: Tensor, vocabulary: int) -> Tensor:
        integers, step_1I = quantise(g_NI, 0, SUM_LEVELS)
        shape = vocabulary, g_NI.shape[1]
        sums_VI = torch.zeros(shape, dtype=torch.int64, device=g_NI.device)
        sums_VI.index_add_(0, ids_N, integers.long())
        found_VI = torch.empty(shape, device=g_NI.device)
        rows = max(1, _at_once(g_NI) // g_NI.shape[1])
        for at in range(0, vocabulary, rows):
            part_vI = sums_VI[at : at + rows].double() * step_1I.double()
            found_VI[at : at + rows] = one_nan(part_vI.float())
        return found_VI

    def softmax_loss(self, logits_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        slope_NV, total_N, picked_N = _in_parts(
            lambda span: _softmax_loss(logits_NV[span], targets_N[span]), logits_NV, 0
        )
        return slope_NV, total_N, picked_N

    def quantise_levels(self, x_Nd: Tensor, levels: int) -> Levels:
        return quantise(x_Nd, -1, levels)

    def row_dot(self, x_Nd: Tensor, y_Nd: Tensor) -> Tensor:
        return one_nan(exact_sum(x_Nd * y_Nd, -1).float())

    def attention_weights(
        self, scores_Gts: Tensor, q_step_Gt1: Tensor, k_step_Gs1: Tensor, first: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        hidden_ts = _hidden(scores_Gts, first)
        scaled_Gts = _scaled(scores_Gts, q_step_Gt1, k_step_Gs1)
        peak_Gt1 = _top(scaled_Gts.masked_fill(hidden_ts, -torch.inf))
        weights_Gts = one_nan(exp(scaled_Gts - peak_Gt1)).masked_fill(hidden_ts, 0.0)
        total = whole(weights_Gts * 2.0**23).double().sum(-1, keepdim=True)
        return weights_Gts, peak_Gt1, (total * 2.0**-23).reciprocal().float()

    def quantise_mixture(
        self, weights_Gts: Tensor, v_step_Gs1: Tensor, start: int, levels: int
    ) -> Levels:
        part = weights_Gts[..., start : start + v_step_Gs1.shape[1]]
        return quantise(part * v_step_Gs1.mT, -1, levels)

    def attention_gradient(self, tile: Scores) -> tuple[Levels, Levels, Levels]:
        scaled = _scaled(tile.scores, tile.q_step, tile.k_step)
        hidden = _hidden(scaled, tile.first)
        share = (exp(scaled - tile.peak) * tile.inverse).masked_fill(hidden, 0.0)
        d_share = (tile.shares + 0.0) * (tile.g_step * tile.v_step.mT) - tile.delta
        slope = (share * d_share).masked_fill(hidden, 0.0)
        return (
            quantise(share * tile.g_step, -2, tile.levels),
            quantise(slope * tile.k_step.mT, -1, tile.levels),
            quantise(slope * tile.q_step, -2, tile.levels),
        )

    def square_sums(self, tensors: Sequence[Tensor]) -> list[tuple[int, float]]:
        return [(int(n), float(step)) for n, step in map(exact_square_sum, tensors)]

    def momentum(self, m: Tensor, g: Tensor, keep: float, add: float) -> Tensor:
        return flushed(m * keep + g * add)

    def gram(self, sums_SS: Tensor, step_S1: Tensor) -> tuple[Tensor, Tensor]:
        gram_SS = self.rescale(sums_SS, step_S1, step_S1.t())
        return gram_SS.diagonal().clone(), gram_SS.fill_diagonal_(0.0)

    def quintic(
        self, diagonal_S: Tensor, rest_SS: Tensor, square: tuple[Tensor, Tensor], x_step_S1: Tensor
    ) -> tuple[Tensor, Grid]:
        # (D + R)² = D² + D·R + R·D + R²
        a, b, c = COEFFICIENTS
        (sums_SS, step_S1), d = square, diagonal_S
        square_SS = self.rescale(sums_SS, step_S1, step_S1.t())
        along_S = one_nan((d * d + square_SS.diagonal()) * c + d * b + a)
        across_SS = rest_SS * ((d[:, None] + d) * c + b) + square_SS * c
        across_SS = across_SS.fill_diagonal_(0.0) * x_step_S1.t()
        return along_S, self.quantise_rows(across_SS, split=False)

    def advance(self, x_SL: Tensor, along_S: Tensor, sums_SL: Tensor, step_S1: Tensor) -> Tensor:
        return one_nan(x_SL * along_S[:, None] + sums_SL.float() * step_S1)

    def adamw(
        self, p: Tensor, m: Tensor, v: Tensor, g: Tensor, factors: AdamFactors
    ) -> tuple[Tensor, Tensor, Tensor]:
        length = _at_once(p)
        if p.numel() <= length:
            return _adamw((p, m, v, g), factors)
        flat = [x.reshape(-1) for x in (p, m, v, g)]
        after = torch.empty_like(flat[0]), torch.empty_like(flat[1]), torch.empty_like(flat[2])
        for at in range(0, p.numel(), length):
            parts = _adamw([x[at : at + length] for x in flat], factors)
            for all_of_it, part in zip(after, parts, strict=True):
                all_of_it[at : at + length] = part
        return after[0].view(p.shape), after[1].view(p.shape), after[2].view(p.shape)


def _softmax_loss(logits_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    hidden_N1 = targets_N[:, None] < 0
    shifted_NV = one_nan(logits_NV - _top(logits_NV))
    weights_NV = exp(shifted_NV)
    total_N1 = whole(weights_NV * 2.0**30).double().sum(-1, keepdim=True) * 2.0**-30
    share_NV = weights_NV * total_N1.reciprocal().float()
    at_N1 = targets_N[:, None].clamp(min=0)
    slope_NV = one_nan(share_NV.scatter(1, at_N1, share_NV.gather(1, at_N1) - 1.0))
    picked_N1 = shifted_NV.gather(1, at_N1).masked_fill(hidden_N1, 0.0)
    total_N = total_N1.masked_fill(hidden_N1, 1.0).squeeze(1)
    return slope_NV.masked_fill(hidden_N1, 0.0), total_N, picked_N1.squeeze(1)


def _adamw(parts: Sequence[Tensor], f: AdamFactors) -> tuple[Tensor, Tensor, Tensor]:
    p, m, v, g = parts
    g = g * f.scale
    m = flushed(m * f.beta1 + g * (1.0 - f.beta1))
    v = flushed(v * f.beta2 + (g * g) * (1.0 - f.beta2))
    root = sqrt(v * f.correct2) + f.eps
    u = ((m * f.correct1).double() / root.double()).float() + p * f.decay
    return one_nan(p - u * f.rate), m, v


def _scaled(scores_Gts: Tensor, q_step_Gt1: Tensor, k_step_Gs1: Tensor) -> Tensor:
    # A product of integers may give a zero of either sign: adding +0 makes it +0.
    return (scores_Gts + 0.0) * q_step_Gt1 * k_step_Gs1.mT


def _hidden(x_Gts: Tensor, first: int) -> Tensor:
    """Whether key j lies after query i, j > first + i: [t, s]."""
    shape = x_Gts.shape[-2:]
    return torch.ones(shape, dtype=torch.bool, device=x_Gts.device).triu(first + 1)
