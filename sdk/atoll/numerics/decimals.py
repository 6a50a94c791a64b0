"""Constants that every machine must round alike: decimal arithmetic, then one rounding.

Rule of this file: libm is never asked. `decimal` works with 60 digits everywhere, so the one
rounding to binary at the end decides every bit. Series go on from one value to the next: the error
of a million such steps stays below 50 digits. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from itertools import islice
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from atoll.protocol.model_spec import UNSCALED, RopeScalingSpec

_CONTEXT = Context(prec=60)
_NEGLIGIBLE = Decimal("1e-65")
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620900")
Float32Matrix: TypeAlias = npt.NDArray[np.float32]


def cos_sin(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Cosine and sine by Taylor series, to 60 digits for |angle| ≤ π."""
    with localcontext(_CONTEXT):
        cosine, sine, term, n = Decimal(0), Decimal(0), Decimal(1), 0
        while abs(term) > _NEGLIGIBLE:
            if n % 2 == 0:
                cosine += term if n % 4 == 0 else -term
            else:
                sine += term if n % 4 == 1 else -term
            n += 1
            term = term * angle / n
        return cosine, sine


@lru_cache(maxsize=8)
def rotary_tables(
    seq: int, head_dim: int, base: int, scaling: RopeScalingSpec = UNSCALED
) -> tuple[Float32Matrix, Float32Matrix]:
    """Cosines and sines of position · angleᵢ: two fp32 arrays [seq, head_dim/2].

    angleᵢ is base^(−2i/head_dim) (Su et al., RoFormer), scaled. Rounded to binary64 and that to
    binary32.
    """
    table = np.empty((seq, head_dim // 2, 2), dtype=np.float32)
    for i in range(head_dim // 2):
        with localcontext(_CONTEXT):
            angle = Decimal(base) ** (Decimal(-2 * i) / head_dim)
        turned = islice(_turned(scaled_angle(angle, scaling)), seq)
        table[:, i] = [(float(cosine), float(sine)) for cosine, sine in turned]
    table.flags.writeable = False
    return table[:, :, 0], table[:, :, 1]


def scaled_angle(angle: Decimal, scaling: RopeScalingSpec) -> Decimal:
    """A column's angle as `RopeScalingSpec` says; `transformers` calls it `inv_freq`."""
    with localcontext(_CONTEXT):
        divided = angle / Decimal(scaling.factor)
        if not scaling.properties.spares_fast:
            return divided
        low, high = Decimal(scaling.low), Decimal(scaling.high)
        turns = angle * scaling.positions / (2 * PI)
        share = min(max((turns - low) / (high - low), Decimal(0)), Decimal(1))
        return divided * (1 - share) + angle * share


def _turned(angle: Decimal) -> Iterator[tuple[Decimal, Decimal]]:
    """Cosine and sine of 0, angle, 2 · angle …, each turned on from the one before."""
    step_cos, step_sin = cos_sin(angle)
    cosine, sine = Decimal(1), Decimal(0)
    while True:
        yield cosine, sine
        with localcontext(_CONTEXT):
            cosine, sine = cosine * step_cos - sine * step_sin, sine * step_cos + cosine * step_sin


def one_minus_powers(base: str, count: int) -> list[float]:
    """1 − base^c for c from 1 to `count`, each rounded once to binary64: Adam's corrections."""
    factor, power, values = Decimal(base), Decimal(1), []
    with localcontext(_CONTEXT):
        for _ in range(count):
            power *= factor
            values.append(float(1 - power))
    return values


def cosine_fractions(span: int) -> list[float]:
    """(1 + cos(π · done/span)) / 2 for done from 0 to `span` − 1, rounded once to binary64."""
    with localcontext(_CONTEXT):
        turned = islice(_turned(PI / max(1, span)), span)
    fractions = []
    for cosine, _ in turned:
        with localcontext(_CONTEXT):
            fractions.append(float((1 + cosine) / 2))
    return fractions
