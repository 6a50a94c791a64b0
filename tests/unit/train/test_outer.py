"""The outer step, in integers: each kind against a trajectory worked by hand."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import pytest
import torch

from atoll.errors import ManifestError
from atoll.numerics.errors import MalformedState
from atoll.numerics.fixed import EXPONENTS, UNIT_BITS, root, to_units
from atoll.numerics.init import initial_slots
from atoll.numerics.outer import outer_step
from atoll.numerics.state import GlobalState
from atoll.protocol.method_spec import OuterSpec
from atoll.protocol.optimisers import OUTER_OPTIMISERS


def spec(kind: str, **changes: object) -> OuterSpec:
    fields = {"kind": kind, "lr": "1", "momentum": "0", "beta2": "0", "eps": "0", "period": 0}
    return OuterSpec.model_validate(fields | changes)


SGD = spec("sgd")
NESTEROV = spec("nesterov", lr="0.7", momentum="0.9")
EXPONENT = {"w": -11, "g": -9}


def model(outer: OuterSpec) -> GlobalState:
    generator = torch.Generator().manual_seed(2)
    params = {
        "w": torch.randn(7, 5, generator=generator),
        "g": torch.ones(5),
    }
    return GlobalState(0, params, initial_slots(outer, params), EXPONENT)


def updates(round: int, denominator: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(round)
    limit = 127 * denominator
    return {
        "w": torch.randint(-limit, limit + 1, (7, 5), generator=generator),
        "g": torch.randint(-limit, limit + 1, (5,), generator=generator),
    }


def test_sgd_at_rate_one_subtracts_the_merged_update() -> None:
    state, merged = model(SGD), updates(0, 6)
    after = outer_step(state.copied(), merged, denominator=6, exponents=EXPONENT, outer=SGD)
    for name, p in state.params.items():
        expected = p.double() - merged[name].double() / 6 * 2.0 ** EXPONENT[name]
        torch.testing.assert_close(after.params[name], expected.float(), atol=1e-11, rtol=1.2e-7)
    assert (after.round, after.outer) == (1, {})


def test_one_honest_update_moves_the_model_onto_it() -> None:
    """With one seat the merge is its own update, so the model lands within half a grid step."""
    state = model(SGD)
    local = {n: p + torch.randn(p.shape) * 0.01 for n, p in state.params.items()}
    merged = {
        n: torch.round((p - local[n]) * 2.0 ** -EXPONENT[n]).to(torch.int64)
        for n, p in state.params.items()
    }
    after = outer_step(state.copied(), merged, denominator=1, exponents=EXPONENT, outer=SGD)
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
        state = outer_step(state, merged, denominator=4, exponents=EXPONENT, outer=NESTEROV)
    for name, p in theirs.items():
        torch.testing.assert_close(state.params[name], p.detach(), atol=1e-6, rtol=1e-6)
    assert all(m.any() for m in state.outer["momentum"].values())


def test_the_new_state_carries_the_next_rounds_exponents() -> None:
    after = outer_step(
        model(SGD), updates(0, 1), denominator=1, exponents={"w": -12, "g": -8}, outer=SGD
    )
    assert after.exponents == {"w": -12, "g": -8}


def test_a_zero_update_changes_only_the_round() -> None:
    state = model(SGD)
    zeros = {n: torch.zeros(p.shape, dtype=torch.int64) for n, p in state.params.items()}
    after = outer_step(state.copied(), zeros, denominator=1, exponents=EXPONENT, outer=SGD)
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


@pytest.mark.parametrize("kind", ["nesterov", "delayed_nesterov"])
def test_a_runaway_slot_stops_instead_of_wrapping_round(kind: str) -> None:
    period = 2 if kind == "delayed_nesterov" else 0
    outer = spec(kind, lr="1000", momentum="0.999999", period=period)
    slots = {slot: {"w": torch.tensor([(1 << 52) - 1])} for slot in OUTER_OPTIMISERS[kind].slots}
    state = GlobalState(1, {"w": torch.zeros(1)}, slots, {"w": 0})
    after = outer_step(
        state.copied(), {"w": torch.tensor([-127])}, denominator=1, exponents={"w": 0}, outer=outer
    )
    assert -1000 * 4096 <= after.params["w"].item() < -1000 * 3800
    assert all(slot["w"].item() <= 1 << 52 for slot in after.outer.values())


@pytest.mark.parametrize("numerator", [-127, 127])
def test_adam_at_its_bounds_does_not_wrap_round(numerator: int) -> None:
    """The largest change there is, on second moments at their bound and on none at all."""
    outer = spec("adam", lr="1000", momentum="0.999999", beta2="0", eps="0.000001")
    for second in (0, ((1 << 31) - 1) ** 2):
        slots = {
            "momentum": {"w": torch.tensor([1 << 47])},
            "second": {"w": torch.tensor([second])},
        }
        state = GlobalState(0, {"w": torch.zeros(1)}, slots, {"w": 0})
        after = outer_step(
            state.copied(),
            {"w": torch.tensor([numerator])},
            denominator=1,
            exponents={"w": 0},
            outer=outer,
        )
        assert after.outer["second"]["w"].item() == (127 << 24) ** 2
        assert -1009 < after.params["w"].item() < -1000  # 128 / 127, times the rate


def test_a_change_far_above_its_second_moment_is_clamped() -> None:
    outer = spec("adam", lr="1", momentum="0", beta2="0.999999", eps="0.000001")
    zero = {"w": torch.tensor([0])}
    state = GlobalState(0, {"w": torch.zeros(1)}, {"momentum": zero, "second": zero}, {"w": 0})
    after = outer_step(
        state.copied(), {"w": torch.tensor([127])}, denominator=1, exponents={"w": 0}, outer=outer
    )
    assert after.params["w"].item() == pytest.approx(-1000, rel=0.05)  # 1 / sqrt(1 - beta2)


@pytest.mark.parametrize("square", [0, 1, 2, 3, 4, 24, 25, (1 << 31) ** 2 - 1, (1 << 31) ** 2])
def test_roots_are_floored_exactly(square: int) -> None:
    assert root(torch.tensor([square])).item() == isqrt(square)


def test_roots_next_to_squares_are_floored_exactly() -> None:
    for shift in range(20, 31):
        base = (1 << shift) + 12345
        squares = torch.tensor([base * base - 1, base * base, base * base + 1])
        assert root(squares).tolist() == [base - 1, base, base]


def path(outer: OuterSpec, merged: list[list[int]], start: list[float]) -> list[list[Fraction]]:
    """Parameters after each round, for merged updates in grid steps of 1/4."""
    params = {"w": torch.tensor(start, dtype=torch.float32)}
    state = GlobalState(0, params, initial_slots(outer, params), {"w": -2})
    found = []
    for numerators in merged:
        state = outer_step(
            state, {"w": torch.tensor(numerators)}, denominator=1, exponents={"w": -2}, outer=outer
        )
        found.append([Fraction(value) for value in state.params["w"].tolist()])
    return found


def fractions(*rounds: str) -> list[list[Fraction]]:
    return [[Fraction(word) for word in text.split()] for text in rounds]


def test_golden_fedavg() -> None:
    """x − g: from (1, −1), g = (1, −1/2) and then (−1/4, 0)."""
    outer = spec("sgd")
    assert path(outer, [[4, -2], [-1, 0]], [1, -1]) == fractions("0 -1/2", "1/4 -1/2")


def test_golden_diloco() -> None:
    """Rate 1/2, momentum 1/2, from (0, 1).

    g = (1, −1/2): m = g = (1, −1/2); step = 1/2 · (m/2 + g) = 1/2 · (3/2, −3/4).
    x = (−3/4, 1 + 3/8).
    g = (0, 1): m = (1/2, −1/4 + 1) = (1/2, 3/4); step = 1/2 · (1/4, 3/8 + 1) = (1/8, 11/16).
    x = (−7/8, 11/8 − 11/16).
    """
    outer = spec("nesterov", lr="0.5", momentum="0.5")
    assert path(outer, [[4, -2], [0, 4]], [0, 1]) == fractions("-3/4 11/8", "-7/8 11/16")


def test_golden_fedadam() -> None:
    """Rate 1/8, β1 = 1/2, β2 = 3/4, eps = 2⁻⁷, from (0, 0); v starts at eps² = 2⁻¹⁴.

    g = (1, −1/4): m = (1/2, −1/8).
    v = 3/4 · 2⁻¹⁴ + 1/4 · (1, 1/16); its root is within 10⁻⁴ of (1/2, 1/8).
    x = −1/8 · m / (√v + eps), exactly 1/8 · 64/65 = 0.1230769 and 1/8 · 16/17 = 0.1176471 at v
    without its start, whose 4.6·10⁻⁵ takes 9·10⁻⁵ and 1.3·10⁻³ of them.
    g = (0, 0): m = (1/4, −1/16), v shrinks by 3/4.
    """
    outer = spec("adam", lr="0.125", momentum="0.5", beta2="0.75", eps="0.0078125")
    first, second = path(outer, [[4, -1], [0, 0]], [0, 0])
    for index, (m, square) in enumerate(((0.5, 1.0), (-0.125, 0.0625))):
        v = 0.75 * 2**-14 + square / 4
        x = -m / (v**0.5 + 2**-7) / 8
        assert float(first[index]) == pytest.approx(x, rel=1e-6)
        x -= m / 2 / ((0.75 * v) ** 0.5 + 2**-7) / 8
        assert float(second[index]) == pytest.approx(x, rel=1e-6)
    assert float(first[0]) == pytest.approx(-0.1230769, rel=1e-3)
    assert float(first[1]) == pytest.approx(0.1176471, rel=1e-2)


def test_golden_sign_descent() -> None:
    """x − 1/16 · sign(g), whatever the size of g; zero stays."""
    outer = spec("sign", lr="0.0625")
    found = path(outer, [[100, -1, 0], [1, 0, -3]], [0, 0, 0])
    assert found == fractions("-1/16 1/16 0", "-1/8 1/16 1/16")


def test_golden_delayed_nesterov() -> None:
    """Rate 1, momentum 1/2, period 2, from (0, 0).

    Round 0, g = (1, 0): x = −g/2 = (−1/2, 0); buffer (1, 0).
    Round 1, g = (1, −1): the mean of the period is (1, −1/2) = m; x −= m/2 + g/2 = (1, −3/4).
    Round 2, g = (0, 2): x −= (0, 1); buffer (0, 2).
    Round 3, g = 0: m = (1, −1/2)/2 + (0, 2)/2 = (1/2, 3/4); x −= m/2 = (1/4, 3/8).
    """
    outer = spec("delayed_nesterov", momentum="0.5", period=2)
    found = path(outer, [[4, 0], [4, -4], [0, 8], [0, 0]], [0, 0])
    assert found == fractions("-1/2 0", "-3/2 3/4", "-3/2 -1/4", "-7/4 -5/8")


def test_equal_changes_move_delayed_nesterov_as_far_as_nesterov_once_a_period() -> None:
    once = path(spec("nesterov", momentum="0.5"), [[4]] * 3, [0])
    often = path(spec("delayed_nesterov", momentum="0.5", period=4), [[4]] * 12, [0])
    assert [often[3], often[7], often[11]] == once


def test_slots_of_another_kind_are_refused() -> None:
    with pytest.raises(MalformedState, match="slots"):
        outer_step(model(SGD), updates(0, 1), denominator=1, exponents=EXPONENT, outer=NESTEROV)
    with pytest.raises(MalformedState, match="slots"):
        outer_step(model(NESTEROV), updates(0, 1), denominator=1, exponents=EXPONENT, outer=SGD)


@pytest.mark.parametrize("exponent", [EXPONENTS.start - 1, EXPONENTS.stop])
def test_an_exponent_out_of_range_is_refused(exponent: int) -> None:
    with pytest.raises(ManifestError, match="exponent"):
        to_units(torch.tensor([1]), 1, exponent)


@pytest.mark.parametrize("denominator", [0, -1, 65537])
def test_a_denominator_out_of_range_is_refused(denominator: int) -> None:
    with pytest.raises(ManifestError, match="denominator"):
        outer_step(
            model(SGD), updates(0, 1), denominator=denominator, exponents=EXPONENT, outer=SGD
        )


def test_numerators_of_another_model_are_refused() -> None:
    merged = updates(0, 1)
    with pytest.raises(MalformedState):
        outer_step(model(SGD), {"w": merged["w"]}, denominator=1, exponents=EXPONENT, outer=SGD)
    with pytest.raises(MalformedState):
        outer_step(model(SGD), merged, denominator=1, exponents={"w": -11}, outer=SGD)


@pytest.mark.parametrize("outer", [SGD, NESTEROV])
def test_the_next_model_takes_the_memory_of_the_last(outer: OuterSpec) -> None:
    """Both of a model that fills the machine could not be held."""
    state = model(outer)
    tensors = [*state.params.values(), *(t for kept in state.outer.values() for t in kept.values())]
    before = [(t.data_ptr(), t.clone()) for t in tensors]
    after = outer_step(state, updates(0, 1), denominator=1, exponents=EXPONENT, outer=outer)
    found = [*after.params.values(), *(t for kept in after.outer.values() for t in kept.values())]
    for (place, was), now in zip(before, found, strict=True):
        assert now.data_ptr() == place
        assert not torch.equal(now, was)
