"""Integer products: every route gives the integers' own product, or is not used."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atoll.bits.kernels.gemm import (
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
    for route in ROUTES.values():
        if is_exact(route):
            assert torch.equal(route.matmul(x, w), expected)


@pytest.mark.parametrize("inner", [1, 48, FP32_SPLIT_K])
def test_the_fp32_route_is_exact_in_any_chunks(inner: int) -> None:
    assert is_exact(fp32_route(inner))


def test_chunks_that_fp32_cannot_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 1040"):
        fp32_route(FP32_SPLIT_K + 1)


def test_unknown_route_is_named() -> None:
    with pytest.raises(ValueError, match="unknown route 'int4'"):
        choose_route("int4")
