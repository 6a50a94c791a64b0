"""Structure, reductions, grids, integer products, embedding: the operations 0x01 of the trace.

`opcodes.Op` says what each is; contracts/src/judge/IntegerSteps.sol works out one element of each.
Reductions go over blocks of columns and are repeated until one is left, since an element's inputs
must fit a transaction.

Shapes: R rows and C columns of an input, B columns of a block; R follows from the input's size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from atoll.numerics.kernels.engine import engine_on
from atoll.numerics.kernels.grid import FLOOR, SPLIT_BASE, one_nan, steps, whole
from atoll.numerics.trace.opcodes import Op

Operation = Callable[[Sequence[int], Sequence[Tensor], int], Tensor]
"""(words, inputs as flat tensors, iteration of the program's loop) → the node's flat tensor."""

MAX_BLOCK: Final = 1024
"""Columns of a block of MAX_ABS, MAX, SUM_I32 and COUNT: 4 KiB of an input."""
I64_BLOCK: Final = 512
GRID_BLOCK: Final = 256
"""Of the sums of numbers that are rounded to a grid on the way."""
DOT_BLOCK: Final = 2048
"""Of DOT_I8, where a row begins with a leaf; see `dot_block`."""
PREFIX_BLOCK: Final = 128
"""Of PREFIX and of LOWER_BOUND's levels: int64 numbers of one leaf."""
POWER_BITS: Final = 39
"""Of POWER_GRID: in its steps the largest number of a tensor is from 2^39 to 2^40."""
_SIGNIFICAND, _BIAS = 23, 127
PADDING: Final = 2**63 - 1
"""The sort key of no token: above all others."""


def dot_block(inner: int) -> int:
    """Terms of a block of DOT_I8 over so many: two leaves of 1 KiB of either operand, at most."""
    return DOT_BLOCK if inner % 1024 == 0 else DOT_BLOCK // 2


def float32(word: int) -> float:
    """The binary32 number whose bits a word holds."""
    return float(struct.unpack(">f", word.to_bytes(4, "big"))[0])


def float64(word: int) -> float:
    """The binary64 number whose bits a word holds."""
    return float(struct.unpack(">d", word.to_bytes(8, "big"))[0])


def _blocks(x: Tensor, columns: int, block: int) -> Tensor:
    """x [R, C] as [R, ⌈C/B⌉, B], zeros behind a row's end; one block is as long as the row."""
    rows = x.view(-1, columns)
    if columns <= block:  # filled up, a short row would be many times as long
        return rows[:, None]
    if columns % block:
        rows = torch.nn.functional.pad(rows, (0, -columns % block))
    return rows.view(rows.shape[0], -1, block)


# ---- structure -----------------------------------------------------------------------------------


def view(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    x = inputs[0].contiguous()
    offset = x.storage_offset() + words[5]
    return torch.as_strided(x, words[1:5], words[6:10], offset).clone().flatten()


def concat(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    parts = [x.view(-1, columns) for x, columns in zip(inputs, words[1:], strict=True)]
    return torch.cat(parts, dim=1).flatten()


def copy(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    return inputs[0].clone()


# ---- grids ---------------------------------------------------------------------------------------


def max_abs(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    return one_nan(_blocks(inputs[0].abs(), *words).amax(-1)).flatten()


def maximum(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    columns, block = words
    rows = inputs[0].view(-1, columns)
    tops = [part.amax(-1) + 0.0 for part in torch.split(rows, block, dim=1)]
    return one_nan(torch.stack(tops, dim=1)).flatten()


def grid_up(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    return one_nan(steps(inputs[0], words[0])[0])


def grid_step(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    return steps(inputs[0], words[0])[1]


def power_grid(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """[up] M f32 → f32: 2^(39 − E) up, 2^(E − 39) back, of M = f · 2^E, 1 ≤ f < 2, M ≥ FLOOR.

    0 where M is not finite.
    """
    exponent = (inputs[0].clamp_min(FLOOR).view(torch.int32) >> _SIGNIFICAND) - _BIAS
    power = POWER_BITS - exponent if words[0] else exponent - POWER_BITS
    grid = ((power + _BIAS) << _SIGNIFICAND).view(torch.float32)
    return grid.where(inputs[0].isfinite(), 0.0)


def _integers(columns: int, inputs: Sequence[Tensor]) -> Tensor:
    """rint(x · up), held in f32 [R, C], of x [R, C] and up [R] (2, line 4)."""
    x, up = inputs
    return whole(x.view(-1, columns) * up[:, None])


def quantise_i8(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    return _integers(words[0], inputs).to(torch.int8).flatten()


def quantise_f32(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    return _integers(words[0], inputs).flatten()


def _split(columns: int, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    integers = _integers(columns, inputs)
    high = torch.round(integers * (1.0 / SPLIT_BASE))
    return high, integers - high * SPLIT_BASE


def split_high(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    return _split(words[0], inputs)[0].to(torch.int8).flatten()


def split_low(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    return _split(words[0], inputs)[1].to(torch.int8).flatten()


# ---- sums ----------------------------------------------------------------------------------------


def sum_i32(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    return _blocks(inputs[0], *words).sum(-1, dtype=torch.int64).flatten()


def sum_i64(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    return _blocks(inputs[0], *words).sum(-1).flatten()


def sum_grid(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    integers = _integers(words[0], inputs).long()
    return _blocks(integers, *words).sum(-1).flatten()


def sum_squares(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    integers = _integers(words[0], inputs).long()
    return _blocks(integers * integers, *words).sum(-1).flatten()


def sum_round(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    columns, block, factor = words
    integers = whole(inputs[0] * float32(factor)).long()
    return _blocks(integers, columns, block).sum(-1).flatten()


def count_targets(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    return _blocks((inputs[0] >= 0).long(), *words).sum(-1).flatten()


# ---- products ------------------------------------------------------------------------------------


def dot_i8(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    others, inner, block = words
    a, b = inputs[0].view(-1, inner), inputs[1].view(others, inner)
    multiply = engine_on("cpu").route.matmul
    parts = [
        multiply(a[:, at : at + block], b[:, at : at + block].t()) for at in range(0, inner, block)
    ]
    return parts[0].flatten() if len(parts) == 1 else torch.stack(parts, dim=-1).flatten()


def combine_split(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    high, middle, other = (x.long() for x in inputs)
    return high * SPLIT_BASE**2 + (middle + other) * SPLIT_BASE


# ---- embedding -----------------------------------------------------------------------------------


def embed(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    ids, table = inputs
    return table.view(-1, words[0])[ids.long()].flatten()


def sort_keys(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    tokens, length = words
    keys = torch.full((length,), PADDING, dtype=torch.int64, device=inputs[0].device)
    keys[:tokens] = (inputs[0].long() << 32) + torch.arange(tokens, device=keys.device)
    return keys


def sort_stage(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """[k j] i64 [n] → i64 [n]: one stage of Batcher's bitonic network.

    Keys i and i ^ j are put in order, ascending where the bit k of i is 0. The stages k = 2, 4, …
    n, within each j = k/2, k/4, … 1, sort.
    """
    size, distance = words
    pairs = inputs[0].view(-1, 2, distance)
    starts = torch.arange(len(pairs), device=pairs.device) * (2 * distance)
    ascending = ((starts & size) == 0)[:, None]
    low = torch.minimum(pairs[:, 0], pairs[:, 1])
    high = torch.maximum(pairs[:, 0], pairs[:, 1])
    first, second = torch.where(ascending, low, high), torch.where(ascending, high, low)
    return torch.stack((first, second), dim=1).flatten()


def lower_bound(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """[V n] sorted keys i64 [n], every 128th of them, … → i32 [V + 1]: keys with an id below v.

    The further inputs are for whoever works out one element: the last has at most 128 keys.
    """
    vocabulary, _ = words
    ids = torch.arange(vocabulary + 1, dtype=torch.int64, device=inputs[0].device)
    return torch.searchsorted(inputs[0], ids << 32).to(torch.int32)


def gather_grid(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    g_DN, up_D, keys = inputs
    order_N = keys[: words[0]] & 0xFFFFFFFF
    return _integers(words[0], (g_DN.view(-1, words[0])[:, order_N], up_D)).long().flatten()


def prefix(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    columns = words[0]
    sums = _blocks(inputs[0], *words).cumsum(-1).flatten(1)
    return sums[:, :columns].flatten()


def add_before(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    columns, block = words
    sums = inputs[0].view(-1, columns).clone()
    before = inputs[1].view(len(sums), -1).repeat_interleave(block, dim=1)
    sums[:, block:] += before[:, : max(columns - block, 0)]
    return sums.flatten()


def sum_by_id(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    width, tokens = words
    start, sums, step_D = inputs[0].long(), inputs[1].view(width, tokens), inputs[2]
    before_DV = torch.nn.functional.pad(sums, (1, 0))[:, start]
    sums_VD = (before_DV[:, 1:] - before_DV[:, :-1]).t()
    return one_nan((sums_VD.double() * step_D.double()).float()).flatten()


OPERATIONS: Final[dict[Op, Operation]] = {
    Op.VIEW: view,
    Op.CONCAT: concat,
    Op.MAX_ABS: max_abs,
    Op.MAX: maximum,
    Op.GRID_UP: grid_up,
    Op.GRID_STEP: grid_step,
    Op.POWER_GRID: power_grid,
    Op.QUANTISE_I8: quantise_i8,
    Op.QUANTISE_F32: quantise_f32,
    Op.SPLIT_HIGH: split_high,
    Op.SPLIT_LOW: split_low,
    Op.DOT_I8: dot_i8,
    Op.SUM_I32: sum_i32,
    Op.SUM_I64: sum_i64,
    Op.SUM_GRID: sum_grid,
    Op.SUM_SQUARES: sum_squares,
    Op.SUM_ROUND: sum_round,
    Op.SORT_KEYS: sort_keys,
    Op.SORT_STAGE: sort_stage,
    Op.LOWER_BOUND: lower_bound,
    Op.GATHER_GRID: gather_grid,
    Op.PREFIX: prefix,
    Op.ADD_BEFORE: add_before,
    Op.SUM_BY_ID: sum_by_id,
    Op.EMBED: embed,
    Op.COUNT_TARGETS: count_targets,
    Op.COMBINE_SPLIT: combine_split,
    Op.COPY: copy,
}
