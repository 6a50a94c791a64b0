"""The kernels of kernels.c on CPU tensors. Arguments and results as in `Kernels`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_double, c_float, c_int64, c_uint32, c_void_p
from typing import Any, TypeAlias

import torch
from torch import Tensor

from atoll.numerics.kernels.interface import AdamFactors, Grid, Levels, Scores, Stacked
from atoll.numerics.kernels.philox import Mask

Argument: TypeAlias = Any
"""A tensor (passed as its address), an int (as int64), a ctypes value, or None (a null)."""


class _AttentionGradient(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("scores", "shares", "q_step", "k_step", "peak")),
        *((name, c_void_p) for name in ("inverse", "g_step", "v_step", "delta")),
        *((name, c_int64) for name in ("groups", "queries", "keys", "first")),
        ("levels", c_float),
        *((name, c_void_p) for name in ("mixed", "mixed_step", "row", "row_step")),
        *((name, c_void_p) for name in ("column", "column_step")),
    )


def _plain(x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    if x.dtype != dtype or x.device.type != "cpu":
        raise ValueError(f"compiled kernels want {dtype} on the CPU, not {x.dtype} on {x.device}")
    return x.contiguous()


def _striding(x_NO: Tensor) -> Tensor:
    """Rows may be apart (a column range of a wider matrix), elements of a row may not."""
    return x_NO if x_NO.stride(1) == 1 and x_NO.dtype == torch.float32 else _plain(x_NO)


def _slot(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype)


class CompiledKernels:
    """See `Kernels`. Inputs on other devices or of other dtypes raise ValueError."""

    name = "compiled"

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def _call(self, name: str, *arguments: Argument, result: Any = None) -> Any:
        function = getattr(self._library, name)  # which keeps it; an index makes it anew
        function.restype = result
        passed: list[object] = []
        for argument in arguments:
            if isinstance(argument, Tensor):
                passed.append(c_void_p(argument.data_ptr()))
            else:
                passed.append(c_int64(argument) if isinstance(argument, int) else argument)
        return function(*passed)

    def quantise_rows(self, x_NI: Tensor, split: bool) -> Grid:
        x = _plain(x_NI)
        rows, inner = x.shape
        high, step = _slot(rows, inner, dtype=torch.int8), _slot(rows, 1)
        if not split:
            self._call("quantise_rows", x, rows, inner, high, step)
            return Grid(high, step)
        low = torch.empty_like(high)
        self._call("split_rows", x, rows, inner, high, low, step)
        return Grid(high, step, low)

    def quantise_gradient(
        self, parts: Sequence[Tensor], row_N1: Tensor, column_1O: Tensor
    ) -> tuple[Stacked, Stacked]:
        plain, row, column = [_plain(part) for part in parts], _plain(row_N1), _plain(column_1O)
        rows, width = len(row), column.numel()
        pointers = (c_void_p * len(plain))(*(part.data_ptr() for part in plain))
        widths = (c_int64 * len(plain))(*(part.shape[1] for part in plain))
        by_row = _slot(2 * rows, width, dtype=torch.int8), _slot(rows, 1)
        by_column = _slot(rows, 2 * width, dtype=torch.int8), _slot(1, width)
        inputs = pointers, widths, len(plain), row, column, rows, width
        self._call("quantise_gradient", *inputs, _slot(2, width), *by_row, *by_column)
        return by_row, by_column

    def rescale(self, sums_NO: Tensor, row_N1: Tensor, column_1O: Tensor) -> Tensor:
        sums = _plain(sums_NO, torch.int32)
        self._call("rescale", sums, _plain(row_N1), _plain(column_1O), *sums.shape)
        return sums.view(torch.float32)

    def rescale_stacked(self, sums_2NO: Tensor, row_N1: Tensor) -> Tensor:
        sums, row = _plain(sums_2NO, torch.int32), _plain(row_N1)
        out = _slot(len(row), sums.shape[1])
        self._call("rescale_stacked", sums, row, *out.shape, out)
        return out

    def rescale_split(
        self, sums: tuple[Tensor, Tensor, Tensor], row_N1: Tensor, column_1O: Tensor
    ) -> Tensor:
        is_long = sums[0].dtype == torch.int64
        parts = [_plain(part, torch.int64 if is_long else torch.int32) for part in sums]
        rows, width = parts[0].shape
        out = _slot(rows, width)
        steps = _plain(row_N1), _plain(column_1O)
        name = "rescale_split_long" if is_long else "rescale_split"
        self._call(name, *parts, *steps, rows, width, out)
        return out

    def rms_norm(self, x_NI: Tensor, gain_I: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        x, gain = _plain(x_NI), _plain(gain_I)
        rows, width = x.shape
        out, inverse = _slot(rows, width), _slot(rows, 1)
        self._call("rms_norm", x, gain, c_double(eps), rows, width, out, inverse)
        return out, inverse

    def rms_norm_gradient(
        self, g_NI: Tensor, x_NI: Tensor, inverse_N1: Tensor, gain_I: Tensor
    ) -> tuple[Tensor, Tensor]:
        inputs = [_plain(t) for t in (g_NI, x_NI, inverse_N1, gain_I)]
        rows, width = x_NI.shape
        dx, dgain = _slot(rows, width), _slot(width)
        line, sums = _slot(width), _slot(width, dtype=torch.int64)
        self._call("rms_norm_gradient", *inputs, rows, width, dx, dgain, line, sums)
        return dx, dgain

    def rotate(self, x_BHTd: Tensor, cos_Td: Tensor, sin_Td: Tensor, sign: float) -> Tensor:
        x = x_BHTd if x_BHTd.stride(3) == 1 else _plain(x_BHTd)
        out = _slot(*x.shape)
        shape, strides = ((c_int64 * 4)(*values) for values in (x.shape, x.stride()))
        tables = _plain(cos_Td), _plain(sin_Td)
        self._call("rotate", x, shape, strides, *tables, c_float(sign), out)
        return out

    def swiglu(self, gate_NO: Tensor, up_NO: Tensor) -> Tensor:
        gate, up = _striding(gate_NO), _striding(up_NO)
        rows, width = gate.shape
        out = _slot(rows, width)
        self._call("swiglu", gate, gate.stride(0), up, up.stride(0), rows, width, out)
        return out

    def swiglu_gradient(
        self, g_NO: Tensor, gate_NO: Tensor, up_NO: Tensor
    ) -> tuple[Tensor, Tensor]:
        g, gate, up = _plain(g_NO), _striding(gate_NO), _striding(up_NO)
        rows, width = gate.shape
        dgate, dup = _slot(rows, width), _slot(rows, width)
        strided = gate, gate.stride(0), up, up.stride(0)
        self._call("swiglu_gradient", g, *strided, rows, width, dgate, dup)
        return dgate, dup

    def squared_relu(self, x: Tensor) -> Tensor:
        x = _plain(x)
        out = torch.empty_like(x)
        self._call("squared_relu", x, x.numel(), out)
        return out

    def squared_relu_gradient(self, g: Tensor, x: Tensor) -> Tensor:
        g, x = _plain(g), _plain(x)
        out = torch.empty_like(x)
        self._call("squared_relu_gradient", g, x, x.numel(), out)
        return out

    def drop(self, x: Tensor, mask: Mask) -> Tensor:
        x = _plain(x)
        out = torch.empty_like(x)
        words = (c_uint32 * 4)(*mask.key, mask.step, mask.site)
        limits = c_uint32(mask.threshold), c_float(mask.scale)
        self._call("drop", x, x.numel(), mask.first, words, *limits, out)
        return out

    def embedding_gradient(self, g_NI: Tensor, ids_N: Tensor, vocabulary: int) -> Tensor:
        g, ids = _plain(g_NI), _plain(ids_N, torch.int64)
        rows, width = g.shape
        sums = torch.zeros(vocabulary, width, dtype=torch.int64)
        out, by = _slot(vocabulary, width), _slot(width)
        self._call("embedding_gradient", g, ids, rows, width, vocabulary, by, sums, out)
        return out

    def softmax_loss(self, logits_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, targets = _plain(logits_NV), _plain(targets_N, torch.int64)
        rows, width = logits.shape
        slope, total = _slot(rows, width), _slot(rows, dtype=torch.float64)
        picked = _slot(rows)
        self._call("softmax_loss", logits, targets, rows, width, slope, total, picked)
        return slope, total, picked

    def quantise_levels(self, x_Nd: Tensor, levels: int) -> Levels:
        x = _plain(x_Nd)
        out, step = _slot(*x.shape), _slot(*x.shape[:-1], 1)
        width = x.shape[-1]
        self._call("quantise_levels", x, step.numel(), width, c_float(levels), out, step)
        return out, step

    def row_dot(self, x_Nd: Tensor, y_Nd: Tensor) -> Tensor:
        x, y = _plain(x_Nd), _plain(y_Nd)
        out = _slot(*x.shape[:-1], 1)
        width = x.shape[-1]
        self._call("row_dot", x, y, out.numel(), width, _slot(width), out)
        return out

    def attention_weights(
        self, scores_Gts: Tensor, q_step_Gt1: Tensor, k_step_Gs1: Tensor, first: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        scores, q_step, k_step = _plain(scores_Gts), _plain(q_step_Gt1), _plain(k_step_Gs1)
        groups, queries, keys = scores.shape
        peak, inverse = _slot(groups, queries, 1), _slot(groups, queries, 1)
        sizes = groups, queries, keys, first
        self._call("attention_weights", scores, q_step, k_step, *sizes, peak, inverse)
        return scores, peak, inverse

    def quantise_mixture(
        self, weights_Gts: Tensor, v_step_Gs1: Tensor, start: int, levels: int
    ) -> Levels:
        weights, v_step = _plain(weights_Gts), _plain(v_step_Gs1)
        groups, queries, stride = weights.shape
        keys = v_step.shape[1]
        out, step = _slot(groups, queries, keys), _slot(groups, queries, 1)
        sizes = groups, queries, stride, start, keys
        self._call("quantise_mixture", weights, v_step, *sizes, c_float(levels), out, step)
        return out, step

    def attention_gradient(self, tile: Scores) -> tuple[Levels, Levels, Levels]:
        groups, queries, keys = tile.scores.shape
        names = "scores", "shares", "q_step", "k_step", "peak", "inverse", "g_step", "v_step"
        inputs = [_plain(getattr(tile, name)) for name in (*names, "delta")]
        mixed, row, column = (_slot(groups, queries, keys) for _ in range(3))
        mixed_step, column_step = _slot(groups, 1, keys), _slot(groups, 1, keys)
        row_step = _slot(groups, queries, 1)
        outputs = mixed, mixed_step, row, row_step, column, column_step
        arguments = _AttentionGradient(
            *(t.data_ptr() for t in inputs),
            *(groups, queries, keys, tile.first, tile.levels),
            *(t.data_ptr() for t in outputs),
        )
        self._call("attention_gradient", ctypes.byref(arguments))
        return (mixed, mixed_step), (row, row_step), (column, column_step)

    def square_sums(self, tensors: Sequence[Tensor]) -> list[tuple[int, float]]:
        return [self._square_sum(_plain(x), _slot(1)) for x in tensors]

    def _square_sum(self, x: Tensor, step: Tensor) -> tuple[int, float]:
        return self._call("square_sum", x, x.numel(), step, result=c_int64), step.item()

    def momentum(self, m: Tensor, g: Tensor, keep: float, add: float) -> Tensor:
        m, g = _plain(m), _plain(g)
        out = torch.empty_like(m)
        self._call("momentum", m, g, c_float(keep), c_float(add), m.numel(), out)
        return out

    def gram(self, sums_SS: Tensor, step_S1: Tensor) -> tuple[Tensor, Tensor]:
        sums, step = _plain(sums_SS, torch.int32), _plain(step_S1)
        rows = sums.shape[0]
        diagonal, rest = _slot(rows), _slot(rows, rows)
        self._call("gram", sums, step, rows, diagonal, rest)
        return diagonal, rest

    def quintic(
        self, diagonal_S: Tensor, rest_SS: Tensor, square: tuple[Tensor, Tensor], x_step_S1: Tensor
    ) -> tuple[Tensor, Grid]:
        sums, steps = _plain(square[0], torch.int32), (_plain(square[1]), _plain(x_step_S1))
        inputs, rows = (_plain(diagonal_S), _plain(rest_SS), sums), rest_SS.shape[0]
        along, across = _slot(rows), Grid(_slot(rows, rows, dtype=torch.int8), _slot(rows, 1))
        self._call("quintic", *inputs, *steps, rows, _slot(rows), along, across.high, across.step)
        return along, across

    def advance(self, x_SL: Tensor, along_S: Tensor, sums_SL: Tensor, step_S1: Tensor) -> Tensor:
        x, along, step = _plain(x_SL), _plain(along_S), _plain(step_S1)
        rows, width = x.shape
        out = _slot(rows, width)
        self._call("advance", x, along, _plain(sums_SL, torch.int32), step, rows, width, out)
        return out

    def adamw(
        self, p: Tensor, m: Tensor, v: Tensor, g: Tensor, factors: AdamFactors
    ) -> tuple[Tensor, Tensor, Tensor]:
        f = factors
        inputs = [_plain(t) for t in (p, m, v, g)]
        values = (
            *(f.scale, f.beta1, 1.0 - f.beta1, f.beta2, 1.0 - f.beta2),
            *(f.correct1, f.correct2, f.eps, f.decay, f.rate),
        )
        outputs = [torch.empty_like(inputs[0]) for _ in range(3)]
        self._call("adamw", *inputs, (c_double * 10)(*values), p.numel(), *outputs)
        return outputs[0], outputs[1], outputs[2]
