"""What kernels give for ∞, NaN, −0 and overflow: SPEC.md's section, in both implementations."""

from __future__ import annotations

import math

import pytest
import torch
from tests.support.engines import exact_ops
from torch import Tensor

from atoll.numerics.kernels.build import load_library
from atoll.numerics.kernels.compiled import CompiledKernels
from atoll.numerics.kernels.interface import Kernels
from atoll.numerics.kernels.reference import TorchKernels

ONE_NAN = 0x7FC00000
COMPILED, PLAIN = CompiledKernels(load_library()), TorchKernels()
BOTH = pytest.mark.parametrize("kernels", [COMPILED, PLAIN], ids=["compiled", "eager"])
ENGINES = pytest.mark.parametrize("name", ["compiled", "eager"])
INF, NAN = math.inf, math.nan


def words(x: Tensor) -> list[int]:
    return x.contiguous().view(torch.int32).flatten().tolist()


def floats(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int64).to(torch.int32).view(torch.float32)


@BOTH
@pytest.mark.parametrize("word", [0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFC00000])
def test_every_nan_is_written_as_one_word(kernels: Kernels, word: int) -> None:
    x = torch.cat((floats(word), torch.ones(1))).view(2, 1)
    one = torch.ones(2, 1)
    assert words(kernels.squared_relu(x))[0] == ONE_NAN
    assert words(kernels.swiglu(x, one))[0] == ONE_NAN
    assert words(kernels.swiglu(one, x))[0] == ONE_NAN
    assert words(kernels.quantise_rows(x, split=False).step)[0] == ONE_NAN
    assert words(kernels.momentum(x, one, 0.5, 0.5))[0] == ONE_NAN
    assert words(kernels.row_dot(x, one))[0] == ONE_NAN


@BOTH
@pytest.mark.parametrize("odd", [INF, -INF, NAN])
def test_a_row_that_is_not_finite_has_zeros_and_a_step_that_is_not(
    kernels: Kernels, odd: float
) -> None:
    x = torch.tensor([[1.0, odd, -3.0], [1.0, 2.0, -3.0]])
    for split in (False, True):
        grid = kernels.quantise_rows(x, split)
        assert grid.high[0].tolist() == [0, 0, 0]
        assert grid.step[0].item() == INF or words(grid.step[0]) == [ONE_NAN]
        assert grid.step[1].isfinite()
    integers, _ = kernels.quantise_levels(x, 362)
    assert words(integers[0]) == [0, 0, 0]


@BOTH
def test_integers_have_no_negative_zero(kernels: Kernels) -> None:
    integers, _ = kernels.quantise_levels(torch.tensor([[1.0, -0.0, -1e-9]]), 362)
    assert words(integers) == [*words(torch.tensor([362.0])), 0, 0]


@BOTH
@pytest.mark.parametrize("zeros", [(0.0, -0.0), (-0.0, 0.0), (-0.0, -0.0)])
def test_a_maximum_of_zeros_is_positive(kernels: Kernels, zeros: tuple[float, float]) -> None:
    scores, one = torch.tensor([[zeros]]), torch.ones(1, 1, 1)
    _, peak, _ = kernels.attention_weights(scores.clone(), one, torch.ones(1, 2, 1), 1)
    assert words(peak) == [0]
    _, _, picked = kernels.softmax_loss(scores[0], torch.tensor([0]))
    assert words(picked) == words(torch.tensor([zeros[0]]))  # −0 − (+0) is −0


@ENGINES
@pytest.mark.parametrize("odd", [INF, -INF, NAN])
def test_a_norm_over_one_odd_element_is_not_a_number(name: str, odd: float) -> None:
    norm = exact_ops(kernels=name).global_norm([torch.ones(3), torch.tensor([1, odd])])
    assert math.isnan(norm)


@BOTH
def test_attentions_peak_is_over_what_is_visible(kernels: Kernels) -> None:
    """Scores below −1e30, which masked ones once had, are as good as any."""
    scores = torch.tensor([[[-3.0, 5.0], [-3.0, -2.0]]]) * 2.0**20
    step = torch.full((1, 2, 1), 2.0**80)
    weights, peak, inverse = kernels.attention_weights(scores.clone(), step, step * 2.0**-60, 0)
    assert peak.flatten().tolist() == [-3.0 * 2.0**120, -2.0 * 2.0**120]
    assert weights.tolist() == [[[1.0, 0.0], [0.0, 1.0]]]
    assert inverse.flatten().tolist() == [1.0, 1.0]


@BOTH
@pytest.mark.parametrize("keys", [127, 128, 129, 255, 256, 257, 2048])
def test_many_equal_scores_share_evenly(kernels: Kernels, keys: int) -> None:
    scores, step = torch.zeros(1, 1, keys), torch.ones(1, 1, 1)
    _, _, inverse = kernels.attention_weights(scores, step, torch.ones(1, keys, 1), keys)
    assert inverse.item() == torch.tensor(1.0 / keys).item()


@ENGINES
def test_an_infinite_weight_gives_a_loss_and_gradients_that_are_not_numbers(name: str) -> None:
    ops = exact_ops(kernels=name)
    weight = torch.ones(5, 4)
    weight[2, 1] = INF
    leaf = weight.requires_grad_()
    logits, targets = ops.head(torch.ones(1, 3, 4), leaf), torch.tensor([[0, 1, 2]])
    loss = ops.cross_entropy(logits, targets, torch.ones(1, 3))
    (gradient,) = torch.autograd.grad(loss, leaf)
    assert loss.isnan()
    assert gradient.isnan().all()


@BOTH
def test_overflow_is_infinite_and_its_row_not_a_number(kernels: Kernels) -> None:
    big = torch.full((1, 2), 2.0**100)
    assert kernels.squared_relu(big).tolist() == [[INF, INF]]
    assert words(kernels.row_dot(big, big)) == [ONE_NAN]
    normed, inverse = kernels.rms_norm(big, torch.ones(2), 1e-5)
    assert (normed.tolist(), inverse.item()) == ([[0.0, 0.0]], 0.0)
