"""Dropout's masks are a function of key, step, site and element, on any device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from atoll.numerics.kernels.acceptance import KINDS, sample
from atoll.numerics.kernels.build import load_library
from atoll.numerics.kernels.compiled import CompiledKernels
from atoll.numerics.kernels.engine import default_engine
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.philox import Mask, kept
from atoll.numerics.kernels.reference import TorchKernels
from atoll.numerics.ops import NativeOps

MASK = Mask("0.25", (0xDEADBEEF, 0x12345678), step=9, site=3, first=0)


def philox(counter: list[int], key: tuple[int, int]) -> list[int]:
    """Philox4x32-10 as Salmon et al. write it, in Python's integers."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        left, right = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (
            (right >> 32) ^ c1 ^ k0,
            right % 2**32,
            (left >> 32) ^ c3 ^ k1,
            left % 2**32,
        )
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


def plain_tags(mask: Mask, count: int) -> list[int]:
    """The words of elements `first` to `first + count`."""
    places = (divmod(mask.first + i, 4) for i in range(count))
    return [
        philox([block % 2**32, block >> 32, mask.step, mask.site], mask.key)[word]
        for block, word in places
    ]


@pytest.mark.parametrize("first", [0, 1, 4, 6, 2**34 - 5, 2**50 + 3])
@pytest.mark.parametrize("step", [0, 2**32 - 1])
@pytest.mark.parametrize("count", [1, 3, 64, 67])
def test_the_mask_is_philox_in_plain_integers(first: int, step: int, count: int) -> None:
    mask = replace(MASK, first=first, step=step)
    expected = torch.tensor(plain_tags(mask, count)) >= 2**30
    assert torch.equal(kept(mask, count, torch.device("cpu")), expected)
    x = sample("normal", (count,), torch.Generator().manual_seed(0))
    wanted = torch.where(expected, x * np.float32(1 / 0.75).item(), 0.0)
    for kernels in (TorchKernels(), CompiledKernels(load_library())):
        assert torch.equal(kernels.drop(x, mask), wanted)


def test_the_first_elements_are_pinned() -> None:
    """Philox's first known answer: 6627e8d5 e169c58d bc57ac4c 9b00dbd8 at counter and key 0.

    1 / (1 − 0.41) is rounded once: binary64's own 1 / 0.59 is one ulp more.
    """
    zero = Mask("0.5", (0, 0), step=0, site=0, first=0)
    assert kept(zero, 4, torch.device("cpu")).tolist() == [False, True, True, True]
    just_above = replace(zero, share="0.41")
    assert (just_above.threshold, just_above.scale) == (1760936591, 1.694915254237288)
    assert kept(replace(zero, share="0.4"), 1, torch.device("cpu")).item() is False
    assert kept(replace(zero, share="0.3"), 1, torch.device("cpu")).item() is True


@pytest.mark.parametrize(
    "change", [{"step": 10}, {"site": 4}, {"key": (0xDEADBEEF, 0x12345679)}, {"first": 4}]
)
def test_every_part_of_its_position_changes_a_mask(change: dict[str, object]) -> None:
    here, there = (kept(m, 256, torch.device("cpu")) for m in (MASK, replace(MASK, **change)))
    assert not torch.equal(here, there)


def test_the_share_is_dropped_and_the_mean_stays() -> None:
    dropped = NativeOps().dropout(torch.ones(1 << 16), MASK)
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_the_same_bits_in_every_mode(kind: str) -> None:
    generator = torch.Generator().manual_seed(2)
    x, g = sample(kind, (2, 5, 8), generator), sample("normal", (2, 5, 8), generator)

    def through(ops: ExactOps | NativeOps) -> list[Tensor]:
        leaf = x.clone().requires_grad_()
        value = ops.dropout(leaf, MASK)
        return [value.detach(), *torch.autograd.grad(value, leaf, g)]

    (ours, ours_g), (theirs, theirs_g) = through(ExactOps(default_engine())), through(NativeOps())
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(ours_g, theirs_g)
    stays = kept(MASK, x.numel(), x.device).view(x.shape)
    assert torch.equal(ours_g, torch.where(stays, g * MASK.scale, 0.0))


def test_a_part_of_a_batch_has_its_part_of_the_mask() -> None:
    x = sample("normal", (6, 7), torch.Generator().manual_seed(4))
    whole = ExactOps(default_engine()).dropout(x, MASK)
    parts = [
        ExactOps(default_engine()).dropout(x[i : i + 2], replace(MASK, first=7 * i))
        for i in (0, 2, 4)
    ]
    assert torch.equal(torch.cat(parts), whole)
