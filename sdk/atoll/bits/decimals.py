"""Constants that every machine must round alike: decimal arithmetic, then one rounding.

Rule of this file: libm is never asked. `decimal` works with 40 digits everywhere, so the one
rounding to binary at the end decides every bit.
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from functools import lru_cache

import torch
from torch import Tensor

_CONTEXT = Context(prec=40)
PI = Decimal("3.141592653589793238462643383279502884197")


def cos_sin(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Cosine and sine by Taylor series, to 40 digits for |angle| ≤ π."""
    with localcontext(_CONTEXT):
        cosine, sine, term, n = Decimal(0), Decimal(0), Decimal(1), 0
        while abs(term) > Decimal("1e-45"):
            if n % 2 == 0:
                cosine += term if n % 4 == 0 else -term
            else:
                sine += term if n % 4 == 1 else -term
            n += 1
            term = term * angle / n
        return cosine, sine


@lru_cache(maxsize=8)
def rotary_tables(seq: int, head_dim: int, base: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of position · base^(−2i/head_dim): two fp32 tensors [seq, head_dim/2].

    Positions follow from one another by rotating through the step's angle (Su et al., RoFormer).
    """
    columns = [
        _rotations(Decimal(base), Decimal(-2 * i) / head_dim, seq) for i in range(head_dim // 2)
    ]
    table = torch.tensor(columns, dtype=torch.float64).to(torch.float32)  # [head_dim/2, seq, 2]
    return table[:, :, 0].T.contiguous(), table[:, :, 1].T.contiguous()


def _rotations(base: Decimal, power: Decimal, count: int) -> list[tuple[float, float]]:
    with localcontext(_CONTEXT):
        step_cos, step_sin = cos_sin(base**power)
        cosine, sine, result = Decimal(1), Decimal(0), []
        for _ in range(count):
            result.append((float(cosine), float(sine)))
            cosine, sine = cosine * step_cos - sine * step_sin, sine * step_cos + cosine * step_sin
        return result


def one_minus_power(base: str, exponent: int) -> float:
    """1 − base^exponent, rounded once to binary64: Adam's bias correction."""
    with localcontext(_CONTEXT):
        return float(1 - Decimal(base) ** exponent)


def cosine_fraction(done: int, span: int) -> float:
    """(1 + cos(π · done/span)) / 2 for 0 ≤ done ≤ span, rounded once to binary64."""
    with localcontext(_CONTEXT):
        cosine, _ = cos_sin(PI * done / span)
        return float((1 + cosine) / 2)
