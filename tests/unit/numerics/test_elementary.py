"""Elementary functions against mpmath, in ulp of the fp32 result, over the whole fp32 range."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import mpmath
import pytest
import torch
from torch import Tensor

from atoll.numerics.kernels import elementary

SAMPLES = 2_000
LARGEST = math.log(torch.finfo(torch.float32).max)


def worst_ulp(got: Tensor, exact: Callable[[mpmath.mpf], mpmath.mpf], x: Tensor) -> float:
    worst = 0.0
    with mpmath.workprec(120):
        for value, result in zip(x.tolist(), got.tolist(), strict=True):
            truth = exact(mpmath.mpf(value))
            if truth == 0:
                assert result == 0
                continue
            ulp = mpmath.mpf(2) ** (mpmath.floor(mpmath.log(abs(truth), 2)) - 23)
            worst = max(worst, float(abs(mpmath.mpf(result) - truth) / ulp))
    return worst


def positive_normals(seed: int) -> Tensor:
    """fp32 with uniformly random bits: every binade of the normal range."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0x00800000, 0x7F800000, (SAMPLES,), generator=generator)
    return words.to(torch.int32).view(torch.float32)


def uniform(low: float, high: float) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return (torch.rand(SAMPLES, generator=generator) * (high - low) + low).float()


def test_exp_over_its_range() -> None:
    x = torch.cat((uniform(-86, 88.72), uniform(-1, 1), positive_normals(1)[:500].clamp_max(1e-3)))
    assert worst_ulp(elementary.exp(x), mpmath.exp, x) <= elementary.EXP_MAX_ULP


def test_exp_at_its_edges() -> None:
    assert elementary.exp(torch.tensor([LARGEST - 1e-5])).isfinite().all()
    x = torch.tensor([-torch.inf, -1e30, -86.1, 0.0, -0.0, 1e-45, 88.73, 1e30, torch.inf])
    assert elementary.exp(x).tolist() == [0, 0, 0, 1, 1, 1, torch.inf, torch.inf, torch.inf]
    assert elementary.exp(torch.tensor([torch.nan])).isnan().all()


def test_log_over_its_range() -> None:
    near_one = 1 + uniform(-1e-3, 1e-3)
    x = torch.cat((positive_normals(2), uniform(0.01, 2), near_one[near_one != 1]))
    assert worst_ulp(elementary.log(x), mpmath.log, x) <= elementary.LOG_MAX_ULP


def test_log_at_its_edges() -> None:
    got = elementary.log(torch.tensor([0.0, 1e-40, 1.0, torch.inf]))
    assert got.tolist() == [-torch.inf, -torch.inf, 0, torch.inf]
    assert elementary.log(torch.tensor([-1.0, torch.nan])).isnan().all()


def test_sigmoid_over_its_range() -> None:
    x = uniform(-85.9, 85.9)
    got = elementary.sigmoid(x)
    assert worst_ulp(got, lambda t: 1 / (1 + mpmath.exp(-t)), x) <= elementary.SIGMOID_MAX_ULP
    assert elementary.sigmoid(torch.tensor([-1e30, 1e30])).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("function", "exact", "bound"),
    [
        (elementary.sqrt, mpmath.sqrt, 0.5),
        (elementary.rsqrt, lambda t: 1 / mpmath.sqrt(t), elementary.RSQRT_MAX_ULP),
    ],
)
def test_roots_over_every_binade(
    function: Callable[[Tensor], Tensor],
    exact: Callable[[mpmath.mpf], mpmath.mpf],
    bound: float,
) -> None:
    x = positive_normals(4)
    assert worst_ulp(function(x), exact, x) <= bound


def any_finite(seed: int) -> Tensor:
    """fp32 of both signs with uniformly random bits, subnormals among them."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, 0x7F800000, (SAMPLES,), generator=generator).to(torch.int32)
    subnormal = torch.randint(1, 0x00800000, (SAMPLES // 4,), generator=generator).to(torch.int32)
    x = torch.cat((words, subnormal)).view(torch.float32)
    return torch.cat((x, -x))


def test_exp_and_sigmoid_of_any_finite_number() -> None:
    x = any_finite(5)
    inside = x[(x > elementary.EXP_UNDERFLOW) & (x < LARGEST)]
    assert worst_ulp(elementary.exp(inside), mpmath.exp, inside) <= elementary.EXP_MAX_ULP
    assert (elementary.exp(x[x < elementary.EXP_UNDERFLOW]) == 0).all()
    assert elementary.exp(x[x > LARGEST]).isinf().all()
    logistic = elementary.sigmoid(inside)
    truth = lambda t: 1 / (1 + mpmath.exp(-t))  # noqa: E731 - a formula
    assert worst_ulp(logistic, truth, inside) <= elementary.SIGMOID_MAX_ULP
    assert elementary.sigmoid(x).isfinite().all()


def test_no_result_is_subnormal() -> None:
    x = any_finite(6)
    for function in (elementary.exp, elementary.sigmoid, elementary.rsqrt):
        found = function(x.abs() if function is elementary.rsqrt else x).abs()
        assert ((found == 0) | (found >= 2.0**-126)).all()


def test_roots_of_subnormals() -> None:
    x = torch.tensor([2.0**-149, 2.0**-140, 1.1754942e-38])
    assert worst_ulp(elementary.sqrt(x), mpmath.sqrt, x) <= 0.5
    assert elementary.rsqrt(torch.zeros(1)).isinf().all()


def test_pythons_root_is_the_correctly_rounded_one() -> None:
    """Norms are rooted by it. PyTorch's binary64 root is not, and only ever narrowed."""
    generator = random.Random(4)
    for _ in range(2000):
        x = generator.randrange(1 << 52, 1 << 53) << generator.randrange(2)
        root = math.isqrt(x << 66)
        down = root.bit_length() - 53
        rounded, rest = root >> down, root & ((1 << down) - 1)
        half = 1 << (down - 1)  # an irrational root is never at a half, a rational one is whole
        assert math.sqrt(x) == math.ldexp(rounded + (rest >= half), down - 33)
