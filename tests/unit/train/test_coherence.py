"""Noise is not called a bias, a bias is, and how often the first goes wrong is known."""

from __future__ import annotations

import numpy as np
import pytest

from atoll.train.coherence import (
    FALSE_POSITIVES,
    MOST_RESIDUALS,
    SKETCH_WIDTH,
    Sketch,
    coherence,
    sketch,
)

LENGTH = 20_000


def residuals(count: int, bias: float, seed: int = 0) -> list[Sketch]:
    """Sketches of unit noise around a fixed direction of norm `bias`."""
    draw = np.random.Generator(np.random.Philox(seed))
    direction = draw.standard_normal(LENGTH)
    direction *= bias / np.linalg.norm(direction)
    rows = draw.standard_normal((count, LENGTH)) / np.sqrt(LENGTH)
    return [sketch([row + direction], key=9) for row in rows]


def test_noise_is_no_bias() -> None:
    found = coherence(residuals(32, bias=0.0))
    assert found.count == 32
    assert abs(found.mean_cosine) < 0.02
    assert not found.exceeds(0.05)


@pytest.mark.parametrize("bias", [0.6, 1.0, 10.0])
def test_a_bias_among_noise_is_found(bias: float) -> None:
    found = coherence(residuals(16, bias))
    assert found.mean_cosine == pytest.approx(bias**2 / (bias**2 + 1.0), abs=0.08)
    assert found.p_value <= FALSE_POSITIVES
    assert found.exceeds(0.2)


def test_a_bias_smaller_than_the_job_allows_is_none() -> None:
    found = coherence(residuals(32, bias=0.3))
    assert found.p_value <= FALSE_POSITIVES
    assert not found.exceeds(0.2)


def test_few_residuals_say_nothing() -> None:
    alike = residuals(1, bias=100.0) * 10
    assert [coherence(alike[:count]).exceeds(0.2) for count in (0, 1, 2, 9)] == [False] * 4
    assert coherence(residuals(1, bias=100.0) * 12).exceeds(0.2)


def test_what_did_not_differ_does_not_count() -> None:
    same = np.zeros(SKETCH_WIDTH, dtype=np.float32)
    found = coherence([same, *residuals(5, bias=0.0), same])
    assert found.count == 5


def test_a_residual_of_the_other_sign_cancels() -> None:
    alike = residuals(16, bias=10.0)
    turned = [s if i % 2 else -s for i, s in enumerate(alike)]
    assert coherence(turned).mean_cosine < 0.0


def test_only_the_last_residuals_are_tested() -> None:
    reformed = residuals(20, bias=10.0) + residuals(MOST_RESIDUALS, bias=0.0, seed=5)
    assert coherence(reformed).count == MOST_RESIDUALS
    assert not coherence(reformed).exceeds(0.2)


def test_the_p_value_is_as_rare_as_it_says() -> None:
    """Over 400 honest providers, p ≤ 0.05 for 20 on average; 40 would be five sigma away."""
    draw = np.random.Generator(np.random.Philox(3))
    rare = 0
    for _ in range(400):
        rows = draw.standard_normal((8, SKETCH_WIDTH)).astype(np.float32)
        rare += coherence(list(rows / np.linalg.norm(rows, axis=1, keepdims=True))).p_value <= 0.05
    assert 4 <= rare < 40


def test_a_sketch_keeps_angles_and_hides_under_its_key() -> None:
    draw = np.random.Generator(np.random.Philox(1))
    a, b = draw.standard_normal((2, LENGTH))
    mixed = 0.6 * a / np.linalg.norm(a) + 0.8 * b / np.linalg.norm(b)
    ours, theirs = sketch([a], key=1), sketch([mixed], key=1)
    assert float(np.linalg.norm(ours)) == pytest.approx(1.0, abs=1e-6)
    assert float(ours @ theirs) == pytest.approx(0.6, abs=0.15)
    assert abs(float(ours @ sketch([a], key=2))) < 0.25
    pieces = sketch([a[:777], a[777:]], key=1)
    assert float(ours @ pieces) == pytest.approx(1.0, abs=1e-6)
