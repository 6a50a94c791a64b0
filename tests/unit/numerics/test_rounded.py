"""Linears whose weights were rounded before, as a rank that follows is given them."""

from __future__ import annotations

import pytest
import torch
from tests.support.engines import exact_ops
from torch import Tensor

from atoll.numerics.ops import NativeOps, Ops

WIDTHS = (24, 16)


def operands() -> tuple[Tensor, list[Tensor], list[Tensor]]:
    random = torch.Generator().manual_seed(3)
    x = torch.randn(2, 5, 32, generator=random)
    weights = [torch.randn(width, 32, generator=random) for width in WIDTHS]
    return x, weights, [torch.randn(2, 5, width, generator=random) for width in WIDTHS]


def without_numbers(weights: list[Tensor]) -> list[Tensor]:
    return [torch.zeros(1, 1).expand(weight.shape) for weight in weights]


@pytest.mark.parametrize("ops", [exact_ops(), NativeOps()], ids=["exact", "native"])
@pytest.mark.parametrize("count", [1, 2])
def test_products_and_gradients_are_those_of_the_weights(ops: Ops, count: int) -> None:
    x, weights, upstream = operands()
    weights, upstream = weights[:count], upstream[:count]
    rounded = ops.freeze(weights)

    def results(leaves: list[Tensor], *, by_rounded: bool) -> list[Tensor]:
        read = x.clone().requires_grad_()
        leaves = [leaf.detach().requires_grad_() for leaf in leaves]
        products = (
            ops.rounded_linears(read, rounded, leaves) if by_rounded else ops.linears(read, leaves)
        )
        return [*products, *torch.autograd.grad(products, [read, *leaves], upstream)]

    expected = results(weights, by_rounded=False)
    given = results(without_numbers(weights), by_rounded=True)
    assert len(given) == len(expected) == 1 + 2 * count
    for one_way, other_way in zip(given, expected, strict=True):
        if isinstance(ops, NativeOps):  # one product of both, which may be added up otherwise
            torch.testing.assert_close(one_way, other_way)
        else:
            assert torch.equal(one_way.view(torch.int32), other_way.view(torch.int32))
