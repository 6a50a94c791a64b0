"""Rounding a float vector to integers on a power-of-two grid, and the error it leaves.

Exact by construction: scaling by a power of two only moves the exponent, rounding is half to even,
and every step is one IEEE operation, so each machine has the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from atoll.aggregate.layout import Layout
from atoll.errors import AtollError, ConfigError

if TYPE_CHECKING:
    from torch import Tensor

Int8Vector = npt.NDArray[np.int8]
Float32Vector = npt.NDArray[np.float32]
Rounding = Callable[[Float32Vector], Float32Vector]

CHUNK = 1 << 16
"""Coordinates handled at once, so that the work stays in a core's second-level cache."""


class NonFiniteDeltaError(AtollError, ValueError):
    """A pseudo-gradient with NaN or infinity: the trace must say DIVERGED instead."""


def flat(tensor: Tensor) -> Float32Vector:
    """A tensor of any device as one fp32 vector; shares memory where it can."""
    return tensor.detach().to("cpu", torch.float32).contiguous().view(-1).numpy()


def check_finite(name: str, values: Float32Vector) -> None:
    """Raises NonFiniteDeltaError if a value of the named tensor is NaN or infinite."""
    if not np.isfinite(values).all():
        raise NonFiniteDeltaError(f"the update of tensor {name} has a NaN or infinite value")


def quantise(
    delta: Mapping[str, Tensor], exponents: Mapping[str, int], rounding: Rounding, out: Int8Vector
) -> None:
    """Writes rounding(delta / 2^exponent) of every tensor to `out`, flat in layout order.

    Args:
        rounding: maps scaled values, in place, to integers that fit int8; may see ±infinity.

    Raises:
        NonFiniteDeltaError: a value is NaN or infinite.
    """
    for name, _, span in Layout.of_tensors(delta).spans():
        values, target = flat(delta[name]), out[span]
        for at in range(0, len(values), CHUNK):
            part = values[at : at + CHUNK]
            check_finite(name, part)
            with np.errstate(over="ignore", under="ignore"):
                scaled = part * np.float32(2.0 ** -exponents[name])
            np.copyto(target[at : at + CHUNK], rounding(scaled), casting="unsafe")


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
    values: Int8Vector, layout: Layout, exponents: Mapping[str, int]
) -> Iterator[tuple[str, Tensor]]:
    """(name, fp32 tensor of values · 2^exponent) in layout order."""
    for name, shape, span in layout.spans():
        scaled = values[span].astype(np.float32) * np.float32(2.0 ** exponents[name])
        yield name, torch.from_numpy(scaled).reshape(shape)


def with_feedback(
    delta: Mapping[str, Tensor], residual: Mapping[str, Tensor], decay: float
) -> dict[str, Tensor]:
    """delta + decay · residual, the decay first: what a codec with error feedback encodes.

    Raises:
        ConfigError: the residual is of other tensors, or the decay outside [0, 1].
    """
    if not 0 <= decay <= 1:
        raise ConfigError(f"error feedback decays by a factor in [0, 1], not {decay}")
    if Layout.of_tensors(delta) != Layout.of_tensors(residual):
        raise ConfigError("the error feedback is not of the update's tensors")
    return {name: delta[name] + residual[name] * decay for name in delta}


def residual_of(
    wanted: Mapping[str, Tensor], sent: Int8Vector, exponents: Mapping[str, int]
) -> dict[str, Tensor]:
    """What the sent integers lack of the wanted update: the next round's error feedback."""
    decoded = as_tensors(sent, Layout.of_tensors(wanted), exponents)
    return {name: wanted[name] - value for name, value in decoded}
