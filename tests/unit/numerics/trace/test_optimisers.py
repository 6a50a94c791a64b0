"""The optimisers' operations, put together, are the reference's kernels to the bit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from tests.unit.train.factories import small_model
from torch import Tensor

from atoll.numerics.kernels.acceptance import KINDS, sample
from atoll.numerics.kernels.gemm import ROUTES
from atoll.numerics.kernels.grid import exact_square_sum, one_nan, quantise_int8
from atoll.numerics.kernels.interface import AdamFactors, Engine
from atoll.numerics.kernels.muon import orthogonalise
from atoll.numerics.kernels.reference import TorchKernels
from atoll.numerics.ops import reference_operations
from atoll.numerics.optimisers import Update, lion
from atoll.numerics.schedule import Recipe
from atoll.numerics.trace.elementwise import OPERATIONS
from atoll.numerics.trace.floats import OPERATIONS as FLOATS
from atoll.numerics.trace.integers import OPERATIONS as INTEGERS
from atoll.protocol.method_spec import InnerSpec

KERNELS = TorchKernels()
SHAPE = 9, 14
LION = InnerSpec(
    optimizer="lion", lr="0.01", momentum="0", beta1="0.9", beta2="0.99", eps="0",
    weight_decay="0.1", dropout="0", clip="1", schedule="constant", warmup_steps=0, steps=1,
    batch=1, segment=1, micro_batch=1, lanes=1,
)  # fmt: skip


def draw(kind: str, seed: int, shape: tuple[int, ...] = SHAPE) -> Tensor:
    return sample(kind, shape, torch.Generator().manual_seed(seed))


def word32(x: float) -> int:
    return int(torch.tensor(x, dtype=torch.float32).view(torch.int32)) & 0xFFFFFFFF


def run(op: int, inputs: Sequence[Tensor], *words: int) -> Tensor:
    return (OPERATIONS | FLOATS | INTEGERS)[op](words, [x.reshape(-1) for x in inputs], 0)


def same(found: Tensor, expected: Tensor) -> None:
    assert found.dtype == expected.dtype == torch.float32
    flat = expected.reshape(-1).masked_fill(expected.reshape(-1).isnan(), torch.nan)
    assert torch.equal(found.view(torch.int32), flat.view(torch.int32))


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw(kind: str, decay: float) -> None:
    factors = AdamFactors(0.7, 0.9, 0.99, 1.7, 2.3, 1e-8, decay, 3e-3)
    p, m, g = draw("normal", 1), draw("tiny", 2), draw(kind, 3)
    v = draw(kind, 4).abs()
    expected = KERNELS.adamw(p, m, v, g, factors)
    clipped = run(0x0307, [g, double(0.7)])
    new_m = run(0x0401, [m, clipped], word32(0.9), word32(1.0 - 0.9))
    new_v = run(0x0402, [v, clipped], word32(0.99), word32(1.0 - 0.99))
    words = word32(1e-8), word32(decay)
    new_p = run(0x0403, [p, new_m, new_v, double(1.7, 2.3), double(3e-3)], *words)
    for found, whole in zip((new_p, new_m, new_v), expected, strict=True):
        same(found, whole)


@pytest.mark.parametrize("kind", KINDS)
def test_momentum_and_descent(kind: str) -> None:
    p, m, g = draw("normal", 5), draw("tiny", 6), draw(kind, 7)
    moved = run(0x0404, [m, g], word32(0.95), word32(1.0))
    same(moved, KERNELS.momentum(m, g, 0.95, 1.0))
    averaged = run(0x0404, [m, g], word32(0.95), word32(1.0 - 0.95))
    same(averaged, KERNELS.momentum(m, g, 0.95, 1.0 - 0.95))
    same(run(0x0405, [p, g, double(0.02)], word32(0.1)), p - (g + p * 0.1) * 0.02)


def test_moments_are_flushed_below_their_border_only() -> None:
    border = torch.tensor([2.0**-100, 2.0**-100 * (1 - 2.0**-24), -(2.0**-100), -(2.0**-101)])
    kept = run(0x0404, [border, torch.zeros(4)], word32(1.0), word32(1.0))
    assert kept.tolist() == [2.0**-100, 0.0, -(2.0**-100), 0.0]
    assert not kept[3].signbit()


def lion_by_trace(p: Tensor, m: Tensor, g: Tensor) -> Tensor:
    """O9 to O11 of a clipped gradient."""
    mixed = run(0x0404, [m, g], word32(0.9), word32(1.0 - 0.9))
    up = run(0x0105, [run(0x0103, [mixed], 1, 1024)], 1)
    return run(0x0405, [p, run(0x0108, [mixed, up], 1), double(0.01)], word32(0.1))


@pytest.mark.parametrize("kind", KINDS)
def test_lion(kind: str) -> None:
    p, m, g = draw("normal", 12), draw("tiny", 13), draw(kind, 14)
    p.view(-1)[:8] = torch.tensor([0.0, -0.0] * 4)
    how = Recipe(small_model(), LION, 1, reference_operations())
    stepped, _ = lion(Update(p, {"m": m}, g, 1.0, 0.01, 1, how))
    same(lion_by_trace(p, m, g), one_nan(stepped))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_sign_is_zero_to_half_of_a_grids_floor_and_where_there_is_no_grid(sign: float) -> None:
    edge, over = 2.0**-81, 2.0**-81 * (1 + 2.0**-23)
    x = sign * torch.tensor([0.0, 2.0**-99, edge, over, 2.0**-80, 1.0, 3.4e38, math.inf, math.nan])
    how = Recipe(small_model(), LION.model_copy(update={"beta1": "0"}), 1, reference_operations())
    nothing = torch.zeros_like(x)
    stepped, _ = lion(Update(nothing, {"m": nothing}, x, 1.0, 1.0, 1, how))
    assert (-sign * stepped).tolist() == [0, 0, 0, 1, 1, 1, 1, 0, 0]
    integers = run(0x0108, [x, run(0x0105, [run(0x0103, [x], 1, 1024)], 1)], 1)
    assert integers.equal(-stepped)


def grid(x: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    integers, step = quantise_int8(x.view(rows, -1), 1)
    return integers.long(), step


def product(a: Tensor, b: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """L2 of one operand with another, without the two families that it takes on a trace."""
    return (a @ b.t()).float() * (row.view(-1, 1) * column.view(1, -1))


def trace_of_muon(a: Tensor) -> Tensor:
    """Q1 to Q7 of a matrix with no more rows than columns."""
    rows, columns = a.shape
    integer, step = exact_square_sum(a)
    x = run(0x0306, [a, run(0x0406, [integer, step])], 1)
    for _ in range(5):
        n, s = grid(x, rows)
        gram = product(n, n, s, s)
        d, rest = gram.diagonal().clone(), run(0x0407, [gram], rows)
        e, f = grid(rest, rows)
        square = product(e, e, f, f)
        along = run(0x0408, [d, square], rows)
        across = run(0x0409, [rest, d, square], rows)
        w, q = grid(run(0x0306, [across, s], rows), rows)
        x = run(0x040A, [x, along, (w @ n).to(torch.int32), q], columns, 4)
    return x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(9, 14), (8, 8), (1, 5)])
def test_muon(kind: str, shape: tuple[int, int]) -> None:
    a = draw(kind, 8, shape)
    engine = Engine(ROUTES["fp64"], KERNELS, torch.matmul)
    same(trace_of_muon(a), orthogonalise(engine, a))


def test_sums_are_as_wide_as_their_word_says() -> None:
    x, along, q = draw("normal", 9), draw("normal", 10, (9,)), draw("normal", 11, (9,))
    sums = torch.randint(-(2**31), 2**31, SHAPE, generator=torch.Generator().manual_seed(12))
    wide = run(0x040A, [x, along, sums, q], SHAPE[1], 8)
    same(wide, x * along[:, None] + sums.float() * q[:, None])
    same(run(0x040A, [x, along, sums.to(torch.int32), q], SHAPE[1], 4), wide)


@pytest.mark.parametrize(("integer", "step"), [(0, 1.0), (1, 2.0**-60), (1, 2.0**-61)])
def test_a_small_matrix_is_scaled_as_if_it_were_larger(integer: int, step: float) -> None:
    scale = run(0x0406, [torch.tensor([integer]), torch.tensor([step])])
    assert scale.item() == 2.0**60
