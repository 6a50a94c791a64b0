"""exp, log, sigmoid, square roots: the same bits on every machine.

Only IEEE addition and multiplication of separate fp32 tensors are used, each rounded once, and
division and roots through fp64, where every library gives the one rounding. Nothing here may be
fused: this file runs eager. Errors are stated in ulp of the fp32 result and tested against mpmath.
"""

from __future__ import annotations

import math
from decimal import Decimal, getcontext
from typing import Final

import torch
from torch import Tensor

EXP_UNDERFLOW: Final = -86.0
"""exp is 0 below this: no result of this module is ever subnormal."""
EXP_MAX_ULP: Final = 1.0
LOG_MAX_ULP: Final = 2.0
SIGMOID_MAX_ULP: Final = 2.5
RSQRT_MAX_ULP: Final = 1.5


_LOG2E: Final = 1.44269504  # rounded: that only moves the ends of the polynomial's range
_LN2_HIGH: Final = 0.693359375
"""Nine bits of ln 2: its product with a whole number up to 2^15 is exact."""
_LN2_LOW: Final = -2.12194440e-4  # ln 2 less _LN2_HIGH
_EXP: Final = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3,
    4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
)  # fmt: skip
"""Moshier's minimax polynomial of (e^r − 1 − r) / r² on |r| ≤ ln(2) / 2 (Cephes, expf)."""


def exp(x: Tensor) -> Tensor:
    """e^x of fp32, as fp32; 0 below EXP_UNDERFLOW, inf where fp32 ends; NaN stays NaN."""
    inside = x.clamp(EXP_UNDERFLOW, 89.0)
    whole = torch.round(inside * _LOG2E)
    rest = inside - whole * _LN2_HIGH
    rest = rest - whole * _LN2_LOW
    y = torch.full_like(rest, _EXP[0])
    for coefficient in _EXP[1:]:
        y = y * rest + coefficient
    y = y * (rest * rest) + rest + 1.0
    # In two factors: the power reaches 128, and 2^128 is no fp32.
    half_scale = ((whole.nan_to_num().to(torch.int32) + 126) << 23).view(torch.float32)
    # y is NaN where x is, whatever stands in half_scale.
    return torch.where(x < EXP_UNDERFLOW, 0.0, y * half_scale * 2.0)


def _wide_ln2() -> tuple[float, float]:
    """ln 2 as a sum of two fp64 numbers of at most 29 significant bits."""
    with_precision = getcontext().copy()
    with_precision.prec = 50
    value = with_precision.ln(Decimal(2))
    high = Decimal(int(value * 2**29)) / Decimal(2**29)
    low = Decimal(int((value - high) * 2**57)) / Decimal(2**57)
    return float(high), float(low)


_LN2 = _wide_ln2()


def _round_to_fp32(x: Tensor) -> Tensor:
    return x.float().double()


def log(x: Tensor) -> Tensor:
    """ln x of positive normal fp32, as fp32; −inf at 0 and for subnormals, NaN below."""
    # What follows is meaningless for zeros, subnormals, ∞, NaN and below zero: replaced at the end.
    word = x.float().double().view(torch.int64)
    exponent = (word >> 52) - 1022
    mantissa = ((word & 0xFFFFFFFFFFFFF) | (1022 << 52)).view(torch.float64)
    low_half = mantissa < math.sqrt(0.5)
    mantissa = torch.where(low_half, mantissa * 2.0, mantissa)
    exponent = torch.where(low_half, exponent - 1, exponent).double()
    z = (mantissa - 1.0) / (mantissa + 1.0)
    near = _round_to_fp32(z)
    square = _round_to_fp32(near * near)
    y = torch.full_like(square, 1.0 / 17.0)
    for k in range(15, 1, -2):
        y = _round_to_fp32(y * square + 1.0 / k)
    tail = _round_to_fp32(y * square)
    # 2z(1 + tail): the leading 2z keeps its fp64 digits, so results near ln 1 keep theirs.
    series = 2.0 * z + 2.0 * near * tail
    result = (exponent * _LN2[0] + (exponent * _LN2[1] + series)).float()
    result = torch.where(x < 2.0**-126, -torch.inf, result)
    result = torch.where(x == torch.inf, torch.inf, result)
    return torch.where((x < 0) | x.isnan(), torch.nan, result)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e^−x) of fp32, as fp32."""
    return (exp(-x) + 1.0).double().reciprocal().float()


def sqrt(x: Tensor) -> Tensor:
    """√x, correctly rounded to fp32.

    The root of a 24-bit number stays 2^-51 away from every fp32 midpoint, so any fp64 root within
    one ulp rounds to the same fp32: the library's choice of algorithm cannot show.
    """
    return x.float().double().sqrt().float()


def rsqrt(x: Tensor) -> Tensor:
    """1 / √x as the rounded reciprocal of the rounded root: two unique roundings."""
    return sqrt(x).double().reciprocal().float()
