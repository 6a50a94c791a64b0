"""What the tests of merged moments share: a warm state, and big-integer references of its lines."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import torch

from atoll.numerics.moments import Moments
from atoll.numerics.state import GlobalState
from atoll.numerics.state_layout import moment_layout
from atoll.protocol.manifest import Manifest

Floats = npt.NDArray[np.float32]


def warm(state: GlobalState, manifest: Manifest, seed: int = 0) -> GlobalState:
    """The state with moments as a merge could have left them."""
    generator = torch.Generator().manual_seed(seed)
    shared = moment_layout(manifest, state.shapes)

    def integers(shape: tuple[int, ...]) -> torch.Tensor:
        drawn = torch.randint(-127, 128, shape, generator=generator)
        return drawn.float() * 2.0**-14 if manifest.codec.kind == "fp32" else drawn.to(torch.int8)

    def positive(size: int) -> torch.Tensor:
        return torch.rand(size, generator=generator) * 1e-4

    matrices = {name: shape for name, shape in shared.v.items() if len(shape) > 1}
    vectors = {name: shape for name, shape in shared.v.items() if len(shape) == 1}
    exponents = dict.fromkeys(shared.m, -40 if manifest.codec.kind == "fp32" else -14)
    moments = Moments(
        manifest.inner.steps,
        {name: integers(shape) for name, shape in shared.m.items()},
        exponents,
        {name: positive(shape[0]) for name, shape in matrices.items()},
        {name: positive(shape[1]) for name, shape in matrices.items()},
        {name: positive(shape[0]) for name, shape in vectors.items()},
    )
    return replace(state, moments=moments)


def to_binary32(value: Fraction) -> float:
    """A number of at least 0 rounded to binary64, then to binary32; ∞ beyond it."""
    with np.errstate(over="ignore"):
        return float(np.float32(value.numerator / value.denominator))


def sum_of(values: Floats) -> float:
    """SPEC-MERGE.md's sum of a line whose tensor it is alone, in unbounded integers."""
    return sums_of(values[None, :])[0]


def sums_of(values_RC: Floats) -> list[float]:
    """The row sums of a matrix, then its column sums, in unbounded integers."""
    largest = max(Fraction(2) ** -80, *(Fraction(float(v)) for v in values_RC.flat))
    exponent = max(e for e in range(-81, 129) if Fraction(2) ** e <= largest)
    step = Fraction(2) ** (exponent - 39)
    whole = [[round(Fraction(float(v)) / step) for v in row] for row in values_RC]
    columns = zip(*whole, strict=True)
    return [to_binary32(Fraction(float(sum(line))) * step) for line in (*whole, *columns)]
