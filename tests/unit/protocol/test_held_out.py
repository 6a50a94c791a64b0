"""Held-out losses: how they are joined, and the 8 bytes that a verdict has of one."""

from __future__ import annotations

import math
from typing import Any

import pytest

from atoll.protocol.losses import join, loss_bytes, loss_of


def test_a_loss_is_eight_bytes() -> None:
    assert loss_bytes(1.0).hex() == "3ff0000000000000"
    assert loss_of(loss_bytes(0.1)) == 0.1
    assert math.isnan(loss_of(loss_bytes(-math.nan)))


@pytest.mark.parametrize("data", ["7ff8000000000001", "7ff0000000000000", "fff8000000000000"])
def test_other_bytes_are_no_loss(data: str) -> None:
    with pytest.raises(ValueError, match="no held-out loss"):
        loss_of(bytes.fromhex(data))


def test_losses_are_joined_by_their_targets_and_rounded_once() -> None:
    assert join([([1.0, 2.0], [3, 1]), ([5.0], [4])]) == 25 / 8
    # Two binary64 additions would lose the small one against the large.
    assert join([([2.0**60, 1.0, -(2.0**60)], [1, 1, 1])]) == 1 / 3


@pytest.mark.parametrize(
    "parts", [[], [([3.0], [0])], [([1.0, math.inf], [1, 1])], [([1.0], [1]), ([math.nan], [0])]]
)
def test_nothing_that_counts_or_a_loss_that_is_not_finite_is_no_loss(parts: Any) -> None:
    assert math.isnan(join(parts))
    assert loss_bytes(join(parts)).hex() == "7ff8000000000000"


def test_losses_and_counts_are_one_for_one() -> None:
    with pytest.raises(ValueError, match="zip"):
        join([([1.0, 2.0], [1])])
