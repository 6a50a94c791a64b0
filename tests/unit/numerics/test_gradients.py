"""Every exact operation's value and gradient against binary64 autograd of the plain formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own convention)
from tests.support.engines import exact_ops
from torch import Tensor

from atoll.numerics.kernels.engine import default_engine
from atoll.numerics.kernels.exact import ExactOps

OPS = ExactOps(default_engine())
REFERENCE = exact_ops("fp64", "eager")
B, T, D, H, K = 2, 150, 32, 4, 2


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def silu_gate(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def shared_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = (t.repeat_interleave(H // K, dim=1) for t in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


TARGETS = torch.randint(0, 40, (B, T), generator=torch.Generator().manual_seed(7))
MASKED = torch.where(TARGETS % 3 == 0, TARGETS, -7)
IDS = torch.randint(0, 9, (B, T), generator=torch.Generator().manual_seed(8))
Function = Callable[..., Tensor]
CASES: dict[str, tuple[Function, Function, list[Tensor], float]] = {
    "linear": (OPS.linear, F.linear, [draw(B, T, D), draw(48, D, seed=1)], 0.02),
    "head": (OPS.head, F.linear, [draw(B, T, D), draw(40, D, seed=1)], 2e-4),
    "rms_norm": (
        lambda x, w: OPS.rms_norm(x, w, 1e-5),
        lambda x, w: F.rms_norm(x, (D,), w, 1e-5),
        [draw(B, T, D), draw(D, seed=1)],
        2e-5,
    ),
    "swiglu": (OPS.swiglu, silu_gate, [draw(B, T, D), draw(B, T, D, seed=1)], 2e-6),
    "squared_relu": (OPS.squared_relu, lambda x: F.relu(x).square(), [draw(B, T, D)], 1e-7),
    "attention": (
        partial(OPS.attention, context=T),
        shared_heads,
        [draw(B, H, T, 16), draw(B, K, T, 16, seed=1), draw(B, K, T, 16, seed=2)],
        0.02,
    ),
    "cross_entropy": (
        lambda x: OPS.cross_entropy(x, TARGETS, torch.ones(B, T)),
        lambda x: F.cross_entropy(x.flatten(0, 1), TARGETS.flatten()),
        [draw(B, T, 40)],
        2e-6,
    ),
    "cross_entropy of some targets": (
        lambda x: OPS.cross_entropy(x, TARGETS, (MASKED >= 0).float()),
        lambda x: F.cross_entropy(x.flatten(0, 1), MASKED.flatten(), ignore_index=-7),
        [draw(B, T, 40)],
        2e-6,
    ),
    "embedding": (
        lambda table: OPS.embedding(IDS, table),
        lambda table: F.embedding(IDS, table),
        [draw(9, D)],
        2e-6,
    ),
}


def with_gradients(function: Function, inputs: list[Tensor]) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in inputs]
    value = function(*leaves)
    weights = torch.cos(torch.arange(value.numel(), dtype=value.dtype)).view(value.shape)
    return [value.detach(), *torch.autograd.grad((value * weights).sum(), leaves)]


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_agree_with_binary64(name: str) -> None:
    exact, plain, inputs, bound = CASES[name]
    ours = with_gradients(exact, inputs)
    theirs = with_gradients(plain, [t.double() for t in inputs])
    for index, (found, expected) in enumerate(zip(ours, theirs, strict=True)):
        error = (found.double() - expected).norm() / expected.norm()
        assert error <= bound, f"output {index}: {error:.2e}"


@pytest.mark.parametrize(
    "name", ["linear", "head", "rms_norm", "swiglu", "squared_relu", "attention"]
)
def test_the_plain_engine_gives_the_same_bits(name: str) -> None:
    inputs = CASES[name][2]
    extra = {"rms_norm": {"eps": 1e-5}, "attention": {"context": T}}.get(name, {})

    def through(ops: ExactOps) -> list[Tensor]:
        return with_gradients(partial(getattr(ops, name), **extra), inputs)

    for found, expected in zip(through(OPS), through(REFERENCE), strict=True):
        assert torch.equal(found, expected)


def test_several_linears_are_each_ones_product() -> None:
    x, weights = draw(B, T, D), [draw(n, D, seed=n) for n in (8, 4, 4)]
    together = OPS.linears(x, weights)
    for product, weight in zip(together, weights, strict=True):
        assert torch.equal(product, OPS.linear(x, weight))


def test_attention_sees_nothing_ahead_and_works_in_any_number_of_slices() -> None:
    q, k, v = CASES["attention"][2]
    whole = with_gradients(partial(OPS.attention, context=T), [q, k, v])
    changed = [t.clone() for t in (q, k, v)]
    for t in changed:
        t[:, :, 140:] += 1.0
    assert torch.equal(OPS.attention(*changed, context=T)[:, :, :140], whole[0][:, :, :140])
    for slices in (1, 3, 1000):
        ops = ExactOps(replace(OPS.engine, slices=slices))
        for found, expected in zip(
            with_gradients(partial(ops.attention, context=T), [q, k, v]), whole, strict=True
        ):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_stays_so(poison: float) -> None:
    x = draw(1, 3, D)
    x[0, 1, 5] = poison
    normed = OPS.rms_norm(x, torch.ones(D), 1e-5)
    assert not OPS.linear(normed, draw(8, D))[0, 1].isfinite().all()
    logits = OPS.head(normed, draw(40, D))
    assert not OPS.cross_entropy(logits, TARGETS[:1, :3], torch.ones(1, 3)).isfinite()
    assert not torch.tensor(OPS.global_norm([x])).isfinite()
