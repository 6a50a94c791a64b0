"""The inner step is AdamW with clipping and a schedule, and says when it is not finite."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support.batches import step_on
from tests.support.manifests import inner_spec
from tests.unit.train.factories import small_model

from atoll.numerics.batch import Windows
from atoll.numerics.init import initial_params
from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps, operations
from atoll.numerics.schedule import Recipe
from atoll.numerics.schedule_tables import schedule_of
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import optimiser_layout, param_shapes
from atoll.numerics.step import state_roots
from atoll.protocol.method_spec import InnerSpec


def inner_of(**changes: object) -> InnerSpec:
    plain = {"lr": "0.01", "clip": "0.5", "schedule": "constant", "warmup_steps": 0, "steps": 8}
    return inner_spec(**{**plain, "batch": 4, "segment": 2, "micro_batch": 4, **changes})


def recipe(**changes: object) -> Recipe:
    return Recipe(small_model(), inner_of(**changes), total_steps=8, ops=NativeOps())


def initial_state() -> SeatState:
    shapes = param_shapes(small_model())
    model = GlobalState(0, initial_params(shapes, seed=5), {}, {})
    return SeatState.initial(model, optimiser_layout(shapes, inner_of()))


def batches(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    return [torch.randint(0, 256, (4, 17), generator=generator) for _ in range(count)]


def torch_steps(clip: float, count: int) -> list[dict[str, torch.Tensor]]:
    """The same steps by PyTorch's own AdamW and clipping: parameters after each."""
    params = {n: p.clone().requires_grad_() for n, p in initial_state().params.items()}
    groups = [
        {"params": [p for p in params.values() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in params.values() if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), eps=1e-8)
    history = []
    for batch in batches(count):
        optimiser.zero_grad()
        logits = forward(params, batch[:, :-1], small_model(), NativeOps())
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(list(params.values()), clip)
        optimiser.step()
        history.append({n: p.detach().clone() for n, p in params.items()})
    return history


@pytest.mark.parametrize("clip", [0.5, 100.0], ids=["clipped", "free"])
def test_steps_are_those_of_torchs_adamw(clip: float) -> None:
    state, how = initial_state(), recipe(clip="0.5" if clip == 0.5 else "100")
    for step, (batch, expected) in enumerate(zip(batches(4), torch_steps(clip, 4), strict=True)):
        done = step_on(state, batch, step, how)
        state = done.state
        assert not done.diverged
        for name, p in expected.items():
            torch.testing.assert_close(state.params[name], p, atol=2e-5, rtol=1e-4)
    assert (state.count, state.batches) == (4, 4)


def with_optimiser(optimiser: str, **changes: object) -> tuple[SeatState, Recipe]:
    """A fresh state and the recipe, unclipped."""
    unused = {"beta1": "0", "beta2": "0", "eps": "0"} if optimiser == "sgd" else {}
    how = recipe(**unused | {"optimizer": optimiser, "clip": "1000"} | changes)
    shapes = param_shapes(small_model())
    model = GlobalState(0, initial_params(shapes, seed=5), {}, {})
    return SeatState.initial(model, optimiser_layout(shapes, how.inner)), how


def gradients_at(params: dict[str, torch.Tensor], batch: torch.Tensor) -> dict[str, torch.Tensor]:
    leaves = {n: p.double().requires_grad_() for n, p in params.items()}
    logits = forward(leaves, batch[:, :-1], small_model(), NativeOps())
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


@pytest.mark.parametrize("momentum", ["0", "0.9"])
def test_sgd_is_torchs(momentum: str) -> None:
    state, how = with_optimiser("sgd", momentum=momentum, weight_decay="0")
    assert (state.m.keys(), state.v) == (state.params.keys() if momentum != "0" else set(), {})
    params = {n: p.double().requires_grad_() for n, p in state.params.items()}
    theirs = torch.optim.SGD(params.values(), lr=0.01, momentum=float(momentum))
    for step, batch in enumerate(batches(3)):
        for name, gradient in gradients_at(params, batch).items():
            params[name].grad = gradient
        theirs.step()
        state = step_on(state, batch, step, how).state
    for name, p in params.items():
        torch.testing.assert_close(state.params[name].double(), p, atol=1e-6, rtol=1e-5)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz's polynomial of the singular values, in binary64."""
    u, s, vt = torch.linalg.svd(matrix, full_matrices=False)
    s = s / s.norm()
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (u * s) @ vt


def test_muon_moves_matrices_along_their_orthogonal_factor_and_leaves_the_rest_to_adamw() -> None:
    state, how = with_optimiser("muon", momentum="0.9")
    adamw, adamw_how = with_optimiser("adamw")
    inside = {n for n, p in state.params.items() if p.dim() == 2 and "embed" not in n}
    assert inside
    assert state.v.keys() == state.params.keys() - inside
    m = {n: torch.zeros_like(p).double() for n, p in state.params.items()}
    expected = {n: state.params[n].double() for n in inside}
    for step, batch in enumerate(batches(2)):
        for name, gradient in gradients_at(state.params, batch).items():
            m[name] = 0.9 * m[name] + 0.1 * gradient
            if name in inside:
                direction = orthogonal(0.9 * m[name] + 0.1 * gradient)
                reach = 0.2 * math.sqrt(max(gradient.shape)) * direction
                expected[name] = expected[name] - 0.01 * (reach + 0.1 * expected[name])
        if step == 0:
            same = step_on(adamw, batch, step, adamw_how).state
        state = step_on(state, batch, step, how).state
        if step == 0:
            for name in state.params.keys() - inside:
                assert torch.equal(state.params[name], same.params[name])
    for name, p in expected.items():
        torch.testing.assert_close(state.params[name].double(), p, atol=2e-4, rtol=1e-3)


def test_lion_steps_along_the_sign_of_a_mixture_and_keeps_another() -> None:
    """Chen et al. 2023, algorithm 2, in binary64."""
    state, how = with_optimiser("lion", eps="0", beta2="0.99")
    assert (state.m.keys(), state.v) == (state.params.keys(), {})
    m = {n: torch.zeros_like(p).double() for n, p in state.params.items()}
    for step, batch in enumerate(batches(3)):
        before = {n: p.double() for n, p in state.params.items()}
        gradients = gradients_at(state.params, batch)
        state = step_on(state, batch, step, how).state
        for name, gradient in gradients.items():
            mixed = 0.9 * m[name] + 0.1 * gradient
            decay = 0.1 if gradient.dim() > 1 else 0.0
            expected = before[name] - 0.01 * (mixed.sign() + decay * before[name])
            # Native gradients are a little off: where one is next to nothing, so may its sign be.
            clear = mixed.abs() > 1e-4 * mixed.abs().max()
            assert clear.float().mean() > 0.5 or "embed" in name
            moved = state.params[name].double()
            torch.testing.assert_close(moved[clear], expected[clear], atol=1e-6, rtol=1e-5)
            m[name] = 0.99 * m[name] + 0.01 * gradient
            torch.testing.assert_close(state.m[name].double(), m[name], atol=1e-6, rtol=1e-3)


def test_a_muon_step_is_about_as_large_as_adamws() -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    sizes = []
    for optimiser, momentum in (("muon", "0.9"), ("adamw", "0")):
        state, how = with_optimiser(optimiser, momentum=momentum, weight_decay="0")
        after = step_on(state, batches(1)[0], 0, how).state
        sizes.append((after.params[name] - state.params[name]).square().mean().sqrt() / 0.01)
    assert 0.1 < sizes[0] < 0.3
    assert 0.5 < sizes[1] <= 1.0


def test_gradients_agree_with_binary64() -> None:
    """The first moment after one unclipped step is a tenth of the gradient."""
    batch = batches(1)[0]
    found = step_on(initial_state(), batch, 0, recipe(clip="1000")).state
    params = {n: p.double().requires_grad_() for n, p in initial_state().params.items()}
    logits = forward(params, batch[:, :-1], small_model(), NativeOps())
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    expected = torch.autograd.grad(loss, list(params.values()))
    for name, gradient in zip(params, expected, strict=True):
        scale = gradient.abs().max().item()
        torch.testing.assert_close(
            found.m[name].double() * 10, gradient, atol=1e-5 * scale, rtol=1e-5
        )


def test_micro_batches_sum_to_the_batch() -> None:
    whole = step_on(initial_state(), batches(1)[0], 0, recipe(micro_batch=4))
    parts = step_on(initial_state(), batches(1)[0], 0, recipe(micro_batch=1))
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)
    for name in whole.state.m:
        torch.testing.assert_close(parts.state.m[name], whole.state.m[name], atol=1e-8, rtol=1e-4)


@pytest.mark.parametrize("mode", ["native", "exact"])
def test_dropout_changes_the_step_and_is_of_the_whole_batch(mode: str) -> None:
    how = replace(
        recipe(dropout="0.2", clip="1000"), ops=operations() if mode == "exact" else NativeOps()
    )
    batch, key = batches(1)[0], (1, 2)
    plain = step_on(initial_state(), batch, 0, recipe(clip="1000"), key).loss
    here = step_on(initial_state(), batch, 3, how, key)
    assert here.loss != plain
    assert (
        state_roots(here.state).digest()
        == state_roots(step_on(initial_state(), batch, 3, how, key).state).digest()
    )
    for step, other in ((4, key), (3, (1, 3))):
        assert step_on(initial_state(), batch, step, how, other).loss != here.loss
    parts = replace(how, inner=how.inner.model_copy(update={"micro_batch": 1}))
    assert step_on(initial_state(), batch, 3, parts, key).loss == pytest.approx(here.loss, rel=1e-5)


def test_a_step_leaves_its_opening_state_alone() -> None:
    state = initial_state()
    before = state_roots(state).digest()
    step_on(state, batches(1)[0], 0, recipe())
    assert state_roots(state).digest() == before


def test_only_matrices_decay() -> None:
    after = step_on(initial_state(), batches(1)[0], 0, recipe(weight_decay="5")).state
    plain = step_on(initial_state(), batches(1)[0], 0, recipe(weight_decay="0")).state
    assert torch.equal(after.params["model.norm.weight"], plain.params["model.norm.weight"])
    embed = "model.embed_tokens.weight"
    torch.testing.assert_close(
        after.params[embed], plain.params[embed] - 0.05 * initial_state().params[embed]
    )


def test_warm_up_is_linear_and_counts_global_steps() -> None:
    rates = schedule_of(inner_of(warmup_steps=4), 100).rates
    assert rates[:6].tolist() == [0.01 * 0.25, 0.01 * 0.5, 0.01 * 0.75, 0.01, 0.01, 0.01]


def test_the_cosine_schedule_reaches_zero_at_the_jobs_end() -> None:
    spec = inner_of(schedule="cosine", warmup_steps=10)
    rates = schedule_of(spec, 110).rates
    assert (len(rates), rates[10]) == (110, 0.01)
    assert rates[60] == pytest.approx(0.005)
    for step in (35, 85, 109):
        expected = 0.01 * (1 + math.cos(math.pi * (step - 10) / 100)) / 2
        assert rates[step] == pytest.approx(expected, rel=1e-12)


def test_the_schedule_matters_to_the_bits() -> None:
    how = recipe(warmup_steps=4)
    first, second = (step_on(initial_state(), batches(1)[0], step, how).state for step in (0, 1))
    assert first.params_root() != second.params_root()
    assert first.optimiser_root() == second.optimiser_root()


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_changes_nothing(poison: float) -> None:
    state = initial_state()
    params = {**state.params, "model.norm.weight": torch.full((16,), poison)}
    broken = replace(state, params=params)
    done = step_on(broken, batches(1)[0], 0, recipe())
    assert done.diverged
    assert done.state is broken


def test_a_runaway_parameter_counts_as_not_finite() -> None:
    state = initial_state()
    done = step_on(state, batches(1)[0], 0, recipe(lr="10000", weight_decay="0"))
    assert not done.diverged
    large = {n: p.clone() for n, p in state.params.items()}
    large["model.embed_tokens.weight"][255, 0] = 2.0**64
    unused = torch.zeros(4, 17, dtype=torch.int64)
    still = inner_of(weight_decay="0")
    untied = Recipe(small_model(tied=False), still, 8, NativeOps())
    large["lm_head.weight"] = torch.zeros(256, 16)
    zeros = {n: torch.zeros_like(p) for n, p in large.items()}
    done = step_on(SeatState(large, zeros, zeros, {}, 0, 0), unused, 0, untied)
    assert math.isfinite(done.loss)
    assert done.diverged


def test_batches_are_a_sequence_and_the_token_after_it() -> None:
    tokens = np.arange(100, dtype=np.uint16)
    batch = Windows(tokens, 15).signed([3, 84])
    assert batch.dtype == torch.int64
    assert batch.tolist() == [list(range(3, 19)), list(range(84, 100))]
