"""How far a replay lies from what a provider states, where bits differ between machines.

Rule of this file: every ratio is over the *replayed* movement, never the claimed one, tensor by
tensor in fp64, so a provider cannot widen its tolerance by what it states. θ is a segment's
replayed closing state, θ' the claimed one, Δθ and Δθ' their distances from the shared opening.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor

from atoll.bits.state import SeatState, Tensors
from atoll.law.manifest import ToleranceSpec
from atoll.train.coherence import sketch

FP32_ROUNDOFF = 2.0**-24


@dataclass(frozen=True, slots=True)
class Distance:
    """One tensor of one part of the state (`params`, or a slot: `m`, `v`, `feedback`).

    Attributes:
        rho: ‖θ' − θ‖₂, less what storing both in fp32 rounds away in k steps, 2k · 2⁻²⁴ · ‖θ‖₂,
            over ‖Δθ‖₂; infinite where what is claimed is not finite, or nothing moved and yet
            they differ.
        work: ‖Δθ'‖₂ / ‖Δθ‖₂; 1 where nothing moved.
    """

    part: str
    name: str
    rho: float
    work: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """A segment as claimed and as replayed from the same opening.

    Attributes:
        opening: what movement is counted from.
        steps: finite steps.
        taken_in: how many of the steps began by taking a merged fragment in.
    """

    opening: SeatState
    claimed: SeatState
    closing: SeatState
    steps: int
    taken_in: int = 0


def distances(segment: Replayed) -> Iterator[Distance]:
    """Every tensor's distance."""
    before, stated = state_parts(segment.opening), state_parts(segment.claimed)
    for part, tensors in state_parts(segment.closing).items():
        for name, ours in tensors.items():
            trio = (before[part][name].double(), stated[part][name].double(), ours.double())
            yield _distance(part, name, trio, segment.steps + segment.taken_in)


def excess(found: Iterable[Distance], losses: tuple[float, float], limits: ToleranceSpec) -> float:
    """The largest of all measures over its limit: above 1 is out of tolerance.

    `losses` are the segment's mean losses as replayed and as claimed, NaN where it diverged.
    """
    loss, claimed = losses
    both_diverged = math.isnan(loss) and math.isnan(claimed)
    measures = [
        0.0 if both_diverged else _over(abs(claimed - loss), abs(loss)) / float(limits.loss)
    ]
    slack = 1.0 - float(limits.work)
    for distance in found:
        limit = limits.params if distance.part == "params" else limits.slots
        measures += [distance.rho / float(limit), (1.0 - distance.work) / slack]
    return max(measures)


def residual(segment: Replayed, key: int) -> bytes:
    """The direction of θ' − θ over all parameters, each tensor as large as its ρ: a sketch."""
    ours, theirs, before = (
        state.params for state in (segment.closing, segment.claimed, segment.opening)
    )
    rows = []
    for name in sorted(ours):
        moved = _norm(ours[name].double() - before[name].double())
        apart = theirs[name].double() - ours[name].double()
        rows.append((apart / moved if moved else apart * 0.0).flatten().numpy())
    return sketch(rows, key).tobytes()


def state_parts(state: SeatState) -> dict[str, Tensors]:
    """The tensors that are compared, by part."""
    return {"params": state.params, "m": state.m, "v": state.v, "feedback": state.feedback}


def _distance(
    part: str, name: str, trio: tuple[Tensor, Tensor, Tensor], roundings: int
) -> Distance:
    opening, claimed, closing = trio
    apart = _norm(claimed - closing)
    if not math.isfinite(apart):
        return Distance(part, name, math.inf, 0.0)
    moved = _norm(closing - opening)
    rounded = 2 * roundings * FP32_ROUNDOFF * _norm(closing)
    work = _norm(claimed - opening) / moved if moved else 1.0
    return Distance(part, name, _over(max(0.0, apart - rounded), moved), work)


def _norm(tensor: Tensor) -> float:
    return float(tensor.square().sum().sqrt())


def _over(value: float, scale: float) -> float:
    """value / scale; 0 for nothing over nothing, infinite where that is no number."""
    if value == 0.0:
        return 0.0
    return value / scale if scale and math.isfinite(value) else math.inf


def default_tolerance() -> ToleranceSpec:
    """What calibration proposes for small models and short segments (docs/numerics.md)."""
    return ToleranceSpec(params="0.001", slots="0.0002", loss="0.0001", work="0.5", coherence="0.2")
