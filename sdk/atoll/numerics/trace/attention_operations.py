"""Causal attention, forward and backward, on integers: the operations 0x02 of the trace.

As `integers`; contracts/src/judge/AttentionSteps.sol works out one element of each. The lines A of
SPEC-STEP.md go tile by tile, and so do nodes.

Shapes: G slices (sequences × query heads), T positions, d head width, t queries from q0 on and s
keys from k0 on. What belongs to key heads has G // group slices: slice g reads g // group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from atoll.numerics.kernels.elementary import exp
from atoll.numerics.kernels.engine import engine_on
from atoll.numerics.kernels.grid import one_nan
from atoll.numerics.trace.integers import Operation
from atoll.numerics.trace.opcodes import Op


def _strided(x: Tensor, shape: Sequence[int], offset: int, strides: Sequence[int]) -> Tensor:
    x = x.contiguous()
    return torch.as_strided(x, tuple(shape), tuple(strides), x.storage_offset() + offset)


def _shared(x: Tensor, group: int) -> Tensor:
    """Each slice of x as often as query heads read it."""
    return x if group == 1 else x.repeat_interleave(group, dim=0)


def _hidden(shape: tuple[int, int], q0: int, k0: int, device: torch.device) -> Tensor:
    """Whether key k0 + j lies after query q0 + i: bool [t, s]."""
    queries = torch.arange(q0, q0 + shape[0], device=device)
    return torch.arange(k0, k0 + shape[1], device=device) > queries[:, None]


def _steps(x: Tensor, length: int, start: int, count: int) -> Tensor:
    """Steps [G, T] of `count` positions from `start` on."""
    return x.view(-1, length)[:, start : start + count]


def dot_f32(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """[t s K group a0 ag ai b0 bg bj] integers f32 → f32 [G, t, s] (Σ of A2, A5, A8 to A11).

    Σ over k of a[a0 + g·ag + i·ai + k] · b[b0 + (g // group)·bg + j·bj + k]; ag is a slice's size.
    """
    t, s, inner, group, a0, ag, ai, b0, bg, bj = words
    slices = inputs[0].numel() // ag
    a = _strided(inputs[0], (slices, t, inner), a0, (ag, ai, 1))
    b = _strided(inputs[1], (slices // group, s, inner), b0, (bg, bj, 1))
    return (engine_on("cpu").batched(a, _shared(b, group).mT) + 0.0).flatten()  # −0 + 0 is +0


def score(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """[t s T group q0 k0] Σ f32 [G, t, s], sq f32 [G, T], sk f32 [G // group, T] → z (A2).

    −∞ for keys after the query.
    """
    t, s, length, group, q0, k0 = words
    q_step = _steps(inputs[1], length, q0, t)[..., None]
    k_step = _shared(_steps(inputs[2], length, k0, s), group)[:, None]
    scaled = one_nan(inputs[0].view(-1, t, s) * q_step * k_step)
    return scaled.masked_fill(_hidden((t, s), q0, k0, scaled.device), -torch.inf).flatten()


def attention_weight(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    t, s, q0, k0 = words
    weights = one_nan(exp(inputs[0].view(-1, t, s) - inputs[1].view(-1, t, 1)))
    return weights.masked_fill(_hidden((t, s), q0, k0, weights.device), 0.0).flatten()


def weighted(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """[m n group x0 xg xi xj v0 vg vi vj] x, v f32 → f32 [G, m, n] (A5, A9, A10, A11).

    x[x0 + g·xg + i·xi + j·xj] · v[v0 + (g // group)·vg + i·vi + j·vj]; xg is a slice's size.
    """
    m, n, group, x0, xg, xi, xj, v0, vg, vi, vj = words
    slices = inputs[0].numel() // xg
    x = _strided(inputs[0], (slices, m, n), x0, (xg, xi, xj))
    v = _strided(inputs[1], (slices // group, m, n), v0, (vg, vi, vj))
    return one_nan(x * _shared(v, group)).flatten()


def share(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """[t s S q0 k0] w f32 [G, t, S] of A3, r f32 [G, t] → P f32 [G, t, s] (A8).

    The w is exp(z − p), so P = w · r; 0 for keys after the query.
    """
    t, s, seen, q0, k0 = words
    part = inputs[0].view(-1, t, seen)[..., k0 : k0 + s]
    shares = one_nan(part * inputs[1].view(-1, t, 1))
    return shares.masked_fill(_hidden((t, s), q0, k0, shares.device), 0.0).flatten()


def share_gradient(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """[t s T group q0 k0] Σ f32 [G, t, s], sg f32 [G, T], sv f32 [G // group, T] → f32 (A8).

    32(Σ G · U) · (sg · sv), for keys after the query too.
    """
    t, s, length, group, q0, k0 = words
    g_step = _steps(inputs[1], length, q0, t)[..., None]
    v_step = _shared(_steps(inputs[2], length, k0, s), group)[:, None]
    return one_nan(inputs[0].view(-1, t, s) * (g_step * v_step)).flatten()


def slope(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    t, s, length, q0, k0 = words
    shares, gradient = (x.view(-1, t, s) for x in inputs[:2])
    slopes = one_nan(shares * (gradient - _steps(inputs[2], length, q0, t)[..., None]))
    return slopes.masked_fill(_hidden((t, s), q0, k0, slopes.device), 0.0).flatten()


OPERATIONS: Final[dict[Op, Operation]] = {
    Op.DOT_F32: dot_f32,
    Op.SCORE: score,
    Op.ATTENTION_WEIGHT: attention_weight,
    Op.WEIGHTED: weighted,
    Op.SHARE: share,
    Op.SHARE_GRADIENT: share_gradient,
    Op.SLOPE: slope,
}
