"""The vectors of small exact operations, read by plain integers and NumPy's IEEE arithmetic."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.numerics.test_dropout import philox

from atoll.numerics.kernels.build import load_library
from atoll.numerics.kernels.compiled import CompiledKernels
from atoll.numerics.kernels.philox import Mask

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "exact.json").read_text())
Case = dict[str, Any]
ONE_NAN = np.uint32(0x7FC00000)


def floats(words: list[int]) -> np.ndarray:
    return np.array(words, dtype=np.uint32).view(np.float32)


def bits(x: np.ndarray) -> list[int]:
    return [int(w) for w in np.where(np.isnan(x), ONE_NAN, x.view(np.uint32))]


@pytest.mark.parametrize("case", VECTORS["philox"])
def test_philox_in_plain_integers(case: Case) -> None:
    assert philox(case["counter"], tuple(case["key"])) == case["words"]


@pytest.mark.parametrize("case", VECTORS["dropped"])
def test_dropout_rounds_three_times(case: Case) -> None:
    share, first = Fraction(case["share"]), case["first"]
    assert case["threshold"] == share * 2**32 // 1
    places = [divmod(first + i, 4) for i in range(len(case["x"]))]
    words = [philox([b, 0, case["step"], case["site"]], tuple(case["key"]))[w] for b, w in places]
    assert words == case["words"]
    scale = np.float32(float(1 / (1 - share)))
    assert bits(np.array([scale])) == [case["scale"]]
    stays = np.array(words) >= case["threshold"]
    assert bits(np.where(stays, floats(case["x"]) * scale, np.float32(0))) == case["y"]


@pytest.mark.parametrize("case", VECTORS["dropped"])
def test_compiled_dropout_gives_them(case: Case) -> None:
    key = (case["key"][0], case["key"][1])
    mask = Mask(case["share"], key, case["step"], case["site"], case["first"])
    dropped = CompiledKernels(load_library()).drop(torch.from_numpy(floats(case["x"])), mask)
    assert bits(dropped.numpy()) == case["y"]


@pytest.mark.parametrize("case", VECTORS["grids"])
def test_grids_from_ieee_operations(case: Case) -> None:
    x, levels = floats(case["x"]), float(case["levels"])
    peak = np.max(np.abs(x)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        multiplier, step = np.float32(1.0 / peak * levels), np.float32(peak * (1.0 / levels))
        products = x * multiplier
    integers = np.where(np.isnan(products), 0.0, np.rint(products))
    assert integers.astype(int).tolist() == case["integers"]
    assert bits(np.array([step])) == [case["step"]]


def test_one_rounding_less_gives_other_integers() -> None:
    """What the vectors are chosen for: x · multiplier made whole without having been rounded."""
    parted = 0
    for case in VECTORS["grids"][::3]:
        x = floats(case["x"])
        multiplier = np.float32(1.0 / np.float64(np.max(np.abs(x))) * case["levels"])
        fused = np.rint(x.astype(np.float64) * np.float64(multiplier))
        parted += (fused.astype(int) != np.array(case["integers"])).sum() > 0
    assert parted == 4
