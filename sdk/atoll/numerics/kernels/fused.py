"""The kernels in Triton on a GPU, each chain in a program or a few. As in `Kernels`.

What is not here, as what only Muon needs, is the reference's, which calls these where it can.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from atoll.numerics.kernels import (
    attention_tile_programs,
    column_programs,
    elementwise_programs,
    optimiser_programs,
    row_programs,
)
from atoll.numerics.kernels.device_functions import Program
from atoll.numerics.kernels.grid import INT8_LEVELS, SPLIT_LEVELS, SUM_LEVELS
from atoll.numerics.kernels.interface import AdamFactors, Grid, Levels, Scores, Stacked
from atoll.numerics.kernels.philox import Mask
from atoll.numerics.kernels.reference import TorchKernels

_FLAT, _LONGEST = 1024, 2048
"""Elements of one program, and the most of a row that one reads at a time."""
_WARP = 32
"""Threads that run together."""
_MOST_INT32 = 2**31 - 1
"""Products of two sizes are int32 in a program."""
_ROWS, _COLUMNS = 32, 128
"""Of a matrix whose columns are scaled or added."""


def launch(program: Program, count: int | tuple[int, int], *arguments: Any, warps: int = 4) -> None:
    """Runs so many of a program. Nothing is contracted: a multiply-add that rounds once would
    give other bits."""
    grid = (count,) if isinstance(count, int) else count
    if all(grid):
        program[grid](*arguments, num_warps=warps, enable_fp_fusion=False)


def _block(width: int, most: int = _LONGEST) -> int:
    return min(most, max(16, 1 << (width - 1).bit_length()))


def _by_rows(program: Program, rows: int, *arguments: Any) -> None:
    """One program a row, whose last argument is its block: one warp is enough for short ones."""
    launch(program, rows, *arguments, warps=1 if arguments[-1] <= 4 * _WARP else 4)


def _tiles(rows: int, width: int) -> tuple[int, int]:
    return triton.cdiv(rows, _ROWS), triton.cdiv(width, _COLUMNS)


def _parts(rows: int, width: int) -> tuple[int, int]:
    return rows, triton.cdiv(width, _FLAT)


def _striding(x_NO: Tensor) -> Tensor:
    """Rows may be apart (a column range of a wider matrix), elements of a row may not."""
    return x_NO if x_NO.stride(-1) == 1 else x_NO.contiguous()


def _apart(*tensors: Tensor) -> list[Tensor]:
    """Tensors [G, t, 1] whose slices may be apart, all alike, and their numbers may not."""
    alike = {x.stride(0) for x in tensors}
    if len(alike) == 1 and all(x.stride(1) == 1 or x.shape[1] == 1 for x in tensors):
        return list(tensors)
    return [x.contiguous() for x in tensors]


def _inputs_of(tile: Scores) -> list[Any]:
    """What both programs of attention's gradient read, in their order."""
    q_step, peak, inverse, g_step, delta = _apart(
        tile.q_step, tile.peak, tile.inverse, tile.g_step, tile.delta
    )
    k_step, v_step = _apart(tile.k_step, tile.v_step)
    products = tile.scores.contiguous(), tile.shares.contiguous()
    steps = q_step, k_step, peak, inverse, g_step, v_step, delta
    return [*products, *steps, q_step.stride(0), k_step.stride(0)]


class FusedKernels(TorchKernels):
    """See `Kernels`."""

    name = "fused"

    def quantise_rows(self, x_NI: Tensor, split: bool) -> Grid:
        x = _striding(x_NI)
        rows, width = x.shape
        high = torch.empty((rows, width), dtype=torch.int8, device=x.device)
        low = torch.empty_like(high) if split else None
        step = x.new_empty(rows, 1)
        to = high, high if low is None else low, step
        levels = float(SPLIT_LEVELS if split else INT8_LEVELS)
        sizes = levels, _block(width)
        _by_rows(row_programs.quantise_rows, rows, x, x.stride(0), *to, width, *sizes)
        return Grid(high, step, low)

    def quantise_gradient(
        self, parts: Sequence[Tensor], row_N1: Tensor, column_1O: Tensor
    ) -> tuple[Stacked, Stacked]:
        if len(row_N1) * column_1O.shape[1] > _MOST_INT32:
            return super().quantise_gradient(parts, row_N1, column_1O)
        g = parts[0].contiguous() if len(parts) == 1 else torch.cat(list(parts), dim=1)
        row, column = row_N1.contiguous(), column_1O.contiguous()
        rows, width = g.shape
        slices = torch.empty((2 * rows, width), dtype=torch.int8, device=g.device)
        by_row, by_column = slices, torch.empty_like(slices).view(2 * width, rows)
        row_step = g.new_empty(rows, 1)
        into = by_row, row_step, rows, width, _block(width)
        _by_rows(row_programs.quantise_gradient_rows, rows, g, column, *into)
        onto, column_step = _column_grids((g, g, row), column_programs.BY_ROW, SPLIT_LEVELS)
        to = onto, by_column, rows, width, _ROWS, _COLUMNS
        launch(column_programs.quantise_gradient_columns, _tiles(rows, width), g, row, *to)
        return (by_row, row_step), (by_column.t(), column_step.unsqueeze(0))

    def rescale(self, sums_NO: Tensor, row_N1: Tensor, column_1O: Tensor) -> Tensor:
        sums = _striding(sums_NO)
        rows, width = sums.shape
        out = row_N1.new_empty(rows, width)
        steps = row_N1.contiguous(), column_1O.contiguous()
        to = *steps, out, width, _FLAT
        launch(elementwise_programs.rescale, _parts(rows, width), sums, sums.stride(0), *to)
        return out

    def rescale_stacked(self, sums_2NO: Tensor, row_N1: Tensor) -> Tensor:
        sums, row = _striding(sums_2NO), row_N1.contiguous()
        rows, width = len(sums) // 2, sums.shape[1]
        out = row.new_empty(rows, width)
        to = row, out, rows, width, _FLAT
        launch(elementwise_programs.rescale_stacked, _parts(rows, width), sums, sums.stride(0), *to)
        return out

    def rescale_split(
        self, sums: tuple[Tensor, Tensor, Tensor], row_N1: Tensor, column_1O: Tensor
    ) -> Tensor:
        rows, width = sums[0].shape
        out = row_N1.new_empty(rows, width)
        steps = row_N1.contiguous(), column_1O.contiguous()
        plain = [part.contiguous() for part in sums]
        launch(
            elementwise_programs.rescale_split,
            _parts(rows, width),
            *plain,
            *steps,
            out,
            width,
            _FLAT,
        )
        return out

    def rms_norm(self, x_NI: Tensor, gain_I: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        x, (rows, width) = x_NI.contiguous(), x_NI.shape
        out, inverse = torch.empty_like(x), x.new_empty(rows, 1)
        to = gain_I.contiguous(), out, inverse, width, float(eps), _block(width)
        _by_rows(row_programs.rms_norm, rows, x, *to)
        return out, inverse

    def rms_norm_gradient(
        self, g_NI: Tensor, x_NI: Tensor, inverse_N1: Tensor, gain_I: Tensor
    ) -> tuple[Tensor, Tensor]:
        g, x, inverse = g_NI.contiguous(), x_NI.contiguous(), inverse_N1.contiguous()
        rows, width = x.shape
        dx = torch.empty_like(x)
        to = inverse, gain_I.contiguous(), dx, width, _block(width)
        _by_rows(row_programs.rms_norm_gradient, rows, g, x, *to)
        return dx, _column_sums((g, x, inverse), column_programs.BY_OTHER_AND_ROW).squeeze(0)

    def rotate(self, x_BHTd: Tensor, cos_Td: Tensor, sin_Td: Tensor, sign: float) -> Tensor:
        if x_BHTd.shape[3] // 2 > _LONGEST:  # a program turns a position at once
            return super().rotate(x_BHTd, cos_Td, sin_Td, sign)
        x = _striding(x_BHTd)
        (batch, heads, positions), half = x.shape[:3], x.shape[3] // 2
        out = x.new_empty(x.shape)
        tables = cos_Td.contiguous(), sin_Td.contiguous()
        sizes = heads, positions, half, float(sign), _block(half)
        count = batch * heads * positions
        _by_rows(elementwise_programs.rotate, count, x, *x.stride()[:3], *tables, out, *sizes)
        return out

    def swiglu(self, gate_NO: Tensor, up_NO: Tensor) -> Tensor:
        gate, up = _striding(gate_NO), _striding(up_NO)
        rows, width = gate.shape
        out = gate.new_empty(rows, width)
        inputs = gate, gate.stride(0), up, up.stride(0)
        launch(elementwise_programs.swiglu, _parts(rows, width), *inputs, out, width, _FLAT)
        return out

    def swiglu_gradient(
        self, g_NO: Tensor, gate_NO: Tensor, up_NO: Tensor
    ) -> tuple[Tensor, Tensor]:
        g, gate, up = g_NO.contiguous(), _striding(gate_NO), _striding(up_NO)
        rows, width = gate.shape
        dgate, dup = torch.empty_like(g), torch.empty_like(g)
        inputs = g, gate, gate.stride(0), up, up.stride(0)
        parts = _parts(rows, width)
        launch(elementwise_programs.swiglu_gradient, parts, *inputs, dgate, dup, width, _FLAT)
        return dgate, dup

    def squared_relu(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        to = x, x, out, x.numel(), False, _FLAT
        launch(elementwise_programs.squared_relu, triton.cdiv(x.numel(), _FLAT), *to)
        return out

    def squared_relu_gradient(self, g: Tensor, x: Tensor) -> Tensor:
        g, x = g.contiguous(), x.contiguous()
        out = torch.empty_like(x)
        to = x, g, out, x.numel(), True, _FLAT
        launch(elementwise_programs.squared_relu, triton.cdiv(x.numel(), _FLAT), *to)
        return out

    def drop(self, x: Tensor, mask: Mask) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        words = mask.first, *mask.key, mask.step, mask.site, mask.threshold, mask.scale
        count = triton.cdiv(x.numel(), _FLAT)
        launch(elementwise_programs.drop, count, x, out, x.numel(), *words, _FLAT)
        return out

    def embedding_gradient(self, g_NI: Tensor, ids_N: Tensor, vocabulary: int) -> Tensor:
        g = g_NI.contiguous()
        return _column_sums((g, g, g), column_programs.AS_IT_IS, ids_N.contiguous(), vocabulary)

    def softmax_loss(self, logits_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, (rows, width) = logits_NV.contiguous(), logits_NV.shape
        slope, picked = torch.empty_like(logits), logits.new_zeros(rows)
        total = torch.empty(rows, dtype=torch.float64, device=logits.device)
        to = slope, total, picked, width, _block(width)
        _by_rows(row_programs.softmax_loss, rows, logits, targets_N.contiguous(), *to)
        return slope, total, picked

    def quantise_levels(self, x_Nd: Tensor, levels: int) -> Levels:
        x, width = x_Nd.contiguous(), x_Nd.shape[-1]
        out, step = torch.empty_like(x), x.new_empty(*x.shape[:-1], 1)
        sizes = width, float(levels), _block(width)
        rows, whole = step.numel(), (x, width, x, 0, 0)
        _by_rows(row_programs.quantise_levels, rows, *whole, out, step, *sizes)
        return out, step

    def row_dot(self, x_Nd: Tensor, y_Nd: Tensor) -> Tensor:
        x, y, width = x_Nd.contiguous(), y_Nd.contiguous(), x_Nd.shape[-1]
        out = x.new_empty(*x.shape[:-1], 1)
        _by_rows(row_programs.row_dot, out.numel(), x, y, out, width, _block(width))
        return out

    def attention_weights(
        self, scores_Gts: Tensor, q_step_Gt1: Tensor, k_step_Gs1: Tensor, first: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        scores, (groups, queries, keys) = scores_Gts.contiguous(), scores_Gts.shape
        peak, inverse = (scores.new_empty(groups, queries, 1) for _ in range(2))
        (q_step,), (k_step,) = _apart(q_step_Gt1), _apart(k_step_Gs1)
        inputs = scores, q_step, q_step.stride(0), k_step, k_step.stride(0)
        sizes = queries, keys, first, _block(keys)
        rows = groups * queries
        _by_rows(
            attention_tile_programs.attention_weights, rows, *inputs, scores, peak, inverse, *sizes
        )
        return scores, peak, inverse

    def quantise_mixture(
        self, weights_Gts: Tensor, v_step_Gs1: Tensor, start: int, levels: int
    ) -> Levels:
        weights, (v_step,) = weights_Gts.contiguous(), _apart(v_step_Gs1)
        (groups, queries, stride), keys = weights.shape, v_step.shape[1]
        part = weights[..., start:]
        out, step = (weights.new_empty(groups, queries, width) for width in (keys, 1))
        inputs = part, stride, v_step, v_step.stride(0), queries
        sizes = keys, float(levels), _block(keys)
        _by_rows(row_programs.quantise_levels, groups * queries, *inputs, out, step, *sizes)
        return out, step

    def attention_gradient(self, tile: Scores) -> tuple[Levels, Levels, Levels]:
        groups, queries, keys = tile.scores.shape
        inputs = _inputs_of(tile)
        mixed, row, column = (torch.empty_like(inputs[0]) for _ in range(3))
        row_step = inputs[0].new_empty(groups, queries, 1)
        peaks = torch.zeros(2 * groups * keys, dtype=torch.int32, device=row.device)
        count, levels = (groups, triton.cdiv(queries, _ROWS)), float(tile.levels)
        sizes = queries, keys, tile.first, groups
        parts = _ROWS, _block(keys)
        to = row, row_step, peaks, *sizes, levels, *parts
        launch(attention_tile_programs.attention_gradient_rows, count, *inputs, *to)
        onto, step = _grids(peaks, levels)
        launch(
            attention_tile_programs.attention_gradient_columns,
            count,
            *inputs,
            mixed,
            column,
            onto,
            *sizes,
            *parts,
        )
        mixed_step, column_step = step.view(2, groups, 1, keys)
        return (mixed, mixed_step), (row, row_step), (column, column_step)

    def square_sums(self, tensors: Sequence[Tensor]) -> list[tuple[int, float]]:
        device = tensors[0].device
        peaks = torch.zeros(len(tensors), dtype=torch.int32, device=device)
        found = torch.zeros((len(tensors), 2), dtype=torch.int64, device=device)
        for at, tensor in enumerate(tensors):
            x, count = tensor.contiguous(), triton.cdiv(tensor.numel(), _FLAT)
            launch(optimiser_programs.peak_of, count, x, peaks[at:], x.numel(), _FLAT)
            launch(
                optimiser_programs.add_squares, count, x, peaks[at:], found[at], x.numel(), _FLAT
            )
        # The GPU is waited for once.
        return [(n, struct.unpack("<f", struct.pack("<i", word))[0]) for n, word in found.tolist()]

    def momentum(self, m: Tensor, g: Tensor, keep: float, add: float) -> Tensor:
        m, g = m.contiguous(), g.contiguous()
        out, count = torch.empty_like(m), triton.cdiv(m.numel(), _FLAT)
        launch(
            optimiser_programs.momentum, count, m, g, out, m.numel(), float(keep), float(add), _FLAT
        )
        return out

    def adamw(
        self, p: Tensor, m: Tensor, v: Tensor, g: Tensor, factors: AdamFactors
    ) -> tuple[Tensor, Tensor, Tensor]:
        f = factors
        inputs = [x.contiguous() for x in (p, m, v, g)]
        outputs = [torch.empty_like(inputs[0]) for _ in range(3)]
        values = (
            *(f.scale, f.beta1, 1.0 - f.beta1, f.beta2, 1.0 - f.beta2),
            *(f.correct1, f.correct2, f.eps, f.decay, f.rate),
        )
        count = triton.cdiv(p.numel(), _FLAT)
        launch(
            optimiser_programs.adamw,
            count,
            *inputs,
            *outputs,
            p.numel(),
            *map(float, values),
            _FLAT,
        )
        return outputs[0], outputs[1], outputs[2]


def _column_grids(
    of: tuple[Tensor, Tensor, Tensor], kind: Any, levels: int
) -> tuple[Tensor, Tensor]:
    """What brings columns onto grids, of what `kind` says of (x, other, row), and their steps."""
    rows, width = of[0].shape
    peaks = torch.zeros(width, dtype=torch.int32, device=of[0].device)
    sizes = rows, width, kind, _ROWS, _COLUMNS
    launch(column_programs.column_peaks, _tiles(rows, width), *of, peaks, *sizes)
    return _grids(peaks, float(levels))


def _grids(peaks: Tensor, levels: float) -> tuple[Tensor, Tensor]:
    count = peaks.numel()
    onto, step = torch.empty((2, count), device=peaks.device)
    to = onto, step, count, levels, _FLAT
    launch(column_programs.column_grids, triton.cdiv(count, _FLAT), peaks, *to)
    return onto, step


def _column_sums(
    of: tuple[Tensor, Tensor, Tensor], kind: Any, ids_N: Tensor | None = None, count: int = 1
) -> Tensor:
    """Exact sums of the columns, of all rows or by id: [count, width]."""
    rows, width = of[0].shape
    onto, step = _column_grids(of, kind, SUM_LEVELS)
    sums = torch.zeros((count, width), dtype=torch.int64, device=of[0].device)
    ids, has_ids = (of[0], False) if ids_N is None else (ids_N, True)
    sizes = rows, width, kind, has_ids, _ROWS, _COLUMNS
    launch(column_programs.add_columns, _tiles(rows, width), *of, ids, onto, sums, *sizes)
    out = of[0].new_empty(count, width)
    launch(column_programs.finish_columns, _parts(count, width), sums, step, out, width, _FLAT)
    return out
