"""Integer products: every route gives the integers' own product, or is not used."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.engines import exact_routes

from atoll.numerics.kernels import gemm
from atoll.numerics.kernels.gemm import (
    FP32_SPLIT_K,
    ROUTES,
    Route,
    choose_route,
    fp32_route,
    is_exact,
    matmul_reference,
)


@pytest.mark.parametrize("name", ["fp32", "fp64"])
def test_portable_routes_are_exact_everywhere(name: str) -> None:
    assert is_exact(ROUTES[name])


def test_the_chosen_route_is_exact() -> None:
    assert is_exact(choose_route())


def test_a_saturating_route_is_refused() -> None:
    # What oneDNN does without VNNI: pairs of products summed in int16 with saturation.
    def saturating(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ROUTES["fp64"].matmul(x, w).clamp(-32768, 32767)

    assert not is_exact(Route("saturating", saturating))


def test_products_in_blocks_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "_FP64_BLOCK", 4)
    generator = torch.Generator().manual_seed(6)
    x = torch.randint(-127, 128, (9, 13), generator=generator, dtype=torch.int8)
    w = torch.randint(-127, 128, (13, 6), generator=generator, dtype=torch.int8)
    assert torch.equal(ROUTES["fp64"].matmul(x, w), matmul_reference(x, w))
    assert torch.equal(ROUTES["fp64"].matmul(x[:8], w[:, :4]), matmul_reference(x[:8], w[:, :4]))


@given(
    rows=st.integers(1, 9),
    inner=st.integers(1, 40),
    columns=st.integers(1, 9),
    seed=st.integers(0, 2**31),
    extreme=st.booleans(),
)
def test_routes_equal_the_reference(
    rows: int, inner: int, columns: int, seed: int, extreme: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-127, 128, (rows, inner), generator=generator, dtype=torch.int8)
    w = torch.randint(-127, 128, (inner, columns), generator=generator, dtype=torch.int8)
    if extreme:
        x, w = x.sign() * 127, w.sign() * 127
    expected = matmul_reference(x, w)
    for route in exact_routes().values():
        assert torch.equal(route.matmul(x, w), expected)


@pytest.mark.parametrize("name", [name for name, r in ROUTES.items() if "cpu" in r.devices])
@pytest.mark.parametrize("shape", [(1, 64, 64), (64, 1, 64), (64, 64, 1), (1, 1, 64), (1, 1, 1)])
def test_products_with_a_dimension_of_one(name: str, shape: tuple[int, int, int]) -> None:
    """`torch._int_mm` itself returns unwritten memory for some of these."""
    rows, inner, columns = shape
    generator = torch.Generator().manual_seed(7)
    x = torch.randint(1, 128, (rows, inner), generator=generator, dtype=torch.int8)
    w = torch.randint(1, 128, (inner, columns), generator=generator, dtype=torch.int8)
    expected, kept = matmul_reference(x, w), []
    for left in every_stride_of_ones(x):
        for right in every_stride_of_ones(w):
            kept.append(ROUTES[name].matmul(left, right))  # so that none is given another's memory
            assert torch.equal(kept[-1], expected), (left.stride(), right.stride())


def every_stride_of_ones(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """The same matrix, by rows or by columns, with various strides of its dimensions of size 1."""
    for stride in (x.stride(), x.mT.clone(memory_format=torch.contiguous_format).mT.stride()):
        for of_ones in (0, 1, 3, 1000):
            strides = [of_ones if n == 1 else s for n, s in zip(x.shape, stride, strict=True)]
            placed = torch.zeros(x.numel() + 1, dtype=x.dtype).as_strided(x.shape, strides)
            yield placed.copy_(x)


@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("of_weights", [False, True])
def test_a_route_that_leaves_results_unwritten_is_refused(dimension: int, of_weights: bool) -> None:
    """As PyTorch does where oneDNN refuses a stride: memory is what was there before.

    That is the right product where the one before it was, and was given back.
    """
    kept: dict[torch.Size, tuple[torch.Tensor, weakref.ref[torch.Tensor]]] = {}

    def unwritten(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        operand, result = w if of_weights else x, ROUTES["fp64"].matmul(x, w)
        if operand.shape[dimension] == 1 and operand.stride(dimension) == 1:
            values, last = kept.get(result.shape, (result, None))
            is_free = last is not None and last() is None
            result = values.clone() if is_free else torch.full_like(result, -1)
        kept[result.shape] = result.clone(), weakref.ref(result)
        return result

    assert not is_exact(Route("unwritten", unwritten))


@pytest.mark.parametrize("inner", [1, 48, FP32_SPLIT_K])
def test_the_fp32_route_is_exact_in_any_chunks(inner: int) -> None:
    assert is_exact(fp32_route(inner))


def test_chunks_that_fp32_cannot_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 1040"):
        fp32_route(FP32_SPLIT_K + 1)


@pytest.mark.parametrize(("rounded_to", "exact"), [(torch.float32, True), (torch.bfloat16, False)])
def test_bf16_is_exact_where_its_products_are_added_and_kept_in_fp32(
    monkeypatch: pytest.MonkeyPatch, rounded_to: torch.dtype, exact: bool
) -> None:
    """By a product as a GPU's units for matrices make it, and by one as a CPU makes it."""

    def product(x: torch.Tensor, w: torch.Tensor, *, out_dtype: torch.dtype) -> torch.Tensor:
        assert (x.dtype, w.dtype) == (torch.bfloat16, torch.bfloat16)
        assert x.shape[1] <= FP32_SPLIT_K
        return (x.float() @ w.float()).to(rounded_to).to(out_dtype)

    monkeypatch.setattr(torch, "mm", product)
    assert is_exact(replace(ROUTES["bf16"], devices=("cpu",))) is exact


def test_bf16_is_not_tried_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends_the_process(*_: object, **__: object) -> torch.Tensor:
        raise AssertionError

    monkeypatch.setattr(torch, "mm", ends_the_process)
    with pytest.raises(ValueError, match="'bf16' gives wrong products on this machine"):
        choose_route("bf16")


def test_a_product_that_this_torch_has_not_is_refused() -> None:
    """Before PyTorch 2.8 a product of bf16 takes no `out_dtype`."""

    def unknown(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, w, out_kind=torch.float32)  # type: ignore[call-overload,no-any-return]

    assert not is_exact(Route("bf16", unknown))


def test_unknown_route_is_named() -> None:
    with pytest.raises(ValueError, match="unknown route 'int4'"):
        choose_route("int4")
