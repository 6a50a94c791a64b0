"""Seats trained together take the same steps as one seat trained by `atoll.train`."""

from dataclasses import replace

import pytest
import torch
from tests.adversary.run import BATCH, MODEL, Setting, manifest_of
from tests.adversary.seats import Stack, train_seats
from tests.support.batches import step_on

from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.init import initial_global_state
from atoll.numerics.ops import NativeOps
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import SeatState
from atoll.numerics.state_layout import param_shapes, seat_layout
from atoll.protocol.manifest import Manifest
from atoll.train.probe import pin_torch

pin_torch()


def native_recipe(manifest: Manifest) -> Recipe:
    total = manifest.terms.rounds * manifest.inner.steps
    return Recipe(manifest.model, manifest.inner, total, NativeOps())


def test_a_round_of_stacked_seats_is_that_of_each_alone():
    manifest = manifest_of(Setting(n=3, f=0, rounds=2, steps=6))
    model, layout = initial_global_state(manifest), Layout.of(param_shapes(MODEL))
    recipe = native_recipe(manifest)
    generator = torch.Generator().manual_seed(1)
    shape = (manifest.inner.steps, 3, BATCH, MODEL.seq + 1)
    tokens = torch.randint(0, 256, shape, generator=generator)

    def batches(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        flat = tokens[step].flatten(0, 1)
        return flat[:, :-1], flat[:, 1:]

    stack = train_seats(Stack.initial(model, 3, layout), batches, 0, layout, recipe)
    for seat in range(3):
        state = SeatState.initial(model, seat_layout(manifest))
        for step in range(manifest.inner.steps):
            state = step_on(state, tokens[step, seat], step, recipe).state
        for name, _, span in layout.spans():
            alone, together = state.params[name].flatten(), stack.params[seat, span]
            moved = (alone - model.params[name].flatten()).abs().max()
            assert moved > 0
            torch.testing.assert_close(together, alone, rtol=0, atol=float(moved) / 50)


def test_training_that_is_not_finite_is_refused():
    manifest = manifest_of(Setting(n=2, f=0, rounds=1, steps=2))
    model, layout = initial_global_state(manifest), Layout.of(param_shapes(MODEL))
    wild = {name: p * float("nan") for name, p in model.params.items()}
    initial_state = Stack.initial(replace(model, params=wild), 2, layout)
    ids = torch.zeros((2 * BATCH, MODEL.seq), dtype=torch.int64)
    with pytest.raises(FloatingPointError):
        train_seats(initial_state, lambda _: (ids, ids), 0, layout, native_recipe(manifest))
