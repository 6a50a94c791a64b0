"""Lanes: the order in which gradients are added, held against sums that are written out."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from tests.property.train.test_one_state import (
    all_bits,
    of_size,
    peak_of_a_segment,
    recipe_of,
    start_of,
)
from tests.support.batches import micro_batch
from tests.unit.train.factories import Job, small_model
from torch import Tensor

from atoll.numerics.gradients import StepInput, batch_gradients
from atoll.numerics.memory_plan import LEAN, RECOMPUTING, ROOMY
from atoll.numerics.model import forward
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import Tensors
from atoll.numerics.state_layout import trained_count
from atoll.numerics.step import state_roots, step_in_place
from atoll.train.memory_needs import _SUMS, _Sizes

BATCH = 8
"""Sequences, each a micro-batch."""
ORDERS: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((0, 1, 2, 3, 4, 5, 6, 7),),
    2: ((0, 1, 2, 3), (4, 5, 6, 7)),
    4: ((0, 1), (2, 3), (4, 5), (6, 7)),
    8: ((0,), (1,), (2,), (3,), (4,), (5,), (6,), (7,)),
}
"""Of each number of lanes, the micro-batches of each lane."""


@cache
def given() -> StepInput:
    random = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 256, (BATCH, 17), generator=random)
    return StepInput([micro_batch(part) for part in tokens.split(1)], 0)


def recipe_with(lanes: int) -> Recipe:
    recipe = recipe_of(small_model(), "adamw", None, "0")
    changes = {"batch": BATCH, "micro_batch": 1, "lanes": lanes}
    return replace(recipe, inner=recipe.inner.model_copy(update=changes))


@cache
def each() -> tuple[Tensors, ...]:
    """The gradients of every micro-batch, by itself."""
    recipe = recipe_with(1)
    params, made = start_of(recipe, None).params, []
    for m, share in zip(given().batch, given().shares, strict=True):
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
        logits = forward(leaves, m.ids, recipe.model, recipe.ops)
        loss = recipe.ops.cross_entropy(logits, m.targets, m.weights) * torch.tensor(share)
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        made.append(dict(zip(leaves, gradients, strict=True)))
    return tuple(made)


def chain(values: list[Tensor]) -> Tensor:
    result = values[0]
    for value in values[1:]:
        result = result + value
    return result


@pytest.mark.parametrize("lanes", ORDERS)
def test_gradients_are_added_in_a_lane_and_then_lane_by_lane(lanes: int) -> None:
    recipe = recipe_with(lanes)
    params = start_of(recipe, None).params
    expected = {
        name: chain([chain([each()[at][name] for at in lane]) for lane in ORDERS[lanes]])
        for name in params
    }
    for plan in (ROOMY, LEAN):
        gradients = batch_gradients(params, given(), replace(recipe, memory=plan)).gradients
        assert list(gradients) == list(params)
        assert all_bits(gradients) == all_bits(expected)


def test_lanes_are_of_the_law_and_those_of_one_micro_batch_are_one_lane() -> None:
    digests = {}
    for lanes in ORDERS:
        recipe = recipe_with(lanes)
        state = step_in_place(start_of(recipe, None), given(), recipe).state
        digests[lanes] = state_roots(state).digest()
    assert digests[BATCH] == digests[1]
    assert len(set(digests.values())) == len(digests) - 1


def test_lanes_hold_two_sums_and_no_more(job: Job) -> None:
    large, peaks = of_size(job, 64, 4), []
    for lanes in (1, 2, 4):
        inner = large.manifest.inner.model_copy(
            update={"batch": 8, "micro_batch": 1, "lanes": lanes}
        )
        some = large.of(large.manifest.model_copy(update={"inner": inner}))
        peaks.append(peak_of_a_segment(some, RECOMPUTING))
        assert peaks[-1] < 1.05 * (_Sizes(some.manifest).steps(RECOMPUTING) - _SUMS)
    assert peaks[2] <= peaks[1] <= peaks[0] + 4.2 * trained_count(large.manifest)
