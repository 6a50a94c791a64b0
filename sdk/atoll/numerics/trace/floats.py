"""Family 3 of the trace: what SPEC-STEP.md does to numbers one by one.

Each operation gives a node's tensor of the tensors it reads: `words` are the template's, u64 each,
floats by their bits; `inputs` are flat; `iteration` is the micro-batch. Every number that comes out
is rounded once an IEEE operation and has one NaN, so that FloatSteps.sol gives any element alone.

Shapes: R rows, C columns; N tokens, I the width of a row, V vocabulary, d head width.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from atoll.numerics.kernels.elementary import exp, log, rsqrt, sigmoid
from atoll.numerics.kernels.grid import one_nan
from atoll.numerics.kernels.philox import LOW32, Mask
from atoll.numerics.kernels.philox import words as philox_words
from atoll.numerics.trace.opcodes import Op

Operation = Callable[[Sequence[int], Sequence[Tensor], int], Tensor]


def f32(word: int) -> float:
    """The binary32 number of these bits."""
    return float(struct.unpack(">f", struct.pack(">I", word))[0])


def f64(word: int) -> float:
    """The binary64 number of these bits."""
    return float(struct.unpack(">d", struct.pack(">Q", word))[0])


def _unsigned(x: Tensor, width: int) -> list[int]:
    """The unsigned little-endian integers of `width` bytes that x's bytes are."""
    data = x.contiguous().view(torch.uint8).numpy().tobytes()
    return [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]


def root64(x: Tensor) -> Tensor:
    """√x of fp64, rounded once: PyTorch's own misses by an ulp now and then (2.13, x86-64)."""
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.sqrt(x.numpy()))


def _rows(x: Tensor, columns: int) -> Tensor:
    return x.view(-1, columns)


def _wide_sum(sums: Tensor, step: Tensor) -> Tensor:
    """S of chapter 2: 64(Σ n) · 64(s)."""
    return sums.double() * step.double()


def add(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """ADD: a + b (L8, L10, A12, M4, M7, S2, gradients of what is read twice)."""
    a, b = inputs
    return one_nan(a + b)


def add_row(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """ADD_ROW [C]: x [R, C] + b [C] (L6)."""
    x, b = inputs
    return one_nan(_rows(x, words[0]) + b).flatten()


def scale(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """SCALE [factor f32]: x · factor (L8, L9, A1, A12, O7)."""
    return one_nan(inputs[0] * f32(words[0]))


def mul(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """MUL: a · b (N4, N6, A7)."""
    a, b = inputs
    return one_nan(a * b)


def mul_rows(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """MUL_ROWS [C]: x[r, c] · v[r] (L3's sx, N4's u, A6, Q1)."""
    x, v = inputs
    return one_nan(_rows(x, words[0]) * v[:, None]).flatten()


def mul_columns(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """MUL_COLUMNS [C]: x[r, c] · v[c] (L3's sw, N4's h, Q6)."""
    x, v = inputs
    return one_nan(_rows(x, words[0]) * v).flatten()


def scale_by(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """SCALE_BY: x · 32(k), k f64 [1] (15: g = g · k)."""
    x, k = inputs
    return one_nan(x * k.float())


def rstd(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """RSTD [1/I f64, ε f32]: Σ n² i64 [N], s [N] → r (N1, N2)."""
    squares, step = inputs
    wide = step.double()
    q = squares.double() * (wide * wide)
    return one_nan(rsqrt((q * f64(words[0])).float() + f32(words[1])))


def normed(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """NORMED [I]: x [N, I], r [N], gain [I] → (x · r) · gain (N3)."""
    x, r, gain = inputs
    return one_nan(_rows(x, words[0]) * r[:, None] * gain).flatten()


def norm_dx(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """NORM_DX [I]: h, u [N, I], a, r [N] → (h − u · a) · r (N5)."""
    h, u, a, r = inputs
    shifted = _rows(h, words[0]) - _rows(u, words[0]) * a[:, None]
    return one_nan(shifted * r[:, None]).flatten()


def scaled_sum(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """EXACT_SUM [factor f64]: Σ i64, s → 32((64(Σ) · 64(s)) · factor) (L6, N4, N6, A7).

    A factor of 1 changes no bit of what is not NaN.
    """
    return one_nan((_wide_sum(*inputs) * f64(words[0])).float())


def rotate(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """ROTATE [T, d, sign f32]: x [G, T, d], c, s [T, d/2] (R1; R2 with the sign −1)."""
    length, width, sign = words
    x, cos, sin = inputs
    a, b = x.view(-1, length, width).chunk(2, dim=-1)
    c, s = cos.view(length, -1), sin.view(length, -1) * f32(sign)
    return one_nan(torch.cat((a * c - b * s, b * c + a * s), dim=-1)).flatten()


def swiglu(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """SWIGLU: gate, up → (gate · σ(gate)) · up (G1)."""
    gate, up = inputs
    return one_nan(gate * sigmoid(gate) * up)


def swiglu_dgate(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """SWIGLU_DGATE: g, gate, up → (g · up) · (σ + u · (1 − σ)), u = gate · σ (G2)."""
    g, gate, up = inputs
    s = sigmoid(gate)
    return one_nan(g * up * (s + gate * s * (1.0 - s)))


def swiglu_dup(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """SWIGLU_DUP: g, gate → g · (gate · σ(gate)) (G2)."""
    g, gate = inputs
    return one_nan(g * (gate * sigmoid(gate)))


def relu2(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """RELU2: a · a, a = 0 where x < 0, else x (G3)."""
    a = _positive(inputs[0])
    return one_nan(a * a)


def relu2_gradient(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """RELU2_GRADIENT: g, x → g · (a · 2) (G4)."""
    g, x = inputs
    return one_nan(g * (_positive(x) * 2.0))


def _positive(x: Tensor) -> Tensor:
    return torch.where(x < 0, 0.0, x)


def dropout(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """DROPOUT [threshold, scale f32, site, first, per iteration]: x, key, global step (D1, D2).

    key is two u32, the global step a u64 whose low word counts; element e of x is number
    first + iteration · per iteration + e of its site.
    """
    threshold, factor, site, first, per_iteration = words
    x, key, step = inputs
    k0, k1 = _unsigned(key, 4)
    start = first + iteration * per_iteration
    mask = Mask("0", (k0, k1), _unsigned(step, 8)[0] & LOW32, site, start)
    kept = philox_words(mask, x.numel(), x.device) >= threshold
    return torch.where(kept, one_nan(x * f32(factor)), 0.0)


def soft_weight(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """SOFT_WEIGHT [V]: logits [N, V], m [N] → exp(logits − m) (C1)."""
    logits, m = inputs
    return one_nan(exp(_rows(logits, words[0]) - m[:, None])).flatten()


def total(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """TOTAL [factor f64]: Σ i64 → 64(Σ) · factor, f64 (C2: the factor is 2⁻³⁰)."""
    return one_nan(inputs[0].double() * f64(words[0]))


def token_loss(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """TOKEN_LOSS [V]: logits [N, V], m [N], W f64 [N], targets i32 [N] → ℓ (C3)."""
    logits, m, wide, targets = inputs
    at = targets.long().clamp(min=0)[:, None]
    z = _rows(logits, words[0]).gather(1, at).squeeze(1) - m
    return torch.where(targets < 0, 0.0, one_nan(log(wide.float()) - z))


def loss(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """LOSS: Σ i64 [1], s [1], n i64 [1] → 32((64(Σ) · 64(s)) · (1 / n)), · 0 where n = 0 (C4)."""
    sums, step, count = inputs
    return one_nan((_wide_sum(sums, step) * _inverse(count)).float())


def loss_scale(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """LOSS_SCALE: n, Σ n i64 [1] → 32(64(32(c)) · (1 / n)), c = n / Σ n (S1, C6)."""
    count, counts = inputs
    share = torch.where(counts == 0, 0.0, count.double() / counts.double())
    return one_nan((share.float().double() * _inverse(count)).float())


def _inverse(count: Tensor) -> Tensor:
    return torch.where(count == 0, 0.0, count.double().reciprocal())


def dlogits(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """DLOGITS [V]: w [N, V], W f64 [N], targets i32 [N], scale [1] → dz · scale (C5, C6)."""
    w, wide, targets, factor = inputs
    dz = _rows(w, words[0]) * wide.reciprocal().float()[:, None]
    at = targets.long().clamp(min=0)[:, None]
    dz = dz.scatter(1, at, dz.gather(1, at) - 1.0)
    dz = dz.masked_fill((targets < 0)[:, None], 0.0)
    return one_nan(dz * factor).flatten()


def norm_term(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """NORM_TERM [chained]: t f64 [1], Σ n² i64 [1], s [1] → t + 64(Σ) · (64(s) · 64(s)) (S4).

    The first of them is not chained, 0: it has no input t, which is 0.
    """
    *before, squares, step = inputs
    wide = step.double()
    term = squares.double() * (wide * wide)
    return one_nan((before[0] if words[0] else torch.zeros_like(term)) + term)


def norm(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """NORM: √t, f64 (S4)."""
    return one_nan(root64(inputs[0]))


def clip(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """CLIP [clip f64]: norm → the smaller of 1 and clip / norm, f64; 1 of 0 and of NaN (S6)."""
    (norms,) = inputs
    # A number over a tensor is, to PyTorch, its product with the reciprocal: two roundings.
    k = torch.full_like(norms, f64(words[0])) / norms
    return torch.where((norms > 0) & (k < 1), k, 1.0)


OPERATIONS: Final[dict[int, Operation]] = {
    Op.ADD: add,
    Op.ADD_ROW: add_row,
    Op.SCALE: scale,
    Op.MUL: mul,
    Op.MUL_ROWS: mul_rows,
    Op.MUL_COLUMNS: mul_columns,
    Op.SCALE_BY: scale_by,
    Op.RSTD: rstd,
    Op.NORMED: normed,
    Op.NORM_DX: norm_dx,
    Op.EXACT_SUM: scaled_sum,
    Op.ROTATE: rotate,
    Op.SWIGLU: swiglu,
    Op.SWIGLU_DGATE: swiglu_dgate,
    Op.SWIGLU_DUP: swiglu_dup,
    Op.RELU2: relu2,
    Op.RELU2_GRADIENT: relu2_gradient,
    Op.DROPOUT: dropout,
    Op.SOFT_WEIGHT: soft_weight,
    Op.TOTAL: total,
    Op.TOKEN_LOSS: token_loss,
    Op.LOSS: loss,
    Op.LOSS_SCALE: loss_scale,
    Op.DLOGITS: dlogits,
    Op.NORM_TERM: norm_term,
    Op.NORM: norm,
    Op.CLIP: clip,
}
