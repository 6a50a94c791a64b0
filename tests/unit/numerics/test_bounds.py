"""No integer sum overflows at the bounds that the manifest sets, on worst-case operands."""

from __future__ import annotations

import pytest
import torch
from tests.support.engines import engine_of, exact_routes
from torch import Tensor

from atoll.numerics.kernels.engine import default_engine, make_engine
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.gemm import FP32_EXACT, INT8_MAX, ROUTES, is_exact, long_product
from atoll.numerics.kernels.interface import TILE, Engine, attention_levels
from atoll.protocol.model_spec import INNER_LIMIT

HIGH, LOW, BASE = 127, 126, 254
"""The two slices of the largest split integer, 32384."""


def engines() -> list[Engine]:
    return [engine_of(route, name) for route in exact_routes() for name in ("compiled", "eager")]


def test_the_bound_is_the_last_one_that_int32_holds() -> None:
    assert INNER_LIMIT * INT8_MAX**2 < 2**31 <= (INNER_LIMIT + 1) * INT8_MAX**2


@pytest.mark.parametrize("name", ROUTES)
def test_every_route_is_exact_at_the_bound(name: str) -> None:
    route = ROUTES[name]
    if not is_exact(route):  # then no engine uses it
        with pytest.raises(Exception, match="wrong products"):
            make_engine(name)
        return
    x = torch.full((2, INNER_LIMIT), INT8_MAX, dtype=torch.int8)
    x[1, ::3] = -INT8_MAX
    w = torch.full((INNER_LIMIT, 3), INT8_MAX, dtype=torch.int8)
    w[:, 1] *= -1
    w[1::2, 2] = -1
    assert torch.equal(route.matmul(x, w).long(), x.long() @ w.long())


@pytest.mark.parametrize("inner", [INNER_LIMIT + 1, 151_936, 2 * INNER_LIMIT + 1, 1 << 20])
@pytest.mark.parametrize("name", ROUTES)
def test_every_route_sums_more_than_int32_holds_in_parts(name: str, inner: int) -> None:
    route = ROUTES[name]
    if not is_exact(route):  # then no engine uses it
        return
    x = torch.full((2, inner), INT8_MAX, dtype=torch.int8)
    x[1, ::3] = -INT8_MAX
    w = torch.full((inner, 3), INT8_MAX, dtype=torch.int8)
    w[:, 1] *= -1
    w[1::2, 2] = -1
    found = long_product(route, x, w)
    assert found.dtype == torch.int64 and int(found[0, 0]) == inner * INT8_MAX**2
    assert torch.equal(found, x.long() @ w.long())
    assert torch.equal(long_product(route, x, w.t().contiguous().t()), found)


def test_sums_that_int32_holds_stay_int32() -> None:
    x = torch.ones(1, INNER_LIMIT, dtype=torch.int8)
    assert long_product(ROUTES["fp64"], x, x.t()).dtype == torch.int32


def test_integers_beyond_int32_are_rescaled_alike_by_every_kernel() -> None:
    generator = torch.Generator().manual_seed(2)
    limit = (1 << 20) * INT8_MAX**2
    draw = torch.randint(-limit, limit + 1, (3, 5, 40), generator=generator)
    high, middle, middle2 = draw.unbind()
    high[0, :3] = torch.tensor([limit, -limit, 0])
    middle[0, :3], middle2[0, :3] = high[0, :3], high[0, :3]
    row, column = torch.rand(5, 1, generator=generator), torch.rand(1, 40, generator=generator)
    exact = [
        [float(a * BASE**2 + (b + c) * BASE) for a, b, c in zip(*lines, strict=True)]
        for lines in zip(high.tolist(), middle.tolist(), middle2.tolist(), strict=True)
    ]
    expected = torch.tensor(exact, dtype=torch.float64).float() * (row * column)
    for engine in engines():
        found = engine.kernels.rescale_split((high, middle, middle2), row, column)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("vocabulary", [INNER_LIMIT, INNER_LIMIT + 1, 151_936, 1 << 20])
def test_a_vocabulary_at_the_bound_gives_the_heads_big_integers(vocabulary: int) -> None:
    """On constant data the middle sums of both slices are 4.3e9 together, beyond int32."""
    weight, x = torch.full((vocabulary, 2), 3.0), torch.full((1, 1, 2), 5.0)
    total = ((HIGH * BASE) ** 2 + 2 * HIGH * LOW * BASE) * vocabulary
    g = torch.full((1, 1, vocabulary), 0.5)
    for engine in engines():
        leaf = x.clone().requires_grad_()
        (dx,) = torch.autograd.grad(ExactOps(engine).head(leaf, weight), leaf, g)
        step = torch.tensor(0.5 * (3.0 / 32384), dtype=torch.float64) / 32384
        assert dx.flatten().tolist() == pytest.approx([total * step.item()] * 2, rel=1e-6)
        assert dx.flatten().tolist() == pytest.approx([1.5 * vocabulary] * 2, rel=1e-4)


def test_tokens_at_the_bound_give_a_heads_and_a_linears_gradients() -> None:
    weight, x = torch.full((3, 2), 3.0), torch.full((1, INNER_LIMIT, 2), 5.0)
    g = torch.full((1, INNER_LIMIT, 3), 0.5)
    results = []
    for engine in engines():
        ops = ExactOps(engine)
        for product in (ops.head, ops.linear):
            leaf = weight.clone().requires_grad_()
            (dw,) = torch.autograd.grad(product(x, leaf), leaf, g)
            assert dw.flatten().tolist() == pytest.approx([2.5 * INNER_LIMIT] * 6, rel=1e-4)
            results.append(dw)
    assert all(torch.equal(dw, results[i % 2]) for i, dw in enumerate(results))


@pytest.mark.parametrize("length", [2, 64, 100, 128, 4096, 1 << 17])
@pytest.mark.parametrize("width", [2, 16, 64, 128, 130, 1 << 15])
def test_attentions_products_stay_within_fp32(width: int, length: int) -> None:
    levels = attention_levels(length, width)
    assert levels <= 2048  # fp16 holds every integer up to it
    assert 1 <= levels**2 * max(width, min(TILE, length)) <= FP32_EXACT


@pytest.mark.parametrize("seed", range(3))
def test_attention_is_exact_on_slopes_and_keys_of_one_size(seed: int) -> None:
    """Equal scores and signs in step: every product of slopes and keys adds up to its bound."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.where(torch.arange(TILE) % 2 == 0, 1.0, -1.0)[:, None]
    k = signs * (1 - 0.01 * torch.rand(1, 1, TILE, 16, generator=generator))
    v = (signs * (1 - 0.02 * torch.rand(TILE, 1, generator=generator))).expand(1, 1, TILE, 16)
    k[..., :1] = signs

    def gradients(engine: Engine) -> tuple[Tensor, ...]:
        leaves = [t.clone().requires_grad_() for t in (torch.zeros_like(k), k, v)]
        value = ExactOps(engine).attention(*leaves, context=TILE)
        return torch.autograd.grad(value, leaves, torch.ones_like(k))

    exact = gradients(engine_of("fp64", "eager"))
    fast = gradients(default_engine())
    assert all(torch.equal(a, b) for a, b in zip(fast, exact, strict=True))
