"""The outer step: the merged update moves the global model, in integers.

Rule of this file: everything up to the last subtraction is int64 in units of 2**-40, so that order,
threads and devices cannot matter. Decimal rates are rounded once to multiples of 2**-24.

A kind turns the change of this round (global − local, merged) and its slots, the tensors that it
keeps from round to round, into a step and the next slots. Bounds: a change is below 2**47 (128 in a
parameter's own unit, as a grid step is at most 1), a slot stays within 2**52, or 2**62 for second
moments, and a step below 2**53 times a rate of at most 1000 fits 63 bits.

Sources: DiLoCo (Douillard et al. 2023); Nesterov momentum as in PyTorch's SGD; FedAdam (Reddi et
al. 2021, algorithm 2); delayed Nesterov (Liu et al. 2024, algorithm 3, c = 0); sign descent
(Bernstein et al. 2018), with which DeMo (Peng et al. 2024) takes its step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from typing import TypeAlias

import torch
from torch import Tensor

from atoll.errors import ManifestError
from atoll.protocol.manifest import OuterSpec
from atoll.train.errors import MalformedState
from atoll.train.layout import OUTER_SLOTS
from atoll.train.state import GlobalState, Tensors
from atoll.train.tensors import check_layout

UNIT_BITS = 40
RATE_BITS = 24
EXPONENTS = range(-60, 1)
"""Grid exponents for which no intermediate exceeds 62 bits."""
MAX_DENOMINATOR = 1 << 16
"""The largest (n' − f')(n' − 2f') with at most 256 seats."""
_SLOT_LIMIT = 1 << 52  # 4096 in a parameter's own unit: only a runaway job gets there
_ROOT_BITS = 24
"""Second moments count 2**-48, so that their roots count 2**-24."""
_ROOT_LIMIT = (1 << 31) - 1
_RATIO_LIMIT = 1 << 12

Step: TypeAlias = Callable[[Tensor, Tensors, OuterSpec, int], tuple[Tensor, Tensors]]


def opening_slots(outer: OuterSpec, params: Tensors) -> dict[str, Tensors]:
    """The slots of round 0: zero, and eps² for second moments, as FedAdam starts them."""
    start = {"second": _fixed(outer.eps) ** 2}
    return {
        slot: {
            name: torch.full(p.shape, start.get(slot, 0), dtype=torch.int64)
            for name, p in params.items()
        }
        for slot in OUTER_SLOTS[outer.kind]
    }


def outer_step(
    state: GlobalState,
    numerators: Mapping[str, Tensor],
    denominator: int,
    exponents: Mapping[str, int],
    outer: OuterSpec,
) -> GlobalState:
    """The next round's global model.

    Args:
        state: the global model that the round started from.
        numerators: int64 by name; the merged update (global − local, averaged) of a tensor is
            numerator / denominator · 2**state.exponents[name], below 128 in magnitude.
        denominator: 1 to 65536.
        exponents: the next round's grid exponents, which the new state carries.
        outer: the manifest's choice.

    Raises:
        MalformedState: numerators, exponents or slots are not of the model's tensors and kind.
        ManifestError: a grid exponent or the denominator is out of range.
    """
    check_layout("merged update", numerators, {n: p.shape for n, p in state.params.items()})
    if exponents.keys() != state.params.keys():
        raise MalformedState("merged update: exponents are not one a tensor")
    if set(state.outer) != set(OUTER_SLOTS[outer.kind]):
        raise MalformedState(f"the state's slots {sorted(state.outer)} are not {outer.kind}'s")
    if not 1 <= denominator <= MAX_DENOMINATOR:
        raise ManifestError(f"a merge denominator of {denominator} is not in 1…{MAX_DENOMINATOR}")
    params: Tensors = {}
    slots: dict[str, Tensors] = {slot: {} for slot in OUTER_SLOTS[outer.kind]}
    for name, p in state.params.items():
        change = to_units(numerators[name], denominator, state.exponents[name])
        before = {slot: tensors[name] for slot, tensors in state.outer.items()}
        step, after = _STEPS[outer.kind](change, before, outer, state.round)
        for slot, tensor in after.items():
            slots[slot][name] = tensor
        params[name] = (p.double() - _times(step, outer.lr).double() * 2.0**-UNIT_BITS).float()
    return GlobalState(state.round + 1, params, slots, dict(exponents))


def to_units(numerator: Tensor, denominator: int, exponent: int) -> Tensor:
    """numerator / denominator · 2**exponent in units of 2**-40, halves up.

    Raises:
        ManifestError: the exponent is outside `EXPONENTS`.
    """
    if exponent not in EXPONENTS:
        raise ManifestError(f"grid exponent {exponent} is not in {EXPONENTS}")
    shift = exponent + UNIT_BITS
    divisor = denominator << max(0, -shift)
    whole = numerator // divisor
    rest = (numerator - whole * divisor) << max(0, shift)
    return (whole << max(0, shift)) + (rest + divisor // 2) // divisor


def _sgd(change: Tensor, _slots: Tensors, _outer: OuterSpec, _round: int) -> tuple[Tensor, Tensors]:
    return change, {}


def _sign(
    change: Tensor, _slots: Tensors, _outer: OuterSpec, _round: int
) -> tuple[Tensor, Tensors]:
    return change.sign() << UNIT_BITS, {}


def _nesterov(
    change: Tensor, slots: Tensors, outer: OuterSpec, _round: int
) -> tuple[Tensor, Tensors]:
    momentum = _limited(_times(slots["momentum"], outer.momentum) + change)
    return _times(momentum, outer.momentum) + change, {"momentum": momentum}


def _delayed_nesterov(
    change: Tensor, slots: Tensors, outer: OuterSpec, round: int
) -> tuple[Tensor, Tensors]:
    """In the last round of a period momentum takes in the period's mean change, and acts."""
    share, buffer = _divided(change, outer.period), _limited(slots["buffer"] + change)
    if (round + 1) % outer.period:
        return share, {"buffer": buffer, "momentum": slots["momentum"]}
    mean = _divided(buffer, outer.period)
    momentum = _limited(_times(slots["momentum"], outer.momentum) + mean)
    after = {"buffer": torch.zeros_like(buffer), "momentum": momentum}
    return _times(momentum, outer.momentum) + share, after


def _adam(change: Tensor, slots: Tensors, outer: OuterSpec, _round: int) -> tuple[Tensor, Tensors]:
    momentum = _times(slots["momentum"], outer.momentum) + _rest(change, outer.momentum)
    coarse = _divided(change, 1 << (UNIT_BITS - _ROOT_BITS)).clamp(-_ROOT_LIMIT, _ROOT_LIMIT)
    second = _times(slots["second"], outer.beta2) + _rest(coarse * coarse, outer.beta2)
    step = _ratio(momentum, _root(second) + _fixed(outer.eps))
    return step, {"momentum": momentum, "second": second}


_STEPS: dict[str, Step] = {
    "sgd": _sgd,
    "nesterov": _nesterov,
    "adam": _adam,
    "sign": _sign,
    "delayed_nesterov": _delayed_nesterov,
}


def _limited(slot: Tensor) -> Tensor:
    return slot.clamp(-_SLOT_LIMIT, _SLOT_LIMIT)


def _fixed(text: str) -> int:
    """A decimal as a multiple of 2**-24, rounded half to even."""
    return int((Decimal(text) * (1 << RATE_BITS)).to_integral_value(ROUND_HALF_EVEN))


def _times(units: Tensor, factor: str) -> Tensor:
    """units · factor, halves up; |units| ≤ 2**53 and factor ≤ 1000, or ≤ 2**62 and factor ≤ 1."""
    return _scaled(units, _fixed(factor))


def _rest(units: Tensor, factor: str) -> Tensor:
    """units · (1 − factor): with `_times` by the factor, a weighted mean."""
    return _scaled(units, (1 << RATE_BITS) - _fixed(factor))


def _scaled(units: Tensor, fixed: int) -> Tensor:
    high, low = units >> RATE_BITS, units & ((1 << RATE_BITS) - 1)
    return high * fixed + ((low * fixed + (1 << (RATE_BITS - 1))) >> RATE_BITS)


def _divided(units: Tensor, divisor: int) -> Tensor:
    """units / divisor, halves up; |units| below 2**61."""
    return (2 * units + divisor) // (2 * divisor)


def _root(squares: Tensor) -> Tensor:
    """⌊√squares⌋ of integers up to 2**62 + 1: fp64 is off by one at most, integers decide."""
    near = squares.double().sqrt().long()
    near = near - (near * near > squares).long()
    return near + ((near + 1) * (near + 1) <= squares).long()


def _ratio(units: Tensor, divisor: Tensor) -> Tensor:
    """units / (divisor · 2**-24) in units of 2**-40 again, halves up, clamped to ±4096."""
    whole = units // divisor
    part = ((units - whole * divisor) << RATE_BITS) + divisor // 2
    limit = _RATIO_LIMIT << UNIT_BITS
    room = whole.clamp(-(limit >> RATE_BITS), limit >> RATE_BITS)
    return ((room << RATE_BITS) + part // divisor).clamp(-limit, limit)
