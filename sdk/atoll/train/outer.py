"""The outer step: the merged update moves the global model, in integers.

Rule of this file: everything up to the last subtraction is int64 in units of 2**-40, so that order,
threads and devices cannot matter. Decimal rates are rounded once to multiples of 2**-24.
Sources: DiLoCo (Douillard et al. 2023); Nesterov momentum as in PyTorch's SGD.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal

from torch import Tensor

from atoll.errors import ManifestError
from atoll.protocol.manifest import OuterSpec
from atoll.train.errors import MalformedState
from atoll.train.state import GlobalState, Tensors
from atoll.train.tensors import check_layout

UNIT_BITS = 40
RATE_BITS = 24
EXPONENTS = range(-60, 1)
"""Grid exponents for which no intermediate exceeds 62 bits."""
MAX_DENOMINATOR = 1 << 16
"""The largest (n' − f')(n' − 2f') with at most 256 seats."""
_MOMENTUM_LIMIT = 1 << 52  # 4096 in a parameter's own unit: only a runaway job gets there


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
            numerator / denominator · 2**state.exponents[name], at most 127 grid steps.
        denominator: 1 to 65536.
        exponents: the next round's grid exponents, which the new state carries.
        outer: kind, rate and momentum.

    Raises:
        MalformedState: numerators or exponents are not of the model's tensors.
        ManifestError: a grid exponent or the denominator is out of range.
    """
    check_layout("merged update", numerators, {n: p.shape for n, p in state.params.items()})
    if exponents.keys() != state.params.keys():
        raise MalformedState("merged update: exponents are not one a tensor")
    if not 1 <= denominator <= MAX_DENOMINATOR:
        raise ManifestError(f"a merge denominator of {denominator} is not in 1…{MAX_DENOMINATOR}")
    params: Tensors = {}
    momentum: Tensors = {}
    for name, p in state.params.items():
        change = to_units(numerators[name], denominator, state.exponents[name])
        if outer.kind == "nesterov":
            momentum[name] = _momentum(state.momentum[name], change, outer.momentum)
            change = _times(momentum[name], outer.momentum) + change
        change = _times(change, outer.lr)
        params[name] = (p.double() - change.double() * 2.0**-UNIT_BITS).float()
    return GlobalState(state.round + 1, params, momentum, dict(exponents))


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


def _momentum(previous: Tensor, change: Tensor, factor: str) -> Tensor:
    return (_times(previous, factor) + change).clamp(-_MOMENTUM_LIMIT, _MOMENTUM_LIMIT)


def _times(units: Tensor, factor: str) -> Tensor:
    """units · factor, halves up; |units| < 2**53 and 0 ≤ factor ≤ 1000."""
    fixed = int((Decimal(factor) * (1 << RATE_BITS)).to_integral_value(ROUND_HALF_EVEN))
    high, low = units >> RATE_BITS, units & ((1 << RATE_BITS) - 1)
    return high * fixed + ((low * fixed + (1 << (RATE_BITS - 1))) >> RATE_BITS)
