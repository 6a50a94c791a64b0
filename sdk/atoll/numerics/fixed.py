"""Fixed-point arithmetic of the outer step: int64 in units of 2**-40, the same bits everywhere.

Decimal factors are rounded once to multiples of 2**-24. Bounds: a change is below 2**47 (128 in a
parameter's own unit, as a grid step is at most 1), a slot stays within 2**52, or 2**62 for second
moments, and a step below 2**53 times a rate of at most 1000 fits 63 bits.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

from torch import Tensor

from atoll.errors import ManifestError

UNIT_BITS = 40
RATE_BITS = 24
EXPONENTS = range(-60, 1)
"""Grid exponents for which no intermediate exceeds 62 bits."""
MAX_DENOMINATOR = 1 << 16
"""The largest (n' − f')(n' − 2f') with at most 256 seats."""
SLOT_LIMIT = 1 << 52  # 4096 in a parameter's own unit: only a runaway job gets there
ROOT_BITS = 24
"""Second moments count 2**-48, so that their roots count 2**-24."""
ROOT_LIMIT = (1 << 31) - 1  # its square fits 62 bits
RATIO_LIMIT = 1 << 12  # in a parameter's own unit, as a slot's: so a step stays within 2^52


def to_units(numerator: Tensor, denominator: int, exponent: int) -> Tensor:
    """numerator / denominator · 2**exponent in units of 2**-40, halves up.

    Raises:
        ManifestError: the denominator or the exponent is out of range.
    """
    if not 1 <= denominator <= MAX_DENOMINATOR:
        raise ManifestError(f"a merge denominator of {denominator} is not in 1…{MAX_DENOMINATOR}")
    if exponent not in EXPONENTS:
        raise ManifestError(f"grid exponent {exponent} is not in {EXPONENTS}")
    shift = exponent + UNIT_BITS
    divisor = denominator << max(0, -shift)
    whole = numerator // divisor
    rest = (numerator - whole * divisor) << max(0, shift)
    return (whole << max(0, shift)) + (rest + divisor // 2) // divisor


def limited(slot: Tensor) -> Tensor:
    return slot.clamp(-SLOT_LIMIT, SLOT_LIMIT)


def fixed(text: str) -> int:
    """A decimal as a multiple of 2**-24, rounded half to even."""
    return int((Decimal(text) * (1 << RATE_BITS)).to_integral_value(ROUND_HALF_EVEN))


def times(units: Tensor, factor: str) -> Tensor:
    """units · factor, halves up; |units| ≤ 2**53 and factor ≤ 1000, or ≤ 2**62 and factor ≤ 1."""
    return _scaled(units, fixed(factor))


def rest(units: Tensor, factor: str) -> Tensor:
    """units · (1 − factor): with `_times` by the factor, a weighted mean."""
    return _scaled(units, (1 << RATE_BITS) - fixed(factor))


def _scaled(units: Tensor, fixed: int) -> Tensor:
    high, low = units >> RATE_BITS, units & ((1 << RATE_BITS) - 1)
    return high * fixed + ((low * fixed + (1 << (RATE_BITS - 1))) >> RATE_BITS)


def divided(units: Tensor, divisor: int) -> Tensor:
    """units / divisor, halves up; |units| below 2**61."""
    return (2 * units + divisor) // (2 * divisor)


def root(squares: Tensor) -> Tensor:
    """⌊√squares⌋ of integers up to 2**62 + 1: fp64 is off by one at most, integers decide."""
    near = squares.double().sqrt().long()
    near = near - (near * near > squares).long()
    return near + ((near + 1) * (near + 1) <= squares).long()


def ratio(units: Tensor, divisor: Tensor) -> Tensor:
    """units / (divisor · 2**-24) in units of 2**-40 again, halves up, clamped to ±4096."""
    whole = units // divisor
    part = ((units - whole * divisor) << RATE_BITS) + divisor // 2
    limit = RATIO_LIMIT << UNIT_BITS
    most = limit >> RATE_BITS
    quotient = (whole.clamp(-most, most) << RATE_BITS) + part // divisor
    # Below the limit what is left of the quotient must not be added to the limit.
    return quotient.clamp(-limit, limit).where(whole >= -most, -limit)
