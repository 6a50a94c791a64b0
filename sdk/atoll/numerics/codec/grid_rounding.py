"""Rounding a float vector to integers on a power-of-two grid, and back.

Exact by construction: scaling by a power of two only moves the exponent, rounding is half to even,
and every step is one IEEE operation, so each machine has the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from atoll.errors import AtollError
from atoll.numerics.codec.vector_layout import Layout

if TYPE_CHECKING:
    from torch import Tensor

Int8Vector = npt.NDArray[np.int8]
Float32Vector = npt.NDArray[np.float32]
Rounding = Callable[[Float32Vector], Float32Vector]


class NonFiniteDeltaError(AtollError, ValueError):
    """What would be sent has NaN or infinity in it."""


def flat(tensor: Tensor) -> Float32Vector:
    """A tensor of any device as one fp32 vector; shares memory where it can."""
    return tensor.detach().to("cpu", torch.float32).contiguous().view(-1).numpy()


def check_finite(name: str, values: Float32Vector) -> None:
    """Raises NonFiniteDeltaError if a value of the named tensor is NaN or infinite."""
    if not np.isfinite(values).all():
        raise NonFiniteDeltaError(f"the update of tensor {name} has a NaN or infinite value")


def to_nearest(limit: int) -> Rounding:
    """Rounds half to even and clamps to ±limit."""

    def rounding(scaled: Float32Vector) -> Float32Vector:
        np.rint(scaled, out=scaled)
        return np.clip(scaled, -limit, limit, out=scaled)

    return rounding


def to_odd(levels: int) -> Rounding:
    """Rounds to the nearest of ±1, ±3 … ±(2·levels − 1), of two equally near the upper one."""

    def rounding(scaled: Float32Vector) -> Float32Vector:
        np.clip(scaled, -2 * levels, 2 * levels - 1, out=scaled)
        scaled *= 0.5
        np.floor(scaled, out=scaled)
        scaled *= 2
        scaled += 1
        return scaled

    return rounding


def as_tensors(
    values: npt.NDArray[Any], layout: Layout, exponents: Mapping[str, int]
) -> dict[str, Tensor]:
    """Grid steps, flat in layout order, as fp32 tensors of values · 2^exponent."""
    return {
        name: torch.from_numpy(
            values[span].astype(np.float32) * np.float32(2.0 ** exponents[name])
        ).reshape(shape)
        for name, shape, span in layout.spans()
    }
