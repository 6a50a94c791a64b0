"""The outer step: a round's merged update moves the global model.

Rule of this file: integers (`fixed`) up to the last subtraction, so that order, threads and devices
cannot matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
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
from atoll.numerics.kernels.freed_memory import let_go_of_pages
from atoll.numerics.state import GlobalState, Tensors
from atoll.numerics.tensors import check_layout
from atoll.protocol.method_spec import OuterSpec

PIECE = 1 << 20
"""Elements stepped at once; each for itself, so that the result does not depend on it."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of one parameter before its outer step.

    Attributes:
        change: the merged change, in units of `fixed`.
        slots: of the outer optimiser, by name.
        round: that the change is of.
    """

    change: Tensor
    slots: Tensors
    round: int


@dataclass(frozen=True, slots=True)
class Stepped:
    """The step of a slice, not yet multiplied by the rate, and the slots after it."""

    step: Tensor
    slots: Tensors = field(default_factory=dict)


OuterKind: TypeAlias = Callable[[Slice, OuterSpec], Stepped]


def outer_step(
    state: GlobalState,
    numerators: Mapping[str, Tensor],
    *,
    denominator: int,
    exponents: Mapping[str, int],
    outer: OuterSpec,
) -> GlobalState:
    """The next round's global model: θ(t) = θ(t−1) − lr · step(Δ), Δ the mean pseudo-gradient.

    In integers, since everybody has to come to the same model and each may add in another order on
    another device: fp32 sums differ in the last bit, and a certificate is of all bits.

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
            stepped = OUTER_STEPS[outer.kind](Slice(change, kept, state.round), outer)
            for slot, tensor in stepped.slots.items():
                kept[slot].copy_(tensor)
            values = p.view(-1)[span]
            moved = times(stepped.step, outer.lr).double() * 2.0**-UNIT_BITS
            values.copy_(values.double() - moved)
        for tensors in state.outer.values():
            let_go_of_pages(tensors[name])
    return replace(state, round=state.round + 1, exponents=dict(exponents))


def _spans(count: int) -> Iterator[slice]:
    """An embedding is a third of a small model, and a step's own memory forty bytes an element."""
    return (slice(start, start + PIECE) for start in range(0, count, PIECE))


def _outer_sgd(s: Slice, _outer: OuterSpec) -> Stepped:
    return Stepped(s.change)


def _outer_sign(s: Slice, _outer: OuterSpec) -> Stepped:
    return Stepped(s.change.sign() << UNIT_BITS)


def _outer_nesterov(s: Slice, outer: OuterSpec) -> Stepped:
    momentum = limited(times(s.slots["momentum"], outer.momentum) + s.change)
    return Stepped(times(momentum, outer.momentum) + s.change, {"momentum": momentum})


def _outer_delayed(s: Slice, outer: OuterSpec) -> Stepped:
    """In the last round of a period momentum takes in the period's mean change, and acts."""
    share, buffer = divided(s.change, outer.period), limited(s.slots["buffer"] + s.change)
    if (s.round + 1) % outer.period:
        return Stepped(share, {"buffer": buffer, "momentum": s.slots["momentum"]})
    mean = divided(buffer, outer.period)
    momentum = limited(times(s.slots["momentum"], outer.momentum) + mean)
    after = {"buffer": torch.zeros_like(buffer), "momentum": momentum}
    return Stepped(times(momentum, outer.momentum) + share, after)


def _outer_adam(s: Slice, outer: OuterSpec) -> Stepped:
    momentum = times(s.slots["momentum"], outer.momentum) + rest(s.change, outer.momentum)
    coarse = divided(s.change, 1 << (UNIT_BITS - ROOT_BITS)).clamp(-ROOT_LIMIT, ROOT_LIMIT)
    second = times(s.slots["second"], outer.beta2) + rest(coarse * coarse, outer.beta2)
    step = ratio(momentum, root(second) + fixed(outer.eps))
    return Stepped(step, {"momentum": momentum, "second": second})


OUTER_STEPS: dict[str, OuterKind] = {
    "sgd": _outer_sgd,
    "nesterov": _outer_nesterov,
    "adam": _outer_adam,
    "sign": _outer_sign,
    "delayed_nesterov": _outer_delayed,
}
