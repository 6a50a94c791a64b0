"""Steps on batches that a test writes down: tokens [B, T + 1], −1 − id where one has weight 0."""

from __future__ import annotations

from torch import Tensor, split

from atoll.numerics.batch import MicroBatch
from atoll.numerics.gradients import StepInput
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import SeatState
from atoll.numerics.step import StepResult, inner_step


def micro_batch(signed_bT1: Tensor) -> MicroBatch:
    """Its sequences, each with the token after it."""
    tokens = signed_bT1.where(signed_bT1 >= 0, ~signed_bT1)
    weights = (signed_bT1[:, 1:] >= 0).float()
    return MicroBatch(tokens[:, :-1], tokens[:, 1:], weights)


def step_on(
    state: SeatState, batch_BT1: Tensor, step: int, recipe: Recipe, key: tuple[int, int] = (0, 0)
) -> StepResult:
    """A step on all of the batch, in the recipe's micro-batches."""
    parts = [micro_batch(part) for part in split(batch_BT1, recipe.inner.micro_batch)]
    return inner_step(state, StepInput(parts, step, key), recipe)
