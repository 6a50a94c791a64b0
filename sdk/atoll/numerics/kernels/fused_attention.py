"""Attention on a GPU: forward in one program and backward in two, instead of tile by tile."""

from __future__ import annotations

from typing import Any, Final

import triton
from torch import Tensor

from atoll.numerics.kernels import attention_programs as programs
from atoll.numerics.kernels import fused
from atoll.numerics.kernels.device_functions import Program
from atoll.numerics.kernels.interface import TILE, Incoming, Operands

_QUERIES, _KEYS, _WARPS = 64, 32, 4
"""Rows of a program, of which a tile has some whole ones, and how many warps: the fastest of eight
ways on an H100, and what fits into 99 KiB of shared memory at the widest."""
_NARROWEST: Final = 16
_WIDEST: Final = 128
"""Heads: a tensor core's product has as many inner terms at least, and memory no room for more."""


class FusedAttention:
    """See `WholeAttention`."""

    def holds(self, width: int) -> bool:
        return width <= _WIDEST

    def forward(self, of: Operands) -> tuple[Tensor, Tensor, Tensor]:
        out = of.q_step.new_empty(of.q.shape)
        peak, inverse = (of.q_step.new_empty(of.q_step.shape) for _ in range(2))
        _launch(programs.attend, of, (), (out, peak, inverse), _QUERIES)
        return out, peak, inverse

    def backward(self, of: Operands, incoming: Incoming) -> tuple[Tensor, Tensor, Tensor]:
        dq, dk, dv = (of.q_step.new_empty(of.q.shape) for _ in range(3))
        given = incoming.g, incoming.g_step, incoming.peak, incoming.inverse, incoming.delta
        _launch(programs.query_gradient, of, given, (dq,), _QUERIES)
        _launch(programs.key_gradient, of, given, (dk, dv), _KEYS)
        return dq, dk, dv


def _launch(
    program: Program,
    of: Operands,
    given: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    rows: int,
) -> None:
    slices, length, width = of.q.shape
    operands = of.q, of.q_step, of.k, of.k_step, of.v, of.v_step
    inputs: list[Any] = [x.contiguous() for x in (*operands, *given)]
    block = max(_NARROWEST, 1 << (width - 1).bit_length())
    sizes = length, width, float(of.levels), block, rows, TILE
    count = slices * triton.cdiv(length, rows)
    fused.launch(program, count, *inputs, *outputs, *sizes, warps=_WARPS)
