"""Structure, grids, sums, products and embedding of the trace: the kernels' bits, part by part."""

from __future__ import annotations

import pytest
import torch
from tests.unit.numerics.trace.operations import (
    data,
    grid,
    largest,
    op,
    reference,
    same,
    total,
    transposed,
    word32,
)
from torch import Tensor

from atoll.numerics.kernels.acceptance import KINDS, next_to_halves
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.grid import (
    exact_square_sum,
    exact_sum,
    quantise,
    quantise_int8,
    quantise_split,
)
from atoll.numerics.kernels.interface import Grid
from atoll.numerics.kernels.linear import _split_product
from atoll.numerics.trace.opcodes import Op

EVERY = pytest.mark.parametrize("kind", KINDS)
BLOCK = 32
"""Smaller than a program's, so that rows have several blocks and a shorter last one."""


def product(a: Tensor, b: Tensor, inner: int, block: int = BLOCK) -> Tensor:
    """Σ of a [R, K] · b [S, K]: i64 [R·S], by partial sums."""
    parts = op(Op.DOT_I8, [b.numel() // inner, inner, block], a, b)
    count = -(-inner // block)
    sums = op(Op.SUM_I32, [count, 2], parts)
    return total(sums, -(-count // 2), 2)


@EVERY
def test_a_grid_of_rows_is_the_kernels(kind: str) -> None:
    x = data(kind, (37, 83))
    up, step = grid(x, 83, 127, BLOCK)
    expected, expected_step = quantise_int8(x, 1)
    assert same(op(Op.QUANTISE_I8, [83], x, up), expected) and same(step, expected_step)
    up, step = grid(x, 83, 362, BLOCK)
    expected, expected_step = quantise(x, 1, 362)
    assert same(op(Op.QUANTISE_F32, [83], x, up), expected) and same(step, expected_step)


@EVERY
def test_two_slices_are_the_kernels(kind: str) -> None:
    x = data(kind, (37, 83))
    up, step = grid(x, 83, 32384, BLOCK)
    high, low, expected = quantise_split(x, 1)
    assert same(op(Op.SPLIT_HIGH, [83], x, up), high) and same(op(Op.SPLIT_LOW, [83], x, up), low)
    assert same(step, expected)


@pytest.mark.parametrize("levels", [127, 362, 32384])
def test_halves_round_as_the_kernels_do(levels: int) -> None:
    x = next_to_halves((16, 100), levels, torch.Generator().manual_seed(1))
    up, _ = grid(x, 100, levels)
    if levels == 32384:
        high, low, _ = quantise_split(x, 1)
        assert same(op(Op.SPLIT_HIGH, [100], x, up), high) and same(
            op(Op.SPLIT_LOW, [100], x, up), low
        )
    else:
        assert same(op(Op.QUANTISE_F32, [100], x, up), quantise(x, 1, levels)[0])


@EVERY
def test_sums_on_grids_are_the_kernels(kind: str) -> None:
    x = data(kind, (37, 83))
    up, step = grid(x, 83, 2**22, BLOCK)
    sums = total(op(Op.SUM_GRID, [83, BLOCK], x, up), 3, 2)
    assert same(sums.double() * step.double(), exact_sum(x, 1))
    up, step = grid(x, x.numel(), 2**16, BLOCK)
    squares = op(Op.SUM_SQUARES, [x.numel(), BLOCK], x, up)
    integer, expected = exact_square_sum(x)
    assert int(total(squares, squares.numel(), 7)) == int(integer) and same(step, expected)


@pytest.mark.parametrize(
    ("most", "exponent"),
    [
        (1.0, 0), (1.9999999, 0), (2.0, 1), (3.4028235e38, 127), (2.0**-79, -79),
        (2.0**-80, -80), (2.0**-80 * 0.999, -80), (2.0**-149, -80), (0.0, -80),
    ],
)  # fmt: skip
def test_a_grid_of_a_power_of_two_holds_forty_bits(most: float, exponent: int) -> None:
    x = torch.tensor([most])
    assert op(Op.POWER_GRID, [1], x).tolist() == [2.0 ** (39 - exponent)]
    assert op(Op.POWER_GRID, [0], x).tolist() == [2.0 ** (exponent - 39)]


def test_what_is_not_finite_has_a_grid_of_zeros() -> None:
    x = torch.tensor([torch.inf, torch.nan])
    up, step = (op(Op.POWER_GRID, [direction], x) for direction in (1, 0))
    assert up.tolist() == step.tolist() == [0.0, 0.0]
    assert op(Op.SUM_GRID, [1, 1], x, up).tolist() == [0, 0]


@EVERY
def test_a_maximum_is_the_table_s(kind: str) -> None:
    x = data(kind, (37, 83))
    assert same(largest(Op.MAX, x, 83, BLOCK), x.amax(1) + 0.0)
    assert same(largest(Op.MAX, -x.abs(), 83, BLOCK), (-x.abs()).amax(1) + 0.0)


@EVERY
def test_weights_are_summed_as_in_the_loss(kind: str) -> None:
    weights = (-data(kind, (9, 83)).abs()).exp()
    weights[0, 0] = torch.nan
    parts = op(Op.SUM_ROUND, [83, BLOCK, word32(2.0**30)], weights)
    integers = torch.round(weights.double() * 2.0**30).nan_to_num()
    assert torch.equal(total(parts, 3), integers.sum(1).long())


def linear_gradient(x: Tensor, weight: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """dx and dW by L3 to L5, of x [N, I], weight [O, I], g [N, O]."""
    (tokens, inner), outputs = x.shape, len(weight)
    (up_x, sx), (up_w, sw) = grid(x, inner, 127), grid(weight, inner, 127)
    integers_x, integers_w = (
        op(Op.QUANTISE_I8, [inner], x, up_x),
        op(Op.QUANTISE_I8, [inner], weight, up_w),
    )
    rows = (g * sw).contiguous()
    columns = transposed(g * sx[:, None], tokens, outputs)
    results = []
    for line, size, kept in ((rows, outputs, integers_w), (columns, tokens, integers_x)):
        up, step = grid(line, size, 32384)
        across = transposed(kept, size, inner, width=1)
        high, low = (
            product(op(c, [size], line, up), across, size) for c in (Op.SPLIT_HIGH, Op.SPLIT_LOW)
        )
        results.append(op(Op.RESCALE_STACKED, [inner, 8], high, low, step))
    return results[0], results[1]


@EVERY
def test_a_linear_is_the_kernels_forward_and_backward(kind: str) -> None:
    x, weight, g = (data(kind, s, i) for i, s in enumerate(((37, 83), (70, 83), (37, 70))))
    x, weight = x.requires_grad_(), weight.requires_grad_()
    y = ExactOps(reference()).linear(x[None], weight)
    y.backward(g[None])
    plain, of = x.detach(), weight.detach()
    (up_x, sx), (up_w, sw) = grid(plain, 83, 127), grid(of, 83, 127)
    sums = product(op(Op.QUANTISE_I8, [83], plain, up_x), op(Op.QUANTISE_I8, [83], of, up_w), 83)
    assert same(op(Op.RESCALE, [70, 8, 1], sums, sx, sw), y.detach())
    assert same(op(Op.RESCALE, [70, 4, 1], sums.to(torch.int32), sx, sw), y.detach())
    dx, dw = linear_gradient(plain, of, g)
    assert x.grad is not None and same(dx, x.grad)
    assert weight.grad is not None and same(dw, weight.grad)


def split_grid(x: Tensor) -> Grid:
    columns = x.shape[1]
    up, step = grid(x, columns, 32384)
    high, low = (op(code, [columns], x, up).view(x.shape) for code in (Op.SPLIT_HIGH, Op.SPLIT_LOW))
    return Grid(high, step[:, None], low)


@EVERY
@pytest.mark.parametrize("has_column", [0, 1])
def test_the_head_s_product_is_the_kernels(kind: str, has_column: int) -> None:
    a, b = split_grid(data(kind, (19, 83))), split_grid(data(kind, (23, 83), 1))
    across = Grid(b.high.t(), b.step.t(), b.low_slice.t())
    column = b.step.t() if has_column else torch.ones(1, 23)
    expected = _split_product(reference(), a, across, a.step, column)
    pairs = (a.high, b.high), (a.high, b.low_slice), (a.low_slice, b.high)
    wide = op(Op.COMBINE_SPLIT, [8], *(product(x, y, 83) for x, y in pairs))
    assert same(op(Op.RESCALE, [23, 8, has_column], wide, a.step, column), expected)
    narrow = op(Op.COMBINE_SPLIT, [4], *(product(x, y, 83).to(torch.int32) for x, y in pairs))
    assert torch.equal(narrow, wide)


def embedding_gradient(g: Tensor, ids: Tensor, vocabulary: int) -> Tensor:
    """E2 and E3 of g [N, D]: sorted by id, summed up to each token, and subtracted."""
    tokens, width = g.shape
    g_DN = transposed(g, tokens, width)
    up, step = grid(g_DN, tokens, 2**22)
    length = 1 << (tokens - 1).bit_length()
    keys = op(Op.SORT_KEYS, [tokens, length], ids)
    for k in (2**i for i in range(1, length.bit_length())):
        for j in (k >> i for i in range(1, k.bit_length())):
            keys = op(Op.SORT_STAGE, [k, j], keys)
    start = op(Op.LOWER_BOUND, [vocabulary, length], keys)
    gathered = op(Op.GATHER_GRID, [tokens], g_DN, up, keys)
    sums, blocks = op(Op.PREFIX, [tokens, 4], gathered), -(-tokens // 4)
    before = op(Op.PREFIX, [blocks, blocks], op(Op.SUM_I64, [tokens, 4], gathered))
    sums = op(Op.ADD_BEFORE, [tokens, 4], sums, before)
    return op(Op.SUM_BY_ID, [width, tokens], start, sums, step)


@EVERY
@pytest.mark.parametrize("tokens", [1, 3, 37, 64])
def test_an_embedding_s_gradient_is_the_kernel_s(kind: str, tokens: int) -> None:
    g = data(kind, (tokens, 5))
    ids = torch.randint(0, 11, (tokens,), generator=torch.Generator().manual_seed(tokens))
    expected = reference().kernels.embedding_gradient(g, ids, 11)
    assert same(embedding_gradient(g, ids.to(torch.int32), 11), expected)


def test_an_embedding_is_its_table_s_rows() -> None:
    table = data("not a number", (11, 5))
    ids = torch.tensor([3, 0, 10, 3], dtype=torch.int32)
    assert same(op(Op.EMBED, [5], ids, table), table[ids.long()])


def test_a_view_is_any_slice_transpose_or_repetition() -> None:
    x = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).view(2, 3, 4, 5)
    assert same(op(Op.VIEW, [4, 2, 4, 3, 5, 0, 60, 5, 20, 1], x), x.transpose(1, 2))
    assert same(op(Op.VIEW, [4, 2, 3, 2, 2, 7, 60, 20, 5, 1], x), x[:, :, 1:3, 2:4])
    assert same(op(Op.VIEW, [4, 3, 120, 1, 1, 0, 0, 1, 0, 0], x), x.flatten().repeat(3))
    part = x.flatten()[60:]  # a tensor that does not start where its memory does
    assert same(op(Op.VIEW, [4, 60, 1, 1, 1, 0, 1, 0, 0, 0], part), x[1])


def test_parts_are_put_side_by_side() -> None:
    parts = [torch.full((3, columns), columns, dtype=torch.int8) for columns in (2, 1, 5)]
    assert same(op(Op.CONCAT, [1, 2, 1, 5], *parts), torch.cat(parts, dim=1))
    assert same(op(Op.COPY, [1], parts[2]), parts[2])


def test_targets_are_counted() -> None:
    targets = torch.tensor([3, -1, 0, -4, 7, -1, -1], dtype=torch.int32)
    assert op(Op.COUNT_TARGETS, [7, 3], targets).tolist() == [2, 1, 0]
