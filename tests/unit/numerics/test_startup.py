"""An engine that computes otherwise is not used, whatever made it so."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from atoll.errors import NumericsMismatch
from atoll.numerics.kernels import engine, gemm, startup
from atoll.numerics.kernels.engine import default_engine, make_engine
from atoll.numerics.kernels.gemm import ROUTES, Route, batched_product, is_exact

PRODUCT, WIDE = torch.matmul, ROUTES["fp64"].matmul


def rounding(x: Tensor, y: Tensor) -> Tensor:
    """An fp32 product that a setting lets round its operands, but for contiguous left ones."""
    if x.is_contiguous() or x.dtype != torch.float32:
        return PRODUCT(x, y)
    return PRODUCT(x.bfloat16().float(), y.bfloat16().float())


@pytest.mark.parametrize("route", [name for name, route in ROUTES.items() if is_exact(route)])
@pytest.mark.parametrize("kernels", ["compiled", "eager"])
def test_every_engine_of_this_machine_gives_the_known_step(route: str, kernels: str) -> None:
    assert dict(startup.parts(make_engine(route, kernels))) == startup.DIGESTS


def test_a_product_that_rounds_transposed_operands_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "matmul", rounding)
    assert batched_product(ROUTES["fp32"]) is gemm._batched_fp64


def test_a_product_that_passed_but_rounds_is_refused_by_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "batched_product", lambda route, device: rounding)
    monkeypatch.setattr(engine, "with_int16", lambda otherwise: otherwise)
    with pytest.raises(NumericsMismatch, match="start-up step's attention"):
        make_engine()


@pytest.mark.parametrize(("a", "b"), [(False, True), (True, False), (True, True)])
def test_a_route_is_tried_in_every_layout(a: bool, b: bool) -> None:
    """Wrong for one pair of layouts alone."""

    def odd(x: Tensor, w: Tensor) -> Tensor:
        wrong = x.is_contiguous() != a and w.is_contiguous() != b
        return WIDE(x, w) + int(wrong)

    assert not is_exact(Route("odd", odd))


def test_a_route_that_passed_but_is_wrong_is_refused_by_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong_when_wide(x: Tensor, w: Tensor) -> Tensor:
        return WIDE(x, w) + int(x.shape[0] > 300)

    monkeypatch.setitem(ROUTES, "fp64", Route("fp64", wrong_when_wide))
    assert is_exact(ROUTES["fp64"])
    with pytest.raises(NumericsMismatch, match="start-up step's linears"):
        make_engine("fp64", "eager")


def test_layouts_hold_the_same_values_in_other_positions() -> None:
    x = torch.arange(24).view(2, 3, 4)
    found = list(gemm.layouts(x))
    assert all(torch.equal(layout, x) for layout in found)
    assert len({layout.stride() for layout in found}) == 4


def test_the_step_runs_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    default_engine()
    monkeypatch.setattr(engine, "first_difference", lambda *_: "anything")
    default_engine()
    with pytest.raises(NumericsMismatch, match="anything"):
        make_engine()
