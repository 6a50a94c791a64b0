"""Constants agree with libm to its precision, and are rounded once."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

from atoll.bits.decimals import PI, cos_sin, cosine_fraction, one_minus_power, rotary_tables


@pytest.mark.parametrize("angle", ["0", "0.001", "1", "1.5707963267948966", "3.1"])
def test_cosine_and_sine_agree_with_libm(angle: str) -> None:
    cosine, sine = cos_sin(Decimal(angle))
    assert float(cosine) == pytest.approx(math.cos(float(angle)), abs=2e-16)
    assert float(sine) == pytest.approx(math.sin(float(angle)), abs=2e-16)


def test_pi_is_pi() -> None:
    assert float(PI) == math.pi
    assert abs(cos_sin(PI)[1]) < Decimal("1e-37")


@pytest.mark.parametrize(("seq", "head_dim", "base"), [(300, 16, 10000), (64, 32, 500000)])
def test_rotary_tables_are_the_nearest_fp32_to_the_true_values(
    seq: int, head_dim: int, base: int
) -> None:
    cosines, sines = rotary_tables(seq, head_dim, base)
    rates = np.longdouble(base) ** (-2 * np.arange(head_dim // 2) / np.longdouble(head_dim))
    angles = np.arange(seq)[:, None] * rates[None, :]
    assert np.abs(cosines.numpy() - np.cos(angles)).max() <= 2**-24
    assert np.abs(sines.numpy() - np.sin(angles)).max() <= 2**-24
    assert cosines.shape == sines.shape == (seq, head_dim // 2)


def test_bias_corrections_are_rounded_once() -> None:
    assert one_minus_power("0.9", 1) == float(Decimal("0.1"))
    assert one_minus_power("0.999", 1000) == pytest.approx(1 - 0.999**1000, rel=1e-13)
    assert one_minus_power("0", 5) == 1.0


def test_the_cosine_runs_from_one_to_zero() -> None:
    values = [cosine_fraction(i, 10) for i in range(11)]
    assert values[0] == 1.0
    assert values[5] == 0.5
    assert abs(values[10]) < 1e-30
    assert values == sorted(values, reverse=True)
