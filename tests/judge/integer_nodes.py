"""Nodes of families 1 and 2: see `elements`.

Grids are those of their lines, as on a trace: what is not finite has integers of 0, and all others
are within the levels. Lines are of the kinds that part implementations of the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from tests.judge.elements import (
    Draw,
    Node,
    Rng,
    integers32,
    integers64,
    reals,
    size,
    word32,
    word64,
)
from torch import Tensor

from atoll.numerics.kernels.acceptance import KINDS, next_to_halves, sample
from atoll.numerics.kernels.grid import SPLIT_LEVELS, operand_levels, steps
from atoll.numerics.trace.integers import power_grid as power_grid_of
from atoll.numerics.trace.opcodes import Op

LEVELS: Final = (127, SPLIT_LEVELS, 2**16, 2**18, 2**22, 511, operand_levels(128), 1)


def _generator(rng: Rng) -> torch.Generator:
    return torch.Generator().manual_seed(size(rng, 0, 2**62))


def lines(rng: Rng, rows: int, columns: int, levels: int = 127) -> Tensor:
    """f32 [rows, columns]: each row of a kind of `acceptance`, or next to halves of its grid."""
    made = []
    for _ in range(rows):
        kind = size(rng, 0, len(KINDS) + 3)
        if kind < len(KINDS):
            made.append(sample(KINDS[kind], (1, columns), _generator(rng)))
        elif kind == len(KINDS):
            made.append(reals(rng, columns)[None])
        else:
            made.append(next_to_halves((2, columns + 1), levels, _generator(rng))[1:, :columns])
    return torch.cat(made)


def next_to_middles(rng: Rng, columns: int) -> Tensor:
    """f32 [1, columns] whose integers of the split grid are next to middles of high slices."""
    up, _ = steps(torch.ones(1), SPLIT_LEVELS)
    whole = rng.integers(-127, 127, columns) * 254 + 127 + rng.integers(-1, 2, columns)
    x = torch.from_numpy(whole) / up.double()
    x[0] = 1.0
    return x.float()[None]


def _shape(rng: Rng, count: int, most: int = 40) -> tuple[int, int]:
    columns = size(rng, 1, most)
    return max(1, count // columns), columns


def _blocked(rng: Rng, count: int) -> tuple[int, int, int]:
    """Rows, columns and a block of columns that make about so many elements."""
    columns = size(rng, 1, 70)
    block = int(rng.choice([1, 2, 7, 8, 9, size(rng, 1, 20), size(rng, 1, 70)]))
    return max(1, count // -(-columns // block)), columns, block


def _multiplier(x: Tensor, levels: int) -> Tensor:
    return steps(x.abs().amax(-1), levels)[0]


# ---- family 1 ------------------------------------------------------------------------------------


def anything(rng: Rng, width: int, count: int) -> Tensor:
    """Elements of so many bytes."""
    if width == 4:
        return reals(rng, count)
    drawn = integers64(rng, count)
    return drawn if width == 8 else drawn.to(torch.int8)


def view(rng: Rng, count: int) -> Node:
    width = int(rng.choice([1, 4, 8]))
    shape = [size(rng, 1, 6) for _ in range(3)]
    shape.append(max(1, count // int(np.prod(shape))))
    strides = [int(rng.choice([0, 1, size(rng, 0, 50)])) for _ in shape]
    offset = size(rng, 0, 30)
    last = offset + sum((a - 1) * b for a, b in zip(shape, strides, strict=True))
    x = anything(rng, width, last + 1 + size(rng, 0, 3))
    return Node(Op.VIEW, (width, *shape, offset, *strides), (x,))


def concat(rng: Rng, count: int) -> Node:
    width = int(rng.choice([1, 4, 8]))
    columns = [size(rng, 1, 12) for _ in range(size(rng, 1, 6))]
    rows = max(1, count // sum(columns))
    inputs = tuple(anything(rng, width, rows * each) for each in columns)
    return Node(Op.CONCAT, (width, *columns), inputs)


def copy(rng: Rng, count: int) -> Node:
    width = int(rng.choice([1, 4, 8]))
    return Node(Op.COPY, (width,), (anything(rng, width, count),))


def maxima(op: Op) -> Draw:
    """MAX_ABS or MAX."""

    def draw(rng: Rng, count: int) -> Node:
        rows, columns, block = _blocked(rng, count)
        x = lines(rng, rows, columns)
        return Node(op, (columns, block), ((-x.abs() if rng.random() < 0.2 else x).flatten(),))

    return draw


def grids(op: Op) -> Draw:
    """GRID_UP or GRID_STEP."""

    def draw(rng: Rng, count: int) -> Node:
        return Node(op, (int(rng.choice(LEVELS)),), (reals(rng, count).abs(),))

    return draw


def power_grid(rng: Rng, count: int) -> Node:
    """The largest of a tensor: of any size, with the floor's neighbours, and not finite."""
    x = reals(rng, count)
    floor = torch.exp2(torch.from_numpy(rng.integers(-82, -78, count).astype(np.float32)))
    near = torch.nextafter(floor, torch.where(x > 0, 0.0, 1.0))
    kind = torch.from_numpy(rng.integers(0, 8, count))
    x = torch.where(kind == 0, floor, torch.where(kind == 1, near, x))
    return Node(Op.POWER_GRID, (size(rng, 0, 1),), (x.abs(),))


def on_grid(op: Op, levels: Sequence[int]) -> Draw:
    """What rounds each number of a row to its grid."""

    def draw(rng: Rng, count: int) -> Node:
        rows, columns = _shape(rng, count)
        chosen = int(rng.choice(levels))
        x = lines(rng, rows, columns, chosen)
        if chosen == SPLIT_LEVELS:
            x[:: size(rng, 2, 4)] = next_to_middles(rng, columns)
        return Node(op, (columns,), (x.flatten(), _multiplier(x, chosen)))

    return draw


def sums_on_grid(op: Op, levels: Sequence[int]) -> Draw:
    """SUM_GRID or SUM_SQUARES; of the levels 0 are POWER_GRID's."""

    def draw(rng: Rng, count: int) -> Node:
        rows, columns, block = _blocked(rng, count)
        chosen = int(rng.choice(levels))
        if chosen == 0:
            x, up = _on_power_grid(rng, rows * columns)
            return Node(op, (columns, block), (x, up.expand(rows).contiguous()))
        x = lines(rng, rows, columns, chosen)
        return Node(op, (columns, block), (x.flatten(), _multiplier(x, chosen)))

    return draw


def _on_power_grid(rng: Rng, count: int) -> tuple[Tensor, Tensor]:
    """Second moments, some of them halves of their grid's steps, and the grid's multiplier."""
    spread = torch.from_numpy(rng.integers(-60, 1, count).astype(np.float32))
    x = reals(rng, count).abs() if rng.random() < 0.2 else torch.exp2(spread)
    x = (x * torch.from_numpy(rng.random(count).astype(np.float32))).clamp(max=2.0**127)
    x *= 2.0 ** size(rng, -80, 0)
    up = power_grid_of((1,), (x.amax().view(1),), 0)
    halves = (torch.from_numpy(rng.integers(0, 1 << 22, count)).float() + 0.5) / up
    x = torch.where(torch.from_numpy(rng.random(count) < 0.3), halves.clamp(max=x.amax()), x)
    return x, power_grid_of((1,), (x.amax().view(1),), 0)


def sum_round(rng: Rng, count: int) -> Node:
    rows, columns, block = _blocked(rng, count)
    factor = float(rng.choice([2.0**23, 2.0**30]))
    x = lines(rng, rows, columns)
    halves = (x.abs().clamp(max=2.0**20).floor() + 0.5) / factor
    weights = torch.where(x < 0, (-x.abs()).exp(), halves).clamp(0.0, 1.0)
    return Node(Op.SUM_ROUND, (columns, block, word32(factor)), (weights.flatten(),))


def sums(op: Op) -> Draw:
    """SUM_I32, SUM_I64, COUNT_TARGETS or PREFIX."""

    def draw(rng: Rng, count: int) -> Node:
        if op == Op.PREFIX:
            (rows, columns), block = _shape(rng, count), size(rng, 1, 20)
        else:
            rows, columns, block = _blocked(rng, count)
        wide = op in (Op.SUM_I64, Op.PREFIX)
        return Node(
            op, (columns, block), ((integers64 if wide else integers32)(rng, rows * columns),)
        )

    return draw


def add_before(rng: Rng, count: int) -> Node:
    (rows, columns), block = _shape(rng, count), size(rng, 1, 20)
    totals = integers64(rng, rows * -(-columns // block))
    return Node(Op.ADD_BEFORE, (columns, block), (integers64(rng, rows * columns), totals))


def _bytes(rng: Rng, count: int) -> Tensor:
    drawn = rng.integers(-127, 128, count)
    ends = rng.choice([127, -127, -128, 0, 1], count)
    return torch.from_numpy(np.where(rng.random() < 0.5, drawn, ends).astype(np.int8))


def dot_i8(rng: Rng, count: int) -> Node:
    inner, block = size(rng, 1, 300), int(rng.choice([2048, 32, 64, size(rng, 1, 200)]))
    others = size(rng, 1, 12)
    rows = max(1, count // (others * -(-inner // block)))
    a, b = _bytes(rng, rows * inner), _bytes(rng, others * inner)
    return Node(Op.DOT_I8, (others, inner, block), (a, b))


def _ids(rng: Rng, count: int, vocabulary: int) -> Tensor:
    return torch.from_numpy(rng.integers(0, vocabulary, count).astype(np.int32))


def _padded(tokens: int) -> int:
    return 1 << (tokens - 1).bit_length()


def sort_keys(rng: Rng, count: int) -> Node:
    tokens = size(rng, max(1, count // 2), count)
    ids = _ids(rng, tokens, 1 << size(rng, 0, 31))
    return Node(Op.SORT_KEYS, (tokens, _padded(tokens)), (ids,))


def _keys(rng: Rng, tokens: int, vocabulary: int) -> Tensor:
    """Sort keys in the order of tokens, behind them the padding."""
    keys = torch.full((_padded(tokens),), 2**63 - 1, dtype=torch.int64)
    keys[:tokens] = (_ids(rng, tokens, vocabulary).long() << 32) + torch.arange(tokens)
    return keys


def sort_stage(rng: Rng, count: int) -> Node:
    keys = _keys(rng, max(2, count), 1 << size(rng, 0, 31))
    keys = keys[torch.randperm(len(keys), generator=_generator(rng))]
    k = size(rng, 1, len(keys).bit_length() - 1)
    return Node(Op.SORT_STAGE, (1 << k, 1 << size(rng, 0, k - 1)), (keys,))


def lower_bound(rng: Rng, count: int) -> Node:
    most = rng.choice([40000, 1, 100, 129, 300, 1000], p=[0.05, 0.1, 0.2, 0.2, 0.25, 0.2])
    tokens = size(rng, 1, int(most))  # beyond 128 and beyond 16384 there is one level more
    vocabulary = max(1, count - 1)
    levels = [_keys(rng, tokens, vocabulary).sort().values]
    words = vocabulary, len(levels[0])
    while len(levels[-1]) > 128:
        levels.append(levels[-1][::128].contiguous())
    return Node(Op.LOWER_BOUND, words, tuple(levels))


def gather_grid(rng: Rng, count: int) -> Node:
    rows, columns = _shape(rng, count)
    x = lines(rng, rows, columns, 2**22)
    keys = _keys(rng, columns, 9).sort().values
    return Node(Op.GATHER_GRID, (columns,), (x.flatten(), _multiplier(x, 2**22), keys))


def sum_by_id(rng: Rng, count: int) -> Node:
    width, tokens = size(rng, 1, 8), size(rng, 1, 40)
    vocabulary = max(1, count // width)
    ids = _ids(rng, tokens, vocabulary).sort().values
    start = torch.searchsorted(ids, torch.arange(vocabulary + 1, dtype=torch.int32))
    prefix = integers64(rng, width * tokens) >> 2
    inputs = start.to(torch.int32), prefix, reals(rng, width).abs()
    return Node(Op.SUM_BY_ID, (width, tokens), inputs)


def embed(rng: Rng, count: int) -> Node:
    tokens, width = _shape(rng, count)
    vocabulary = size(rng, 1, 20)
    ids = _ids(rng, tokens, vocabulary)
    return Node(Op.EMBED, (width,), (ids, reals(rng, vocabulary * width)))


def _sums(rng: Rng, wide: int, count: int, bits: int = 53) -> Tensor:
    return integers32(rng, count) if wide == 4 else integers64(rng, count) >> (64 - bits)


def rescale(rng: Rng, count: int) -> Node:
    (rows, columns), wide = _shape(rng, count), int(rng.choice([4, 8]))
    inputs = _sums(rng, wide, rows * columns), reals(rng, rows)
    if rng.random() < 0.5:
        return Node(Op.RESCALE, (columns, wide, 0), inputs)
    return Node(Op.RESCALE, (columns, wide, 1), (*inputs, reals(rng, columns)))


def rescale_stacked(rng: Rng, count: int) -> Node:
    (rows, columns), wide = _shape(rng, count), int(rng.choice([4, 8]))
    high, low = (_sums(rng, wide, rows * columns) for _ in range(2))
    return Node(Op.RESCALE_STACKED, (columns, wide), (high, low, reals(rng, rows)))


def combine_split(rng: Rng, count: int) -> Node:
    wide = int(rng.choice([4, 8]))
    return Node(Op.COMBINE_SPLIT, (wide,), tuple(_sums(rng, wide, count, 36) for _ in range(3)))


# ---- family 2 ------------------------------------------------------------------------------------


def _tile(rng: Rng, count: int) -> tuple[int, int, int]:
    """Slices, queries and keys of about so many elements."""
    queries, keys = size(rng, 1, 12), size(rng, 1, 12)
    return max(1, count // (queries * keys)), queries, keys


def _grouped(rng: Rng, slices: int) -> tuple[int, int]:
    """Slices, of which so many share a key head."""
    group = size(rng, 1, 3)
    return -(-slices // group) * group, group


def _starts(rng: Rng) -> tuple[int, int]:
    """q0 and k0: tiles on the diagonal, beside it and far from it."""
    return int(rng.choice([0, 3, 20])), int(rng.choice([0, 3, 5]))


def _integers(rng: Rng, count: int, most: int) -> Tensor:
    drawn = rng.integers(-most, most + 1, count)
    ends = rng.choice([most, -most, 0], count)
    return torch.from_numpy(np.where(rng.random() < 0.5, drawn, ends).astype(np.float32))


def dot_f32(rng: Rng, count: int) -> Node:
    slices, t, s = _tile(rng, count)
    slices, group = _grouped(rng, slices)
    inner = int(rng.choice([1, 7, 8, 16, 70, 128, 512]))
    levels = operand_levels(inner)
    # The rows of either operand begin somewhere in their slices, and overlap.
    a0, ai, b0, bj = size(rng, 0, 5), size(rng, 0, 2 * inner), size(rng, 0, 5), size(rng, 0, inner)
    ag, bg = a0 + (t - 1) * ai + inner, b0 + (s - 1) * bj + inner + 3
    a, b = _integers(rng, slices * ag, levels), _integers(rng, slices // group * bg, levels)
    return Node(Op.DOT_F32, (t, s, inner, group, a0, ag, ai, b0, bg, bj), (a, b))


def tile_steps(op: Op) -> Draw:
    """SCORE or SHARE_GRADIENT."""

    def draw(rng: Rng, count: int) -> Node:
        slices, t, s = _tile(rng, count)
        slices, group = _grouped(rng, slices)
        q0, k0 = _starts(rng)
        length = max(q0 + t, k0 + s) + size(rng, 0, 3)
        x = _integers(rng, slices * t * s, 2**24)
        of_queries, of_keys = reals(rng, slices * length), reals(rng, slices // group * length)
        return Node(op, (t, s, length, group, q0, k0), (x, of_queries, of_keys))

    return draw


def attention_weight(rng: Rng, count: int) -> Node:
    slices, t, s = _tile(rng, count)
    q0, k0 = _starts(rng)
    z = reals(rng, slices * t * s)
    rows = z.view(-1, s)
    peaks = torch.where(torch.from_numpy(rng.random(len(rows)) < 0.6), rows.amax(1) + 0.0, 0.0)
    return Node(Op.ATTENTION_WEIGHT, (t, s, q0, k0), (z, peaks))


def inverse_total(rng: Rng, count: int) -> Node:
    factor = float(rng.choice([2.0**-23, 2.0**-30]))
    return Node(Op.INVERSE_TOTAL, (word64(factor),), (integers64(rng, count),))


def weighted(rng: Rng, count: int) -> Node:
    slices, m, n = _tile(rng, count)
    slices, group = _grouped(rng, slices)
    x0, xi, xj = size(rng, 0, 5), size(rng, 1, 13), size(rng, 1, 13)
    v0, vi = size(rng, 0, 5), size(rng, 0, 1)
    vj = 1 - vi
    xg, vg = x0 + (m - 1) * xi + (n - 1) * xj + 1, v0 + (m - 1) * vi + (n - 1) * vj + 2
    words = m, n, group, x0, xg, xi, xj, v0, vg, vi, vj
    return Node(Op.WEIGHTED, words, (reals(rng, slices * xg), reals(rng, slices // group * vg)))


def add_scaled(rng: Rng, count: int) -> Node:
    rows, columns = _shape(rng, count)
    inputs = _integers(rng, rows * columns, 2**24), reals(rng, rows)
    if rng.random() < 0.3:
        return Node(Op.ADD_SCALED, (columns, 1), inputs)
    return Node(Op.ADD_SCALED, (columns, 0), (reals(rng, rows * columns), *inputs))


def share(rng: Rng, count: int) -> Node:
    slices, t, s = _tile(rng, count)
    q0, k0 = _starts(rng)
    seen = k0 + s + size(rng, 0, 5)
    inputs = reals(rng, slices * t * seen), reals(rng, slices * t)
    return Node(Op.SHARE, (t, s, seen, q0, k0), inputs)


def slope(rng: Rng, count: int) -> Node:
    slices, t, s = _tile(rng, count)
    q0, k0 = _starts(rng)
    length = q0 + t + size(rng, 0, 3)
    tiles = reals(rng, slices * t * s), reals(rng, slices * t * s)
    return Node(Op.SLOPE, (t, s, length, q0, k0), (*tiles, reals(rng, slices * length)))


NODES: Final[dict[int, Draw]] = {
    Op.VIEW: view,
    Op.CONCAT: concat,
    Op.MAX_ABS: maxima(Op.MAX_ABS),
    Op.MAX: maxima(Op.MAX),
    Op.GRID_UP: grids(Op.GRID_UP),
    Op.GRID_STEP: grids(Op.GRID_STEP),
    Op.POWER_GRID: power_grid,
    Op.QUANTISE_I8: on_grid(Op.QUANTISE_I8, (127,)),
    Op.QUANTISE_F32: on_grid(Op.QUANTISE_F32, (127, 511, operand_levels(128))),
    Op.SPLIT_HIGH: on_grid(Op.SPLIT_HIGH, (SPLIT_LEVELS,)),
    Op.SPLIT_LOW: on_grid(Op.SPLIT_LOW, (SPLIT_LEVELS,)),
    Op.DOT_I8: dot_i8,
    Op.SUM_I32: sums(Op.SUM_I32),
    Op.SUM_I64: sums(Op.SUM_I64),
    Op.SUM_GRID: sums_on_grid(Op.SUM_GRID, (2**22, 0)),
    Op.SUM_SQUARES: sums_on_grid(Op.SUM_SQUARES, (2**16, 2**18)),
    Op.SUM_ROUND: sum_round,
    Op.SORT_KEYS: sort_keys,
    Op.SORT_STAGE: sort_stage,
    Op.LOWER_BOUND: lower_bound,
    Op.GATHER_GRID: gather_grid,
    Op.PREFIX: sums(Op.PREFIX),
    Op.SUM_BY_ID: sum_by_id,
    Op.EMBED: embed,
    Op.COUNT_TARGETS: sums(Op.COUNT_TARGETS),
    Op.RESCALE: rescale,
    Op.RESCALE_STACKED: rescale_stacked,
    Op.COMBINE_SPLIT: combine_split,
    Op.COPY: copy,
    Op.ADD_BEFORE: add_before,
    Op.DOT_F32: dot_f32,
    Op.SCORE: tile_steps(Op.SCORE),
    Op.ATTENTION_WEIGHT: attention_weight,
    Op.INVERSE_TOTAL: inverse_total,
    Op.WEIGHTED: weighted,
    Op.ADD_SCALED: add_scaled,
    Op.SHARE: share,
    Op.SHARE_GRADIENT: tile_steps(Op.SHARE_GRADIENT),
    Op.SLOPE: slope,
}
