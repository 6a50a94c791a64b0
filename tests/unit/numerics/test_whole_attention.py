"""Attention at once instead of tile by tile: used where it gives the tiles' bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from structlog.testing import capture_logs
from tests.support.engines import engine_of
from torch import Tensor

from atoll.numerics.kernels import engine as engines
from atoll.numerics.kernels.acceptance import attention_differences
from atoll.numerics.kernels.attention import _backward, _forward
from atoll.numerics.kernels.build import BuildFailed
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.interface import CPU, Engine, Incoming, Operands

TILES = engine_of("fp64", "eager")


class Whole:
    """What a GPU's programs do, by tiles of fp32: as asked for, or with one number off."""

    def __init__(self, wrong: str = "", widest: int = 128) -> None:
        self.wrong, self.widest, self.passes = wrong, widest, 0

    def holds(self, width: int) -> bool:
        return width <= self.widest

    def forward(self, of: Operands) -> tuple[Tensor, Tensor, Tensor]:
        assert of.q.dtype == of.k.dtype == of.v.dtype == torch.float16
        self.passes += 1
        output, peak, inverse = _forward(TILES, wide(of))
        if self.wrong == "output":
            output[0, -1, 0] = output[0, -1, 0].nextafter(torch.tensor(9.0))
        if self.wrong == "compiler":
            raise BuildFailed("out of resources: shared memory")
        return output, peak, inverse

    def backward(self, of: Operands, incoming: Incoming) -> tuple[Tensor, Tensor, Tensor]:
        assert incoming.g.dtype == torch.float16
        dq, dk, dv = _backward(TILES, wide(of), replace(incoming, g=incoming.g.float()))
        if self.wrong == "gradient":
            dk[0, -1, 0] = dk[0, -1, 0].nextafter(torch.tensor(9.0))
        return dq, dk, dv


def wide(of: Operands) -> Operands:
    return replace(of, q=of.q.float(), k=of.k.float(), v=of.v.float())


def attended(engine: Engine, width: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(width)
    q, k, v, g = (torch.randn(2, h, 150, width, generator=generator) for h in (4, 2, 2, 4))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    value = ExactOps(engine).attention(*leaves, context=150)
    return [value.detach(), *torch.autograd.grad(value, leaves, g)]


@pytest.mark.parametrize("wrong", ["output", "gradient"])
def test_the_last_bit_of_one_number_is_told_apart(wrong: str) -> None:
    found = attention_differences(Whole(wrong), CPU, 16)
    hidden = ("infinite", "not a number")  # where that number may be NaN
    assert len([each for each in found if not any(kind in each for kind in hidden)]) == 6
    assert attention_differences(Whole(), CPU, 16) == []


def test_the_first_use_may_be_one_that_keeps_no_gradients() -> None:
    tried = engines._Tried(Whole(), CPU)
    with torch.inference_mode():
        assert tried.holds(16)


@pytest.mark.parametrize("wrong", ["", "output", "gradient", "compiler"])
def test_it_is_tried_once_at_each_width_and_used_where_it_is_right(wrong: str) -> None:
    whole = Whole(wrong)
    tried = engines._Tried(whole, CPU)
    engine = replace(TILES, attention=tried)
    with capture_logs() as logs:
        results = [attended(engine, 16), attended(engine, 16)]
    assert all(
        torch.equal(*pair) for r in results for pair in zip(r, attended(TILES, 16), strict=True)
    )
    assert len(logs) == (1 if wrong else 0)
    before = whole.passes
    attended(engine, 16)
    assert whole.passes - before == (0 if wrong else 1)


def test_heads_too_wide_for_it_go_tile_by_tile() -> None:
    whole = Whole(widest=16)
    engine = replace(TILES, attention=engines._Tried(whole, CPU))
    pairs = zip(attended(engine, 17), attended(TILES, 17), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    assert whole.passes == 0


def test_a_gpu_without_tensor_cores_that_triton_knows_has_the_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    assert engines._attention_on(torch.device("cuda")) is None
