"""exp, log, sigmoid, square roots: the same bits on every machine.

Only IEEE addition, multiplication and division on separate tensors are used, and every product
that feeds an addition is exact in fp64 (24 bit × at most 29 bit), so a compiler that contracts them
into one fused operation rounds to the same number. Errors are stated in ulp of the fp32 result and
tested against mpmath.
"""

from __future__ import annotations

import math
from decimal import Decimal, getcontext
from typing import Final

import torch
from torch import Tensor

EXP_UNDERFLOW: Final = -87.0
"""exp is 0 below this: no result of this module is ever subnormal."""
EXP_OVERFLOW: Final = 88.5
"""exp is +inf above this (the last finite fp32 is exp(88.72…))."""
EXP_MAX_ULP: Final = 1.5
LOG_MAX_ULP: Final = 2.0
SIGMOID_MAX_ULP: Final = 2.5
RSQRT_MAX_ULP: Final = 1.5


def _decimal_constants() -> tuple[float, float, float, float]:
    """log2(e) and ln(2), each as a sum of two fp64 numbers of at most 29 significant bits."""
    with_precision = getcontext().copy()
    with_precision.prec = 50
    ln2 = with_precision.ln(Decimal(2))
    log2e = with_precision.divide(Decimal(1), ln2)
    return (*_split(log2e, 28), *_split(ln2, 29))


def _split(value: Decimal, bits: int) -> tuple[float, float]:
    high = Decimal(int(value * 2**bits)) / Decimal(2**bits)
    low = Decimal(int((value - high) * 2 ** (bits + 28))) / Decimal(2 ** (bits + 28))
    return float(high), float(low)


_LOG2E_HIGH, _LOG2E_LOW, _LN2_HIGH, _LN2_LOW = _decimal_constants()


def _two_to_the_f() -> list[float]:
    """Taylor coefficients ln(2)^k / k! of 2^f, from decimals, highest last."""
    context = getcontext().copy()
    context.prec = 50
    ln2, term, coefficients = context.ln(Decimal(2)), Decimal(1), []
    for k in range(9):
        coefficients.append(float(term))
        term = context.divide(context.multiply(term, ln2), Decimal(k + 1))
    return coefficients


_EXP2 = _two_to_the_f()


def _round_to_fp32(x: Tensor) -> Tensor:
    return x.float().double()


def exp(x: Tensor) -> Tensor:
    """e^x of fp32, as fp32; 0 below EXP_UNDERFLOW, inf above EXP_OVERFLOW; NaN stays NaN."""
    wide = x.clamp(EXP_UNDERFLOW, EXP_OVERFLOW).double()
    power = wide * _LOG2E_HIGH + wide * _LOG2E_LOW
    whole = torch.round(power)
    fraction = _round_to_fp32(power - whole)
    y = torch.full_like(fraction, _EXP2[-1])
    for coefficient in _EXP2[-2:0:-1]:
        y = _round_to_fp32(y * fraction + coefficient)
    y = y * fraction + 1.0
    scale = ((whole.nan_to_num().to(torch.int64) + 1023) << 52).view(torch.float64)
    result = (y * scale).float()
    result = torch.where(x < EXP_UNDERFLOW, 0.0, result)
    return torch.where(x > EXP_OVERFLOW, torch.inf, result)


def log(x: Tensor) -> Tensor:
    """ln x of positive normal fp32, as fp32; −inf at 0 and for subnormals, NaN below."""
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
    result = (exponent * _LN2_HIGH + (exponent * _LN2_LOW + series)).float()
    result = torch.where(x < 2.0**-126, -torch.inf, result)
    result = torch.where(x == torch.inf, torch.inf, result)
    return torch.where((x < 0) | x.isnan(), torch.nan, result)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e^−x) of fp32, as fp32."""
    return (exp(-x).double() + 1.0).reciprocal().float()


def sqrt(x: Tensor) -> Tensor:
    """√x, correctly rounded to fp32.

    The root of a 24-bit number stays 2^-51 away from every fp32 midpoint, so any fp64 root within
    one ulp rounds to the same fp32: the library's choice of algorithm cannot show.
    """
    return x.float().double().sqrt().float()


def rsqrt(x: Tensor) -> Tensor:
    """1 / √x as the rounded reciprocal of the rounded root: two unique roundings."""
    return sqrt(x).double().reciprocal().float()
