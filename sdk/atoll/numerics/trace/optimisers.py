"""Family 4 of the trace: SPEC-STEP.md's chapter 15, one tensor at a time.

As in `floats`; gradients come in clipped (SCALE_BY), and integer products by the operations of
`integers`. Shapes: S rows of a matrix's shorter side, L of the longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from atoll.numerics.kernels.elementary import sqrt
from atoll.numerics.kernels.grid import one_nan
from atoll.numerics.kernels.muon import COEFFICIENTS, LEAST_NORM
from atoll.numerics.kernels.reference import flushed
from atoll.numerics.trace.floats import Operation, f32, root64
from atoll.numerics.trace.opcodes import Op


def adamw_m(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """ADAMW_M [β₁, 1 − β₁ f32]: m, g → flush(m · β₁ + g · (1 − β₁)) (O1)."""
    m, g = inputs
    return flushed(m * f32(words[0]) + g * f32(words[1]))


def adamw_v(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """ADAMW_V [β₂, 1 − β₂ f32]: v, g → flush(v · β₂ + (g · g) · (1 − β₂)) (O1)."""
    v, g = inputs
    return flushed(v * f32(words[0]) + (g * g) * f32(words[1]))


def adamw_p(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """ADAMW_P [ε, λ f32]: p, m, v after the step, C₁ C₂ f64 [2], η f64 [1] → p (O2, O3)."""
    p, m, v, corrections, rate = inputs
    c1, c2 = corrections.float()
    root = sqrt(v * c2) + f32(words[0])
    # The fp64 quotient of fp32 numbers, rounded, is the correct fp32 one.
    u = ((m * c1).double() / root.double()).float() + p * f32(words[1])
    return one_nan(p - u * rate.float())


def momentum(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """MOMENTUM [keep, add f32]: m, g → flush(m · keep + g · add) (O4 with add = 1, O6)."""
    m, g = inputs
    return flushed(m * f32(words[0]) + g * f32(words[1]))


def descend(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """DESCEND [λ f32]: p, g, η f64 [1] → p − (g + p · λ) · η (O5, O8)."""
    p, g, rate = inputs
    return one_nan(p - (g + p * f32(words[0])) * rate.float())


def muon_scale(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """MUON_SCALE: Σ n² i64 [1], s [1] → 32(1 / t), t = √64(Σ) · 64(s) or 2⁻⁶⁰ (Q1)."""
    squares, step = inputs
    t = root64(squares.double()) * step.double()
    # Written so that NaN stays.
    return one_nan(torch.where(t < LEAST_NORM, LEAST_NORM, t).reciprocal().float())


def zero_diagonal(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """ZERO_DIAGONAL [S]: x [S, S] with +0 on its diagonal (Q3)."""
    return one_nan(inputs[0].view(words[0], -1).clone().fill_diagonal_(0.0)).flatten()


def muon_along(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """MUON_ALONG [S]: D [S], E [S, S] → (D[i] · D[i] + E[i, i]) · c + D[i] · b + a (Q5)."""
    a, b, c = COEFFICIENTS
    d, square = inputs
    return one_nan((d * d + square.view(words[0], -1).diagonal()) * c + d * b + a)


def muon_across(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """MUON_ACROSS [S]: R [S, S], D [S], E [S, S] → W [S, S], +0 on its diagonal (Q6)."""
    _, b, c = COEFFICIENTS
    rest, d, square = inputs
    size = words[0]
    factor = (d[:, None] + d) * c + b
    across = rest.view(size, size) * factor + square.view(size, size) * c
    return one_nan(across.fill_diagonal_(0.0)).flatten()


def advance(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """ADVANCE [L, wide]: X [S, L], y [S], sums i32 or i64 [S, L], q [S] → X · y + 32(Σ) · q (Q7).

    `wide` is the bytes of a sum: 4 or 8.
    """
    x, along, sums, step = inputs
    size = words[0]
    moved = sums.view(-1, size).float() * step[:, None]
    return one_nan(x.view(-1, size) * along[:, None] + moved).flatten()


OPERATIONS: Final[dict[int, Operation]] = {
    Op.ADAMW_M: adamw_m,
    Op.ADAMW_V: adamw_v,
    Op.ADAMW_P: adamw_p,
    Op.MOMENTUM: momentum,
    Op.DESCEND: descend,
    Op.MUON_SCALE: muon_scale,
    Op.ZERO_DIAGONAL: zero_diagonal,
    Op.MUON_ALONG: muon_along,
    Op.MUON_ACROSS: muon_across,
    Op.ADVANCE: advance,
}
