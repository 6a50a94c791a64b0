"""The outer step is SGD or Nesterov, in integers."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from atoll.errors import ManifestError
from atoll.protocol.manifest import OuterSpec
from atoll.train.errors import MalformedState
from atoll.train.outer import EXPONENTS, UNIT_BITS, outer_step, to_units
from atoll.train.state import GlobalState

SGD = OuterSpec(kind="sgd", lr="1", momentum="0")
NESTEROV = OuterSpec(kind="nesterov", lr="0.7", momentum="0.9")
EXPONENT = {"w": -11, "g": -9}


def model(outer: OuterSpec) -> GlobalState:
    generator = torch.Generator().manual_seed(2)
    params = {
        "w": torch.randn(7, 5, generator=generator),
        "g": torch.ones(5),
    }
    momentum = {n: torch.zeros(p.shape, dtype=torch.int64) for n, p in params.items()}
    return GlobalState(0, params, momentum if outer.kind == "nesterov" else {}, EXPONENT)


def updates(round: int, denominator: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(round)
    limit = 127 * denominator
    return {
        "w": torch.randint(-limit, limit + 1, (7, 5), generator=generator),
        "g": torch.randint(-limit, limit + 1, (5,), generator=generator),
    }


def test_sgd_at_rate_one_subtracts_the_merged_update() -> None:
    state, merged = model(SGD), updates(0, 6)
    after = outer_step(state, merged, 6, EXPONENT, SGD)
    for name, p in state.params.items():
        expected = p.double() - merged[name].double() / 6 * 2.0 ** EXPONENT[name]
        torch.testing.assert_close(after.params[name], expected.float(), atol=1e-11, rtol=1.2e-7)
    assert (after.round, after.momentum) == (1, {})


def test_one_honest_update_moves_the_model_onto_it() -> None:
    """With one seat the merge is its own update, so the model lands within half a grid step."""
    state = model(SGD)
    local = {n: p + torch.randn(p.shape) * 0.01 for n, p in state.params.items()}
    merged = {
        n: torch.round((p - local[n]) * 2.0 ** -EXPONENT[n]).to(torch.int64)
        for n, p in state.params.items()
    }
    after = outer_step(state, merged, 1, EXPONENT, SGD)
    for name, p in after.params.items():
        assert (p - local[name]).abs().max() <= 2.0 ** (EXPONENT[name] - 1) + 1e-6


def test_nesterov_is_torchs() -> None:
    state = model(NESTEROV)
    theirs = {n: p.clone().requires_grad_() for n, p in state.params.items()}
    optimiser = torch.optim.SGD(list(theirs.values()), lr=0.7, momentum=0.9, nesterov=True)
    for round in range(6):
        merged = updates(round, 4)
        for name, p in theirs.items():
            p.grad = merged[name] / 4 * 2.0 ** EXPONENT[name]
        optimiser.step()
        state = outer_step(state, merged, 4, EXPONENT, NESTEROV)
    for name, p in theirs.items():
        torch.testing.assert_close(state.params[name], p.detach(), atol=1e-6, rtol=1e-6)
    assert all(m.any() for m in state.momentum.values())


def test_the_new_state_carries_the_next_rounds_exponents() -> None:
    after = outer_step(model(SGD), updates(0, 1), 1, {"w": -12, "g": -8}, SGD)
    assert after.exponents == {"w": -12, "g": -8}


def test_a_zero_update_changes_only_the_round() -> None:
    state = model(SGD)
    zeros = {n: torch.zeros(p.shape, dtype=torch.int64) for n, p in state.params.items()}
    after = outer_step(state, zeros, 1, EXPONENT, SGD)
    assert after.params_root() == state.params_root()
    assert after.digest() != state.digest()


@pytest.mark.parametrize("exponent", [-60, -41, -40, -11, 0])
@pytest.mark.parametrize("denominator", [1, 6, 65536])
def test_units_are_the_nearest(exponent: int, denominator: int) -> None:
    limit = 127 * denominator
    values = [0, 1, -1, limit, -limit, limit // 3, -limit // 7]
    units = to_units(torch.tensor(values), denominator, exponent).tolist()
    for value, unit in zip(values, units, strict=True):
        exact = Fraction(value, denominator) * Fraction(2) ** (exponent + UNIT_BITS)
        assert abs(unit - exact) <= Fraction(1, 2)


def test_a_runaway_momentum_stops_instead_of_wrapping_round() -> None:
    outer = OuterSpec(kind="nesterov", lr="1000", momentum="0.999999")
    state = GlobalState(0, {"w": torch.zeros(1)}, {"w": torch.tensor([(1 << 52) - 1])}, {"w": 0})
    after = outer_step(state, {"w": torch.tensor([-127])}, 1, {"w": 0}, outer)
    assert after.params["w"].item() == pytest.approx(-1000 * (4096 - 2 * 127), rel=1e-3)
    assert after.momentum["w"].item() <= 1 << 52


@pytest.mark.parametrize("exponent", [EXPONENTS.start - 1, EXPONENTS.stop])
def test_an_exponent_out_of_range_is_refused(exponent: int) -> None:
    with pytest.raises(ManifestError, match="exponent"):
        to_units(torch.tensor([1]), 1, exponent)


@pytest.mark.parametrize("denominator", [0, -1, 65537])
def test_a_denominator_out_of_range_is_refused(denominator: int) -> None:
    with pytest.raises(ManifestError, match="denominator"):
        outer_step(model(SGD), updates(0, 1), denominator, EXPONENT, SGD)


def test_numerators_of_another_model_are_refused() -> None:
    merged = updates(0, 1)
    with pytest.raises(MalformedState):
        outer_step(model(SGD), {"w": merged["w"]}, 1, EXPONENT, SGD)
    with pytest.raises(MalformedState):
        outer_step(model(SGD), merged, 1, {"w": -11}, SGD)
