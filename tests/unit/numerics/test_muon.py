"""Muon's orthogonalisation: one set of bits, and the singular values that Newton-Schulz gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.support.engines import engine_of
from torch import Tensor

from atoll.numerics.kernels.acceptance import KINDS, sample
from atoll.numerics.kernels.engine import default_engine
from atoll.numerics.kernels.gemm import Route, matmul_reference
from atoll.numerics.kernels.interface import Engine
from atoll.numerics.kernels.muon import COEFFICIENTS, ITERATIONS, orthogonalise
from atoll.numerics.kernels.reference import TorchKernels
from atoll.numerics.ops import NativeOps

PLAIN = Engine(Route("reference", matmul_reference), TorchKernels(), torch.matmul)
"""Every product element by element in int64, everything else in plain PyTorch."""
SHAPES = ((16, 16), (9, 40), (40, 9), (1, 5), (5, 1), (1, 1))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def with_condition(rows: int, columns: int, decades: float) -> Tensor:
    """Singular values evenly spread from 1 down to 10^−decades."""
    u, _, vt = torch.linalg.svd(draw(rows, columns).double(), full_matrices=False)
    return (u * torch.logspace(0, -decades, min(rows, columns), dtype=torch.float64) @ vt).float()


def newton_schulz(matrix: Tensor) -> Tensor:
    """The polynomial applied to the singular values, in binary64."""
    u, s, vt = torch.linalg.svd(matrix.double(), full_matrices=False)
    s = s / s.norm()
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        s = a * s + b * s**3 + c * s**5
    return (u * s) @ vt


def same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("kind", KINDS)
def test_fast_and_plain_engines_give_the_same_bits(kind: str) -> None:
    engines = [default_engine(), *(engine_of(route, "eager") for route in ("fp32", "fp64"))]
    for shape in SHAPES:
        matrix = sample(kind, shape, torch.Generator().manual_seed(3))
        expected = orthogonalise(PLAIN, matrix)
        whole = matrix.isfinite().all()
        assert expected.isfinite().all() if whole else expected.isnan().all()
        for engine in engines:
            assert same(orthogonalise(engine, matrix), expected), engine


@settings(max_examples=25)
@given(arrays("f4", (6, 11), elements=st.floats(-(2.0**60), 2.0**60, width=32)))
def test_bits_agree_on_any_finite_matrix(values: object) -> None:
    matrix = torch.tensor(values)
    assert same(orthogonalise(default_engine(), matrix), orthogonalise(PLAIN, matrix))


def test_threads_change_no_bit() -> None:
    matrix, before = draw(96, 200), torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(orthogonalise(default_engine(), matrix))
    finally:
        torch.set_num_threads(before)
    assert same(*results)


@pytest.mark.parametrize("shape", [(64, 64), (48, 160), (160, 48)])
@pytest.mark.parametrize("decades", [0.5, 1, 2])
def test_singular_values_become_about_one(shape: tuple[int, int], decades: float) -> None:
    matrix = with_condition(*shape, decades)
    for found in (
        orthogonalise(default_engine(), matrix),
        NativeOps().orthogonalise(matrix),
    ):
        values = torch.linalg.svdvals(found.double())
        assert values.min() > 0.6
        assert values.max() < 1.25


@pytest.mark.parametrize("shape", [(64, 64), (48, 160), (160, 48)])
@pytest.mark.parametrize(("decades", "bound"), [(0.5, 0.03), (1, 0.03), (2, 0.03), (4, 0.06)])
def test_the_result_is_the_polynomial_of_the_singular_values(
    shape: tuple[int, int], decades: float, bound: float
) -> None:
    """bf16, in which Muon is published, errs by 0.015 to 0.03, and by 0.09 at four decades."""
    matrix = with_condition(*shape, decades)
    expected = newton_schulz(matrix)
    for found, most in (
        (orthogonalise(default_engine(), matrix), bound),
        (NativeOps().orthogonalise(matrix), 1e-4),
    ):
        assert (found.double() - expected).norm() <= most * expected.norm()


def test_scale_does_not_matter_and_sides_may_be_swapped() -> None:
    matrix = draw(12, 30)
    result = orthogonalise(default_engine(), matrix)
    assert same(orthogonalise(default_engine(), matrix * 2.0**-30), result)
    assert same(orthogonalise(default_engine(), matrix.t().contiguous()), result.t())


def test_zero_stays_zero_and_what_is_not_finite_stays_so() -> None:
    assert not orthogonalise(default_engine(), torch.zeros(8, 8)).any()
    for poison in (float("nan"), float("inf")):
        matrix = draw(8, 8)
        matrix[3, 4] = poison
        assert not orthogonalise(default_engine(), matrix).isfinite().all()
