"""Exact arithmetic is an argument of the same model and step, and asks nothing of the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.batches import step_on
from tests.unit.train.factories import Job, small_model
from tests.unit.train.test_step import batches, inner_of

from atoll.errors import NumericsMismatch
from atoll.numerics.init import initial_params
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.ops import NativeOps, operations
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import optimiser_layout, param_shapes
from atoll.protocol.model_spec import ModelSpec
from atoll.train import probe
from atoll.train.families import FAMILIES
from atoll.train.round import train_round


def exact_recipe(model: ModelSpec | None = None, **changes: object) -> Recipe:
    inner = inner_of(**changes)
    return Recipe(model or small_model(), inner, total_steps=8, ops=operations())


def round_start_of(how: Recipe) -> SeatState:
    shapes = param_shapes(how.model)
    initial = GlobalState(0, initial_params(shapes, seed=5), {}, {})
    return SeatState.initial(initial, optimiser_layout(shapes, how.inner))


def test_jobs_compute_exactly() -> None:
    assert isinstance(operations(), ExactOps)


LLAMA3 = {"kind": "llama3", "factor": "8", "low": "1", "high": "4", "positions": 32}
KINDS: dict[str, dict[str, object]] = {
    **{family.title: family.parts for family in FAMILIES.values()},
    "Qwen3": {"qk_norm": True, "head_dim": 12},
    "all": {"qkv_bias": True, "qk_norm": True, "head_dim": 6, "rope_scaling": LLAMA3},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_losses_follow_native_ones(kind: str, optimiser: str) -> None:
    momentum = "0" if optimiser == "adamw" else "0.95"
    model = small_model(**KINDS[kind])
    ours_how = exact_recipe(model, optimizer=optimiser, momentum=momentum)
    theirs_how = replace(ours_how, ops=NativeOps())
    exact = native = round_start_of(ours_how)
    for step, batch in enumerate(batches(6)):
        ours = step_on(exact, batch, step, ours_how)
        theirs = step_on(native, batch, step, theirs_how)
        assert ours.loss == pytest.approx(theirs.loss, rel=2e-3)
        exact, native = ours.state, theirs.state


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_agree_with_native_ones_with_shared_key_heads(kind: str) -> None:
    """The first moment after one unclipped step is a tenth of the gradient."""
    batch, ours_how = batches(1)[0], exact_recipe(small_model(**KINDS[kind]), clip="1000")
    start = round_start_of(ours_how)
    ours = step_on(start, batch, 0, ours_how).state.m
    theirs = step_on(start, batch, 0, replace(ours_how, ops=NativeOps())).state.m
    for name, expected in theirs.items():
        error = (ours[name] - expected).norm() / expected.norm()
        assert error < 0.05, name


def test_a_round_of_every_addition_replays(job: Job) -> None:
    model = small_model(**KINDS["all"])
    other = job.of(job.manifest.model_copy(update={"model": model}))
    trained = train_round(other.task, other.store)
    assert trained.segments == 4
    assert other.replay(trained).mismatch_at is None


def test_a_round_with_dropout_replays_and_without_it_does_not(job: Job) -> None:
    dropped = job.with_inner(dropout="0.1")
    trained = train_round(dropped.task, dropped.store)
    assert dropped.replay(trained).mismatch_at is None
    assert job.replay(trained).mismatch_at == 0


def test_a_machine_with_other_bits_is_refused(job: Job) -> None:
    numerics = probe.numerics_spec().model_copy(update={"probe_digest": bytes(32)})
    with pytest.raises(NumericsMismatch, match="the probe gives"):
        probe.check_environment(job.with_numerics(numerics).manifest)
