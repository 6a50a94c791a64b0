"""Compiled and plain kernels, and all routes, give one set of bits on generated inputs."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.support.engines import exact_ops

from atoll.numerics.kernels.acceptance import differences
from atoll.numerics.kernels.build import load_library
from atoll.numerics.kernels.compiled import CompiledKernels
from atoll.numerics.kernels.elementary import exp, log, rsqrt, sigmoid
from atoll.numerics.kernels.reference import TorchKernels

COMPILED, PLAIN = CompiledKernels(load_library()), TorchKernels()
FAST, SLOW = exact_ops(), exact_ops("fp64", "eager")
finite = st.floats(-(2.0**90), 2.0**90, width=32)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


@settings(max_examples=15)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 70))
def test_no_kernel_differs_in_a_bit(seed: int, rows: int) -> None:
    assert differences(COMPILED, PLAIN, seed, rows) == []


@given(arrays("f4", (5, 9), elements=finite), arrays("f4", (5, 9), elements=finite))
def test_gates_and_norms_agree_on_any_finite_input(a: object, b: object) -> None:
    x, y = torch.tensor(a), torch.tensor(b)
    assert same(COMPILED.swiglu(x, y), PLAIN.swiglu(x, y))
    assert same(COMPILED.squared_relu(x), PLAIN.squared_relu(x))
    assert same(COMPILED.squared_relu_gradient(y, x), PLAIN.squared_relu_gradient(y, x))
    gain = y[0].clone()
    for ours, theirs in zip(
        COMPILED.rms_norm(x, gain, 1e-5), PLAIN.rms_norm(x, gain, 1e-5), strict=True
    ):
        assert same(ours, theirs)


@given(arrays("f4", (4, 7), elements=finite), arrays("f4", (6, 7), elements=finite))
def test_products_agree_on_any_finite_input(a: object, b: object) -> None:
    x, w = torch.tensor(a)[None], torch.tensor(b)
    assert same(FAST.linear(x, w), SLOW.linear(x, w))
    assert same(FAST.head(x, w), SLOW.head(x, w))


@given(st.permutations(range(24)), st.integers(0, 2**31))
def test_sums_do_not_depend_on_order(order: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(24, 6, generator=generator)
    dot = FAST.engine.kernels.row_dot
    assert same(dot(x.T.contiguous(), x.T.contiguous()), dot(*[x[order].T.contiguous()] * 2))
    assert FAST.global_norm([x]) == FAST.global_norm([x[order]])


@given(st.integers(0, 2**32 - 1))
def test_elementary_functions_are_monotone_and_in_range(word: int) -> None:
    bits = torch.tensor([word - (1 << 32) if word >= 1 << 31 else word], dtype=torch.int32)
    x = bits.view(torch.float32)
    if not x.isfinite():
        return
    up = torch.nextafter(x, torch.tensor([torch.inf]))
    assert exp(x) <= exp(up) * (1 + 2.0**-22)
    assert 0 <= sigmoid(x) <= 1
    if x >= 2.0**-126:
        assert log(x) <= log(up) + abs(log(up)) * 2.0**-21
        assert abs(rsqrt(x) ** 2 * x - 1) < 2.0**-20 or x > 2.0**120
