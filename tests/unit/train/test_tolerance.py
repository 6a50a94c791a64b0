"""The distance test: each case is a valid replay with one thing broken."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.train.factories import seat_state
from torch import Tensor

from atoll.bits.layout import SeatLayout
from atoll.bits.state import SeatState
from atoll.train.tolerance import (
    Distance,
    Replayed,
    default_tolerance,
    distances,
    excess,
    residual,
    state_parts,
)

LIMITS = default_tolerance()
LOSSES = (2.5, 2.5)
PARTS = ("params", "m", "v", "feedback")
SHAPES = {"a.weight": (3, 5), "b.weight": (4,)}
LAYOUT = SeatLayout(SHAPES, SHAPES, SHAPES, SHAPES)


def changed(
    state: SeatState, part: str, name: str, change: Callable[[Tensor], Tensor]
) -> SeatState:
    tensors = state_parts(state)[part]
    return replace(state, **{part: {**tensors, name: change(tensors[name])}})


def honest(scale: float = 1.0) -> Replayed:
    """A segment of two steps whose replay moved every tensor by `scale` times a normal one."""
    opening, noise = seat_state(0, layout=LAYOUT), seat_state(1, layout=LAYOUT)
    moved = {
        part: {name: t + scale * state_parts(noise)[part][name] for name, t in tensors.items()}
        for part, tensors in state_parts(opening).items()
    }
    closing = replace(opening, **moved)
    return Replayed(opening, closing, closing, steps=2)


def measured(segment: Replayed) -> dict[tuple[str, str], Distance]:
    return {(d.part, d.name): d for d in distances(segment)}


def verdict(segment: Replayed, losses: tuple[float, float] = LOSSES) -> float:
    return excess(distances(segment), losses, LIMITS)


def test_the_same_state_is_no_distance_away() -> None:
    found = measured(honest())
    assert {part for part, _ in found} == set(PARTS)
    assert all((d.rho, d.work) == (0.0, 1.0) for d in found.values())
    assert verdict(honest()) == 0.0


@pytest.mark.parametrize("part", PARTS)
def test_rho_is_the_share_of_the_replays_movement(part: str) -> None:
    segment = honest()
    moved = state_parts(segment.closing)[part]["a.weight"]
    moved = moved - state_parts(segment.opening)[part]["a.weight"]
    claimed = changed(segment.claimed, part, "a.weight", lambda t: t + moved * 0.01)
    found = measured(replace(segment, claimed=claimed))
    assert found.pop((part, "a.weight")).rho == pytest.approx(0.01, rel=1e-3)
    assert all(d.rho == 0.0 for d in found.values())


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_every_part_has_its_limit(part: str, factor: float) -> None:
    segment = honest()
    limit = float(LIMITS.params if part == "params" else LIMITS.slots)
    step = state_parts(segment.closing)[part]["b.weight"]
    step = step - state_parts(segment.opening)[part]["b.weight"]
    claimed = changed(segment.claimed, part, "b.weight", lambda t: t + step * limit * factor)
    assert verdict(replace(segment, claimed=claimed)) == pytest.approx(factor, rel=0.02)


@given(st.floats(1.0, 1e6))
def test_claiming_more_movement_widens_nothing(factor: float) -> None:
    """The difference is a small share of what is claimed, and no small share of the replay."""
    segment = honest()
    before = segment.opening.params["a.weight"]
    claimed = changed(
        segment.claimed, "params", "a.weight", lambda t: before + (t - before) * (1.0 + factor)
    )
    assert verdict(replace(segment, claimed=claimed)) > 1.0


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-7])
def test_doing_nothing_is_out_of_tolerance_however_little_was_to_be_done(scale: float) -> None:
    segment = honest(scale)
    idle = replace(segment, claimed=segment.opening)
    assert verdict(segment) == 0.0
    assert verdict(idle) > 1.0


def test_work_is_demanded_where_rounding_hides_the_difference() -> None:
    """Movements of about one unit in the last place: ρ tolerates them, the work bound does not."""
    segment = honest(2e-7)
    idle = changed(
        segment.claimed, "params", "a.weight", lambda _: segment.opening.params["a.weight"]
    )
    found = measured(replace(segment, claimed=idle))[("params", "a.weight")]
    assert found.rho < float(LIMITS.params)
    assert found.work == 0.0
    assert verdict(replace(segment, claimed=idle)) > 1.0


def test_what_storage_rounds_away_is_tolerated() -> None:
    segment = honest(1e-6)
    up = torch.full((3, 5), math.inf)
    claimed = changed(segment.claimed, "params", "a.weight", lambda t: torch.nextafter(t, up))
    found = measured(replace(segment, claimed=claimed))[("params", "a.weight")]
    assert (found.rho, found.work) == (0.0, pytest.approx(1.0, abs=0.2))
    assert verdict(replace(segment, claimed=claimed)) < 1.0


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38])
def test_what_is_not_finite_is_out_of_tolerance(part: str, value: float) -> None:
    segment = honest()

    def poison(tensor: Tensor) -> Tensor:
        poisoned = tensor.clone()
        poisoned.view(-1)[0] = value
        return poisoned

    claimed = changed(segment.claimed, part, "a.weight", poison)
    assert verdict(replace(segment, claimed=claimed)) > 1.0


def test_a_tensor_that_does_not_move_must_not_be_moved() -> None:
    opening = seat_state(0, layout=LAYOUT)
    still = Replayed(opening, opening, opening, steps=2)
    assert verdict(still) == 0.0
    nudged = changed(opening, "m", "b.weight", lambda t: t * 1.01)
    assert verdict(replace(still, claimed=nudged)) == math.inf


@pytest.mark.parametrize(
    ("losses", "within"),
    [
        ((2.5, 2.5001), True),
        ((2.5, 2.502), False),
        ((2.5, 2.498), False),
        ((2.5, math.nan), False),
        ((2.5, math.inf), False),
        ((math.nan, 2.5), False),
        ((math.nan, math.nan), True),
        ((0.0, 0.0), True),
        ((0.0, 1e-9), False),
    ],
)
def test_the_loss_has_its_limit(losses: tuple[float, float], within: bool) -> None:
    assert (verdict(honest(), losses) <= 1.0) is within


def test_a_residual_is_a_direction() -> None:
    segment = honest()
    near = {n: t * (1.0 + 1e-3) for n, t in segment.claimed.params.items()}
    far = {n: t + (near[n] - t) * 4.0 for n, t in segment.claimed.params.items()}
    first = residual(replace(segment, claimed=replace(segment.claimed, params=near)), key=3)
    second = residual(replace(segment, claimed=replace(segment.claimed, params=far)), key=3)
    a, b = (torch.frombuffer(bytearray(x), dtype=torch.float32) for x in (first, second))
    assert float(a @ b) > 0.99
    assert not any(residual(segment, key=3))
