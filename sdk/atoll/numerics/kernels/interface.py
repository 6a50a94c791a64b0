"""The chains of operations between integer products, as an interface with three implementations.

`reference.TorchKernels` is the definition: plain PyTorch, any device. `compiled.CompiledKernels` is
kernels.c, and `fused.FusedKernels` what a GPU runs: several times faster, and used only where they
give the same bits.

Shapes: N rows (tokens), I inputs, O outputs, V vocabulary, B batch, H heads, T positions, d head
width, G attention slices (batch × heads), t queries and s keys of a tile. fp32 unless said;
integers of a grid that are held in fp32 say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final, Protocol

import torch
from torch import Tensor

from atoll.numerics.kernels.gemm import Route
from atoll.numerics.kernels.grid import operand_levels
from atoll.numerics.kernels.philox import Mask

CPU: Final = torch.device("cpu")
TILE = 128
"""Queries and keys of one attention tile. Part of the definition: each tile has its own grid."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Integers and the step that turns them back: value ≈ integer · step.

    Attributes:
        high: int8; with `low`, value = (254 · high + low) · step.
    """

    high: Tensor
    step: Tensor
    low: Tensor | None = None

    @property
    def low_slice(self) -> Tensor:
        """The second slice of a split grid. Raises ValueError on a single one."""
        if self.low is None:
            raise ValueError("this grid has one slice")
        return self.low


@dataclass(frozen=True, slots=True)
class Frozen:
    """Weights that read one input and are never trained, one below the other.

    Attributes:
        parts: what a numerics mode multiplies by: slices of integers and their step, or the
            weights as they are.
        widths: outputs of each weight.
    """

    parts: tuple[Tensor, ...]
    widths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scores:
    """One tile's integer products and the scales of its rows and columns.

    Attributes:
        scores: q · k, [G, t, s], integers in fp32; shares: g · v, likewise.
        q_step, g_step, peak, inverse: [G, t, 1]; q_step has the factor d^(−1/2) in it.
        delta: Σ g · output, [G, t, 1].
        k_step, v_step: [G, s, 1].
        first: how many keys of the tile stand before its first query.
        levels: of the three grids.
    """

    scores: Tensor
    shares: Tensor
    q_step: Tensor
    k_step: Tensor
    g_step: Tensor
    v_step: Tensor
    peak: Tensor
    inverse: Tensor
    delta: Tensor
    first: int
    levels: int


def attention_levels(context: int, width: int) -> int:
    """Of every operand of attention, so that no sum over d or over a tile leaves 2^24.

    Args:
        context: positions that the model has (`model.seq`).
    """
    return operand_levels(max(width, min(TILE, context)))


@dataclass(frozen=True, slots=True)
class Operands:
    """What attention multiplies: integers [G, T, d] and steps [G, T, 1].

    Attributes:
        q_step: has the factor d^(−1/2) in it.
        levels: of every grid. They follow from the positions that the model has, not from T: a
            sequence that is not full yet has the bits that it will have.
    """

    q: Tensor
    q_step: Tensor
    k: Tensor
    k_step: Tensor
    v: Tensor
    v_step: Tensor
    levels: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.q, self.q_step, self.k, self.k_step, self.v, self.v_step

    def parts(self, count: int) -> Iterator[tuple[slice, Operands]]:
        """So many slices at a time."""
        for start in range(0, len(self.q), count):
            part = slice(start, start + count)
            q, q_step, k, k_step, v, v_step = (tensor[part] for tensor in self.tensors)
            yield part, Operands(q, q_step, k, k_step, v, v_step, self.levels)

    def tiles(self) -> list[slice]:
        length = self.q.shape[1]
        return [slice(at, min(at + TILE, length)) for at in range(0, length, TILE)]


@dataclass(frozen=True, slots=True)
class Incoming:
    """What attention's gradient starts from, beside its operands.

    Attributes:
        g: the output's gradient, integers [G, T, d].
        g_step, peak, inverse, delta: [G, T, 1], as in `Scores`.
    """

    g: Tensor
    g_step: Tensor
    peak: Tensor
    inverse: Tensor
    delta: Tensor

    def of(self, part: slice) -> Incoming:
        """Of some slices."""
        return Incoming(*(getattr(self, field.name)[part] for field in fields(self)))


class WholeAttention(Protocol):
    """Attention's passes, each at once instead of tile by tile, with the tiles' bits."""

    def holds(self, width: int) -> bool:
        """Whether heads of this width are for it."""

    def forward(self, of: Operands) -> tuple[Tensor, Tensor, Tensor]:
        """The output [G, T, d], and each query's largest score and inverse total [G, T, 1]."""

    def backward(self, of: Operands, incoming: Incoming) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients [G, T, d]: of q but for the factor d^(−1/2), and of each slice's k and v."""


Stacked = tuple[Tensor, Tensor]
"""Both int8 slices of a split grid in one tensor, the high ones first, and its step."""
Levels = tuple[Tensor, Tensor]
"""Integers held in fp32, and their step."""


@dataclass(frozen=True, slots=True)
class AdamFactors:
    """AdamW's scalars for one tensor at one step, binary64, rounded to fp32 where they are used.

    Attributes:
        scale: clipping factor of the gradient.
        correct1, correct2: 1 / (1 − beta^count), the bias corrections.
        decay: decoupled weight decay; 0 for vectors.
    """

    scale: float
    beta1: float
    beta2: float
    correct1: float
    correct2: float
    eps: float
    decay: float
    rate: float


class Kernels(Protocol):
    """Everything in exact mode that is not an integer product."""

    name: str

    def quantise_rows(self, x_NI: Tensor, split: bool) -> Grid:
        """Each row on a grid of 127 levels, or of 32384 in two slices; step [N, 1]."""

    def quantise_gradient(
        self, parts: Sequence[Tensor], row_N1: Tensor, column_1O: Tensor
    ) -> tuple[Stacked, Stacked]:
        """Of g [N, O], given in ranges of its columns: the rows of g · column and the columns of
        g · row, on grids of 32384 levels. Slices are stacked for one product: [2N, O] with
        step [N, 1], and [N, 2O] with step [1, O]."""

    def rescale(self, sums_NO: Tensor, row_N1: Tensor, column_1O: Tensor) -> Tensor:
        """int32 sums · (row · column). May overwrite the sums."""

    def rescale_stacked(self, sums_2NO: Tensor, row_N1: Tensor) -> Tensor:
        """(254 · first N rows + last N rows) · row of int32 sums [2N, O]."""

    def rescale_split(
        self, sums: tuple[Tensor, Tensor, Tensor], row_N1: Tensor, column_1O: Tensor
    ) -> Tensor:
        """(254² · high + 254 · (middle + middle')) · (row · column) of sums [N, O].

        The sums are int32, or all int64 and below 2^36, as those over a large vocabulary are.
        """

    def rms_norm(self, x_NI: Tensor, gain_I: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """x · inverse · gain, and inverse = 1 / sqrt(mean(x²) + eps) [N, 1]."""

    def rms_norm_gradient(
        self, g_NI: Tensor, x_NI: Tensor, inverse_N1: Tensor, gain_I: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of x [N, I] and gain [I]."""

    def rotate(self, x_BHTd: Tensor, cos_Td: Tensor, sin_Td: Tensor, sign: float) -> Tensor:
        """Pairs (x[i], x[i + d/2]) turned by their position's angle times the sign."""

    def swiglu(self, gate_NO: Tensor, up_NO: Tensor) -> Tensor:
        """gate · sigmoid(gate) · up."""

    def swiglu_gradient(
        self, g_NO: Tensor, gate_NO: Tensor, up_NO: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of gate and up."""

    def squared_relu(self, x: Tensor) -> Tensor:
        """max(x, 0)²; NaN stays NaN."""

    def squared_relu_gradient(self, g: Tensor, x: Tensor) -> Tensor:
        """g · 2 max(x, 0), of g's and x's common shape."""

    def drop(self, x: Tensor, mask: Mask) -> Tensor:
        """x · mask.scale where the mask keeps an element, else 0."""

    def embedding_gradient(self, g_NI: Tensor, ids_N: Tensor, vocabulary: int) -> Tensor:
        """Rows of g summed by id, [V, I]."""

    def softmax_loss(self, logits_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Softmax minus one-hot [N, V]; total weight [N] fp64; the target's shifted logit [N].

        Where a target is negative they are 0, 1 and 0, whatever the logits are.
        """

    def quantise_levels(self, x_Nd: Tensor, levels: int) -> Levels:
        """Rows of the last axis on a grid of so many levels."""

    def row_dot(self, x_Nd: Tensor, y_Nd: Tensor) -> Tensor:
        """Σ x · y over the last axis (kept), its one rounding apart exact."""

    def attention_weights(
        self, scores_Gts: Tensor, q_step_Gt1: Tensor, k_step_Gs1: Tensor, first: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """exp(score − peak), 0 where key > first + query; peak and 1/Σ, both [G, t, 1].

        May overwrite the scores.
        """

    def quantise_mixture(
        self, weights_Gts: Tensor, v_step_Gs1: Tensor, start: int, levels: int
    ) -> Levels:
        """Rows of weights · v_step over the keys from `start`, as many as v_step has."""

    def attention_gradient(self, tile: Scores) -> tuple[Levels, Levels, Levels]:
        """With share P and slope dS = P · (g·v − delta): columns of P · g_step, rows of
        dS · k_step, columns of dS · q_step."""

    def square_sums(self, tensors: Sequence[Tensor]) -> list[tuple[int, float]]:
        """(n, step) of each, with Σ x² ≈ n · step² over all of x."""

    def momentum(self, m: Tensor, g: Tensor, keep: float, add: float) -> Tensor:
        """keep · m + add · g; 0 where that is below 2^-100."""

    def gram(self, sums_SS: Tensor, step_S1: Tensor) -> tuple[Tensor, Tensor]:
        """int32 sums of x · xᵀ, off their grid: diagonal [S], and the rest with a zero diagonal."""

    def quintic(
        self, diagonal_S: Tensor, rest_SS: Tensor, square: tuple[Tensor, Tensor], x_step_S1: Tensor
    ) -> tuple[Tensor, Grid]:
        """a + b·G + c·G² of G = diagonal + rest: its own diagonal [S], and the rest by rows.

        `square` is the int32 sums of rest · restᵀ, [S, S], and the step of its rows [S, 1]. The
        result's rest is multiplied by x_step, column by column, before it is rounded: it is to
        meet x's integers.
        """

    def advance(self, x_SL: Tensor, along_S: Tensor, sums_SL: Tensor, step_S1: Tensor) -> Tensor:
        """x · along + int32 sums · step, row by row."""

    def adamw(
        self, p: Tensor, m: Tensor, v: Tensor, g: Tensor, factors: AdamFactors
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The next p, m and v. Moments below 2^-100 become 0."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How this process does exact arithmetic: no part of it changes a bit.

    Attributes:
        route: of int8 products.
        batched: [G, a, b] · [G, b, c] of integers in fp32 whose sums stay within 2^24.
        device: where its operands lie.
        slices: attention slices worked on at a time; eight fit in a core's cache.
        attention: goes through all tiles at once, where it holds a head's width. Its operands are
            fp16, which has every integer up to 2048, and so those of any grid of attention.
    """

    route: Route
    kernels: Kernels
    batched: Callable[[Tensor, Tensor], Tensor]
    device: torch.device = CPU
    slices: int = 8
    attention: WholeAttention | None = None
