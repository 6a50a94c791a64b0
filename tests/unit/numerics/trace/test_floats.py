"""Operations of the trace, put together, are the reference's kernels to the bit."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from atoll.numerics.kernels.acceptance import KINDS, sample
from atoll.numerics.kernels.grid import SUM_LEVELS, exact_square_sum, one_nan, quantise
from atoll.numerics.kernels.philox import Mask
from atoll.numerics.kernels.pointwise import Bias, CrossEntropy
from atoll.numerics.kernels.reference import NORM_LEVELS, TorchKernels
from atoll.numerics.schedule import clip_scale
from atoll.numerics.trace import elementwise, floats
from atoll.numerics.trace.integers import float32, float64

OPERATIONS = floats.OPERATIONS | elementwise.OPERATIONS
KERNELS = TorchKernels()
INF, NAN = float("inf"), float("nan")
ROWS, COLUMNS = 7, 12
SPECIAL = torch.tensor(
    [
        0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x0D800000,
        0x0D7FFFFF, 0x3F800000, 0xBF800000, 0x3F000000, 0xC2AC0000, 0xC2AC0001, 0x42B17217,
        0x42B17218, 0x42B20000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000,
        0xFFC00001,
    ],
    dtype=torch.int64,
).to(torch.int32).view(torch.float32)  # fmt: skip
"""Both sides of every border that the lines have."""
ALL_KINDS = [*KINDS, "special"]


def draw(kind: str, shape: tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if kind != "special":
        return sample(kind, shape, generator)
    return SPECIAL[torch.randint(0, len(SPECIAL), shape, generator=generator)]


def word32(x: float) -> int:
    """The bits of x rounded to binary32."""
    return int(torch.tensor(x, dtype=torch.float32).view(torch.int32)) & 0xFFFFFFFF


def word64(x: float) -> int:
    return int(struct.unpack(">Q", struct.pack(">d", x))[0])


def run(op: int, inputs: Sequence[Tensor], *words: int, iteration: int = 0) -> Tensor:
    result = OPERATIONS[op](words, [x.reshape(-1) for x in inputs], iteration)
    assert result.dim() == 1
    return result


def same(found: Tensor, expected: Tensor) -> None:
    """Equal in every bit, once the expected NaN are the one that is written."""
    assert found.dtype == expected.dtype
    kind = torch.int32 if found.element_size() == 4 else torch.int64
    flat = one_nan(expected.reshape(-1).clone())
    assert torch.equal(found.view(kind), flat.view(kind))


def grid_sum(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Σ n in int64 and s of the grid of 2²² levels."""
    integers, step = quantise(x, dim, SUM_LEVELS)
    return integers.long().sum(dim), step.flatten()


def counts(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_words_are_the_bits_of_numbers() -> None:
    assert float32(0x3FE8BA2F) == torch.tensor(1 / 0.55, dtype=torch.float32).item()
    assert float64(word64(-0.3)) == -0.3
    assert float32(word32(2.5)) == 2.5


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_bias_is_a_row_added_and_an_exact_sum(kind: str) -> None:
    x, b = draw(kind, (ROWS, COLUMNS), 1), draw("normal", (COLUMNS,), 2)
    engine = type("Engine", (), {"kernels": KERNELS})()
    leaf = b.clone().requires_grad_()
    y = Bias.apply(engine, x, leaf)  # type: ignore[no-untyped-call]
    same(run(0x0302, [x, b], COLUMNS), y.detach())
    (gradient,) = torch.autograd.grad(y, leaf, x)
    same(run(0x030B, grid_sum(x, 0), word64(1.0)), gradient)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_rms_norm_and_its_gradient(kind: str) -> None:
    x, g = draw(kind, (ROWS, COLUMNS), 3), draw("normal", (ROWS, COLUMNS), 4)
    gain = draw("normal", (COLUMNS,), 5)
    normed, inverse = KERNELS.rms_norm(x, gain, 1e-5)
    part = word64(1.0 / COLUMNS)
    integers, step = quantise(x, -1, NORM_LEVELS)
    squares = integers.long().square().sum(-1)
    r = run(0x0308, [squares, step], part, word32(1e-5))
    same(r, inverse)
    same(run(0x0309, [x, r, gain], COLUMNS), normed)

    for upper, lower in ((g, x), (x, g)):
        dx, dgain = KERNELS.rms_norm_gradient(upper, lower, inverse, gain)
        u = run(0x0305, [lower, r], COLUMNS)
        h = run(0x0306, [upper, gain], COLUMNS)
        a = run(0x030B, grid_sum(run(0x0304, [h, u]).view(ROWS, -1), 1), part)
        same(run(0x030A, [h, u, a, r], COLUMNS), dx)
        gu = run(0x0304, [upper, u]).view(ROWS, -1)
        same(run(0x030B, grid_sum(gu, 0), word64(1.0)), dgain)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_rotation(kind: str) -> None:
    x, c, s = draw(kind, (2, 3, 5, 8), 6), draw("normal", (5, 4), 7), draw(kind, (5, 4), 8)
    for sign in (1.0, -1.0):
        same(run(0x030C, [x, c, s], 5, 8, word32(sign)), KERNELS.rotate(x, c, s, sign))


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_gates(kind: str) -> None:
    gate, up, g = (draw(kind, (ROWS, COLUMNS), seed) for seed in (9, 10, 11))
    same(run(0x030D, [gate, up]), KERNELS.swiglu(gate, up))
    dgate, dup = KERNELS.swiglu_gradient(g, gate, up)
    same(run(0x030E, [g, gate, up]), dgate)
    same(run(0x030F, [g, gate]), dup)
    same(run(0x0310, [gate]), KERNELS.squared_relu(gate))
    same(run(0x0311, [g, gate]), KERNELS.squared_relu_gradient(g, gate))


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("first", [0, 3, (1 << 34) - 2])
def test_dropout_of_a_micro_batch_is_that_of_its_part_of_the_batch(kind: str, first: int) -> None:
    x, size = draw(kind, (50,), 12), 50
    mask = Mask("0.45", (0xFFFFFFFE, 7), 0xFFFFFFF1, 4, first + 3 * size)
    key = torch.tensor([-2, 7], dtype=torch.int32)
    words = mask.threshold, word32(mask.scale), mask.site, first, size
    step = counts(0x500000000 + mask.step)
    dropped = run(0x0312, [x, key, step], *words, iteration=3)
    same(dropped, KERNELS.drop(x, mask))
    same(run(0x0312, [x, key.view(torch.uint8), step], *words, iteration=3), dropped)


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("targets", [[0, 11, 5, -3, 0, 1, -1], [-1, -2, -3, -4, -5, -6, -7]])
def test_loss_and_its_gradient(kind: str, targets: list[int]) -> None:
    logits, at = draw(kind, (ROWS, COLUMNS), 13), torch.tensor(targets)
    ids, n, all_n = at.int(), counts(int((at >= 0).sum())), counts(9)
    m = (logits.amax(1) + 0.0).clone()
    w = run(0x0313, [logits, m], COLUMNS)
    whole = torch.round(w * 2.0**30).nan_to_num(0.0).long().view(ROWS, -1).sum(1)
    total = run(0x0314, [whole], word64(2.0**-30))
    losses = run(0x0315, [logits, m, total, ids], COLUMNS)
    loss = run(0x0316, [*grid_sum(losses[None], 1), n])
    scale = run(0x0317, [n, all_n])

    engine = type("Engine", (), {"kernels": KERNELS})()
    leaf = logits.clone().requires_grad_()
    expected = CrossEntropy.apply(engine, leaf, at)  # type: ignore[no-untyped-call]
    same(loss, expected.detach())
    (gradient,) = torch.autograd.grad(expected, leaf, torch.tensor(int(n) / 9))
    same(run(0x0318, [w, total, ids, scale], COLUMNS), gradient)


def test_a_batch_without_targets_has_a_factor_of_nothing() -> None:
    assert run(0x0317, [counts(0), counts(0)]).tolist() == [0.0]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_norm_and_clip(kind: str) -> None:
    parts = [draw(kind, (ROWS, COLUMNS), seed) for seed in (14, 15, 16)]
    t, total = [], 0.0
    for x in parts:
        integer, step = exact_square_sum(x)
        total += float(integer) * (float(step) * float(step))
        t = [run(0x0319, [*t, integer[None], step[None]], len(t))]
    norm = run(0x031A, t)
    same(norm, doubles(total).sqrt())
    same(run(0x031B, [norm], word64(1.5)), doubles(clip_scale(float(norm), 1.5)))


@pytest.mark.parametrize("norm", [0.0, 1.5, 1.5000000000000002, 5e-324, INF, NAN])
def test_clip_at_its_borders(norm: float) -> None:
    same(run(0x031B, [doubles(norm)], word64(1.5)), doubles(clip_scale(norm, 1.5)))


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_single_lines_round_once_and_have_one_nan(kind: str) -> None:
    a, b = draw(kind, (ROWS, COLUMNS), 17), draw(kind, (ROWS, COLUMNS), 18)

    def expect(found: Tensor, wide: Tensor) -> None:
        """fp64 holds sums and products of fp32 well enough to round them a second time."""
        same(found, wide.float())

    expect(run(0x0301, [a, b]), a.double() + b.double())
    expect(run(0x0304, [a, b]), a.double() * b.double())
    expect(run(0x0303, [a], word32(0.3)), a.double() * float32(word32(0.3)))
    expect(run(0x0307, [a, doubles(0.3)]), a.double() * float32(word32(0.3)))
    expect(run(0x0305, [a, b[:, 0].clone()], COLUMNS), a.double() * b[:, :1].double())
    expect(run(0x0306, [a, b[0]], COLUMNS), a.double() * b[0].double())
