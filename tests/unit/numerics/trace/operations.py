"""The trace's integer operations, composed into the kernels' parts as a program does."""

from __future__ import annotations

import struct
from functools import cache

import torch
from tests.support.engines import engine_of
from torch import Tensor

from atoll.numerics.kernels.acceptance import sample
from atoll.numerics.kernels.grid import one_nan
from atoll.numerics.kernels.interface import Engine
from atoll.numerics.trace import attention_operations, elementwise, integers
from atoll.numerics.trace.opcodes import Op

OPERATIONS = integers.OPERATIONS | attention_operations.OPERATIONS | elementwise.OPERATIONS


@cache
def reference() -> Engine:
    """The engine that defines the bits."""
    return engine_of("auto", "eager")


def op(code: Op, words: list[int], *inputs: Tensor) -> Tensor:
    """One operation on tensors of any shape."""
    return OPERATIONS[code](words, [x.contiguous().flatten() for x in inputs], 0)


def word32(x: float) -> int:
    """The bits of a binary32 number."""
    return int(struct.unpack(">I", struct.pack(">f", x))[0])


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same numbers in the same order, bit by bit, any NaN as one."""
    first, second = (
        one_nan(x.clone()) if x.is_floating_point() else x for x in (a.flatten(), b.flatten())
    )
    bits = torch.uint8
    return a.dtype == b.dtype and torch.equal(first.view(bits), second.view(bits))


def data(kind: str, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Of the kinds of `acceptance.sample`."""
    return sample(kind, shape, torch.Generator().manual_seed(seed))


def largest(code: Op, x: Tensor, columns: int, block: int) -> Tensor:
    """MAX_ABS or MAX of every row, level by level: f32 [R]."""
    while True:
        x = op(code, [columns, block], x)
        columns = -(-columns // block)
        if columns == 1:
            return x


def total(x: Tensor, columns: int, block: int = integers.I64_BLOCK) -> Tensor:
    """SUM_I64 of every row, level by level: i64 [R]."""
    while columns > 1:
        x, columns = op(Op.SUM_I64, [columns, block], x), -(-columns // block)
    return x


def grid(x: Tensor, columns: int, levels: int, block: int = 1024) -> tuple[Tensor, Tensor]:
    """The multipliers and steps of the rows of x."""
    magnitude = largest(Op.MAX_ABS, x, columns, block)
    return op(Op.GRID_UP, [levels], magnitude), op(Op.GRID_STEP, [levels], magnitude)


def transposed(x: Tensor, rows: int, columns: int, width: int = 4) -> Tensor:
    """x [R, C] as [C, R]."""
    return op(Op.VIEW, [width, columns, rows, 1, 1, 0, 1, columns, 0, 0], x)
