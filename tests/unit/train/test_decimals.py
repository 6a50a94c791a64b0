"""Constants agree with libm to its precision, and are rounded once."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext

import numpy as np
import pytest

from atoll.numerics.decimals import PI, cos_sin, cosine_fractions, one_minus_powers, rotary_tables


@pytest.mark.parametrize("angle", ["0", "0.001", "1", "1.5707963267948966", "3.1"])
def test_cosine_and_sine_agree_with_libm(angle: str) -> None:
    cosine, sine = cos_sin(Decimal(angle))
    assert float(cosine) == pytest.approx(math.cos(float(angle)), abs=2e-16)
    assert float(sine) == pytest.approx(math.sin(float(angle)), abs=2e-16)


def test_pi_is_pi() -> None:
    assert float(PI) == math.pi
    assert abs(cos_sin(PI)[1]) < Decimal("1e-57")


@pytest.mark.parametrize(("seq", "head_dim", "base"), [(300, 16, 10000), (64, 32, 500000)])
def test_rotary_tables_are_the_nearest_fp32_to_the_true_values(
    seq: int, head_dim: int, base: int
) -> None:
    cosines, sines = rotary_tables(seq, head_dim, base)
    rates = np.longdouble(base) ** (-2 * np.arange(head_dim // 2) / np.longdouble(head_dim))
    angles = np.arange(seq)[:, None] * rates[None, :]
    assert np.abs(cosines - np.cos(angles)).max() <= 2**-24
    assert np.abs(sines - np.sin(angles)).max() <= 2**-24
    assert cosines.shape == sines.shape == (seq, head_dim // 2)


def test_bias_corrections_are_rounded_once() -> None:
    assert one_minus_powers("0.9", 1) == [float(Decimal("0.1"))]
    assert one_minus_powers("0", 5) == [1.0] * 5
    for base in ("0.9", "0.999", "0.999999"):
        powers = one_minus_powers(base, 20_000)
        for count in (1, 2, 999, 20_000):
            with localcontext(Context(prec=90)):
                exact = 1 - Decimal(base) ** count
            assert powers[count - 1] == float(exact)


def test_the_cosine_runs_from_one_towards_zero() -> None:
    values = cosine_fractions(10)
    assert (len(values), values[0], values[5]) == (10, 1.0, 0.5)
    assert values == sorted(values, reverse=True)
    assert cosine_fractions(0) == []


@pytest.mark.parametrize("span", [1, 7, 5000])
def test_a_long_way_round_ends_where_the_series_does(span: int) -> None:
    """Turning on a step at a time gives what each cosine by itself gives."""
    values = cosine_fractions(span)
    for done in {0, span // 3, span - 1}:
        with localcontext(Context(prec=60)):
            cosine, _ = cos_sin(PI * done / span)
            assert values[done] == float((1 + cosine) / 2)
