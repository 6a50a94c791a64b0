"""The outer step: a round's merged update moves the global model.

Rule of this file: integers (`fixed`) up to the last subtraction, so that order, threads and devices
cannot matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from atoll.numerics.errors import MalformedState
from atoll.numerics.fixed import (
    ROOT_BITS,
    ROOT_LIMIT,
    UNIT_BITS,
    divided,
    fixed,
    limited,
    ratio,
    rest,
    root,
    times,
    to_units,
)
from atoll.numerics.state import GlobalState, Tensors
from atoll.numerics.tensors import check_layout
from atoll.protocol.manifest import OuterSpec

Stepped: TypeAlias = tuple[Tensor, Tensors]
"""An outer step of one parameter, and the slots after it."""
PIECE = 1 << 20
"""Elements stepped at once; each for itself, so that the result does not depend on it."""
OuterKind: TypeAlias = Callable[[Tensor, Tensors, OuterSpec, int], Stepped]


def outer_step(
    state: GlobalState,
    numerators: Mapping[str, Tensor],
    denominator: int,
    exponents: Mapping[str, int],
    outer: OuterSpec,
) -> GlobalState:
    """The next round's global model.

    Args:
        state: the global model that the round started from; its tensors are overwritten, and are
            those of the model that comes back.
        numerators: integers by name; the merged update (global − local, averaged) of a tensor is
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
    if set(state.outer) != set(outer.properties.slots):
        raise MalformedState(f"the state's slots {sorted(state.outer)} are not {outer.kind}'s")
    for name, p in state.params.items():
        for span in _spans(p.numel()):
            change = to_units(
                numerators[name].view(-1)[span].long(), denominator, state.exponents[name]
            )
            kept = {slot: tensors[name].view(-1)[span] for slot, tensors in state.outer.items()}
            step, stepped = OUTER_STEPS[outer.kind](change, kept, outer, state.round)
            for slot, tensor in stepped.items():
                kept[slot].copy_(tensor)
            own = p.view(-1)[span]
            own.copy_(own.double() - times(step, outer.lr).double() * 2.0**-UNIT_BITS)
    return replace(state, round=state.round + 1, exponents=dict(exponents))


def _spans(count: int) -> Iterator[slice]:
    """An embedding is a third of a small model, and a step's own memory forty bytes an element."""
    return (slice(start, start + PIECE) for start in range(0, count, PIECE))


def _outer_sgd(change: Tensor, _slots: Tensors, _outer: OuterSpec, _round: int) -> Stepped:
    return change, {}


def _outer_sign(change: Tensor, _slots: Tensors, _outer: OuterSpec, _round: int) -> Stepped:
    return change.sign() << UNIT_BITS, {}


def _outer_nesterov(change: Tensor, slots: Tensors, outer: OuterSpec, _round: int) -> Stepped:
    momentum = limited(times(slots["momentum"], outer.momentum) + change)
    return times(momentum, outer.momentum) + change, {"momentum": momentum}


def _outer_delayed(change: Tensor, slots: Tensors, outer: OuterSpec, round: int) -> Stepped:
    """In the last round of a period momentum takes in the period's mean change, and acts."""
    share, buffer = divided(change, outer.period), limited(slots["buffer"] + change)
    if (round + 1) % outer.period:
        return share, {"buffer": buffer, "momentum": slots["momentum"]}
    mean = divided(buffer, outer.period)
    momentum = limited(times(slots["momentum"], outer.momentum) + mean)
    after = {"buffer": torch.zeros_like(buffer), "momentum": momentum}
    return times(momentum, outer.momentum) + share, after


def _outer_adam(change: Tensor, slots: Tensors, outer: OuterSpec, _round: int) -> Stepped:
    momentum = times(slots["momentum"], outer.momentum) + rest(change, outer.momentum)
    coarse = divided(change, 1 << (UNIT_BITS - ROOT_BITS)).clamp(-ROOT_LIMIT, ROOT_LIMIT)
    second = times(slots["second"], outer.beta2) + rest(coarse * coarse, outer.beta2)
    step = ratio(momentum, root(second) + fixed(outer.eps))
    return step, {"momentum": momentum, "second": second}


OUTER_STEPS: dict[str, OuterKind] = {
    "sgd": _outer_sgd,
    "nesterov": _outer_nesterov,
    "adam": _outer_adam,
    "sign": _outer_sign,
    "delayed_nesterov": _outer_delayed,
}
