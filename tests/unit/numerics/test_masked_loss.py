"""What is no target is read and not learned, with one denominator for all that is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own convention)
from tests.support.batches import micro_batch, step_on
from tests.support.engines import exact_ops
from tests.unit.train.test_step import initial_state, recipe

from atoll.numerics.batch import Windows, shares_of
from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps, Ops
from atoll.numerics.step import StepResult

KINDS = ["eager", "compiled", "native"]
INF, NAN = float("inf"), float("nan")


def ops_of(kind: str) -> Ops:
    return NativeOps() if kind == "native" else exact_ops(kernels=kind)


def loss_of(ops: Ops, logits: torch.Tensor, targets: torch.Tensor) -> tuple[float, torch.Tensor]:
    leaf = logits.clone().requires_grad_()
    loss = ops.cross_entropy(leaf, targets, (targets >= 0).float())
    (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.item(), gradient


def test_a_blinded_tag_is_the_complement_of_its_token() -> None:
    words = np.array([5, 6 | 1 << 15, 7, 0 | 1 << 15, 32767 | 1 << 15], np.uint16)
    windows = Windows(words, 3, mask_bit=1 << 15)
    assert windows.signed([0, 1]).tolist() == [[5, ~6, 7, ~0], [~6, 7, ~0, ~32767]]
    read = windows.at([0, 1])
    assert read.ids.tolist() == [[5, 6, 7], [6, 7, 0]]
    assert read.targets.tolist() == [[6, 7, 0], [7, 0, 32767]]
    assert read.weights.tolist() == [[0, 1, 0], [1, 0, 0]]
    assert read.count == 2


def test_without_a_mask_bit_every_token_has_weight_1() -> None:
    words = np.array([5, 6 | 1 << 15, 7, 0 | 1 << 15], np.uint16)
    read = Windows(words, 3).at([0])
    assert read.targets.tolist() == [[6 | 1 << 15, 7, 1 << 15]]
    assert (read.weights.tolist(), read.count) == ([[1, 1, 1]], 3)
    assert Windows(words, 3).signed([0]).tolist() == [words.tolist()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_is_over_the_targets_alone(kind: str) -> None:
    logits = torch.randn(2, 6, 11, generator=torch.Generator().manual_seed(1))
    targets = torch.tensor([[1, -1, 3, -9, 5, 0], [-1, -1, -1, 10, -1, 2]])
    shown = targets >= 0
    loss, gradient = loss_of(ops_of(kind), logits, targets)
    assert loss == pytest.approx(F.cross_entropy(logits[shown], targets[shown]).item(), rel=1e-5)
    assert not gradient[~shown].any()
    assert (gradient[shown] != 0).any(dim=-1).all()
    alone, its_gradient = loss_of(ops_of(kind), logits[shown][None], targets[shown][None])
    assert loss == alone
    assert torch.equal(gradient[shown], its_gradient[0])


@pytest.mark.parametrize("kind", ["eager", "compiled"])
@pytest.mark.parametrize("poison", [INF, -INF, NAN])
def test_what_is_no_target_counts_nothing_whatever_its_logits_are(kind: str, poison: float) -> None:
    logits = torch.randn(1, 3, 7, generator=torch.Generator().manual_seed(2))
    targets = torch.tensor([[4, -1, 2]])
    clean = loss_of(ops_of(kind), logits, targets)
    logits[0, 1] = poison
    loss, gradient = loss_of(ops_of(kind), logits, targets)
    assert loss == clean[0]
    assert torch.equal(gradient, clean[1])
    logits[0, 2, 0] = NAN
    assert math.isnan(loss_of(ops_of(kind), logits, targets)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_no_target_at_all_is_a_loss_and_a_gradient_of_zero(kind: str) -> None:
    logits = torch.randn(1, 4, 9, generator=torch.Generator().manual_seed(3))
    loss, gradient = loss_of(ops_of(kind), logits, torch.full((1, 4), -1))
    assert (loss, math.copysign(1.0, loss)) == (0.0, 1.0)
    assert not gradient.any()


def test_shares_are_of_all_targets_of_a_batch() -> None:
    assert shares_of([3, 0, 1]) == [0.75, 0.0, 0.25]
    assert shares_of([0, 0]) == [0.0, 0.0]
    assert all(shares_of([7 * 64] * m) == [1.0 / m] * m for m in range(1, 200))


def stepped(batch: torch.Tensor, micro_batch: int, kind: str = "eager") -> StepResult:
    plan = replace(recipe(micro_batch=micro_batch), ops=ops_of(kind))
    return step_on(initial_state(), batch, 0, plan)


def masked_batch() -> torch.Tensor:
    """Four sequences: one without targets, one with few, two with many."""
    ids = torch.randint(0, 256, (4, 17), generator=torch.Generator().manual_seed(4))
    ids[0] = ~ids[0]
    ids[1, 3:] = ~ids[1, 3:]
    ids[2, 9] = ~ids[2, 9]
    return ids


def test_a_targets_weight_is_the_same_however_micro_batches_are_cut() -> None:
    batch = masked_batch()
    plan = recipe()
    whole = micro_batch(batch)
    logits = forward(initial_state().params, whole.ids, plan.model, NativeOps())
    expected = NativeOps().cross_entropy(logits, whole.targets, whole.weights).item()
    found = [stepped(batch, size, "native") for size in (1, 2, 4)]
    for outcome in found:
        assert outcome.loss == pytest.approx(expected, rel=1e-5)
        assert outcome.work.norm == pytest.approx(found[-1].work.norm, rel=1e-4)
    assert found[0].work.losses[0] == 0.0


@pytest.mark.parametrize("micro_batch", [1, 4])
def test_a_batch_without_targets_decays_weights_and_nothing_else(micro_batch: int) -> None:
    before = initial_state()
    outcome = stepped(~masked_batch().abs(), micro_batch)
    assert not outcome.diverged
    assert (outcome.loss, outcome.work.norm) == (0.0, 0.0)
    assert set(outcome.work.losses) == {0.0}
    for name, p in before.params.items():
        decay = 0.1 if p.dim() > 1 else 0.0
        expected = p - p * decay * 0.01
        torch.testing.assert_close(outcome.state.params[name], expected, rtol=1e-6, atol=0)


def test_where_all_are_targets_the_mask_changes_no_bit() -> None:
    ids = torch.randint(0, 256, (4, 17), generator=torch.Generator().manual_seed(5))
    hidden_inputs = ids.clone()
    hidden_inputs[:, 0] = ~hidden_inputs[:, 0]  # read, and nobody's target
    plain, other = stepped(ids, 2), stepped(hidden_inputs, 2)
    assert plain.work == other.work
    assert all(torch.equal(p, other.state.params[n]) for n, p in plain.state.params.items())
