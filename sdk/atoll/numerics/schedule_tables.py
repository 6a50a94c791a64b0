"""What a step reads that takes decimal or transcendental arithmetic, as the manifest fixes it.

A contract cannot work out a cosine, but it can be shown one: the manifest holds the root over all
of a job's rates, bias corrections and rotary cosines, and one path opens one of them. SPEC.md,
section 6. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.errors import ManifestError
from atoll.numerics.decimals import cosine_fractions, one_minus_powers, rotary_tables
from atoll.numerics.pieces import PIECE_BYTES, Pieces
from atoll.protocol.manifest import Manifest
from atoll.protocol.method_spec import InnerSpec
from atoll.protocol.model_spec import ModelSpec
from atoll.protocol.types import Digest

Float64Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The scalars of a job's inner steps.

    Attributes:
        rates: by global step, [S].
        corrections: 1/(1 − β₁ᶜ) and 1/(1 − β₂ᶜ) for the count c from 1, [S, 2]; [0, 2] where the
            optimiser reads none.
    """

    rates: Float64Vector
    corrections: Float64Vector

    def correction(self, count: int) -> tuple[float, float]:
        """Of a step's count; one beyond the job's steps reads the last."""
        first, second = self.corrections[min(count, len(self.corrections)) - 1].tolist()
        return first, second


FALLS: Mapping[str, Callable[[int], list[float]]] = MappingProxyType(
    {"constant": lambda count: [1.0] * count, "cosine": cosine_fractions}
)
"""Shares of the peak in the steps behind the warm-up, of so many, by the manifest's name."""


@lru_cache(maxsize=8)
def schedule_of(inner: InnerSpec, total_steps: int) -> Schedule:
    """Rates and corrections of a job of so many global steps."""
    rates, corrections = _rates(inner, total_steps), np.empty((0, 2))
    if inner.properties.has_corrections:
        betas = (inner.beta1, inner.beta2)
        corrections = np.array([one_minus_powers(beta, total_steps) for beta in betas]).T
        corrections = np.ascontiguousarray(1.0 / corrections)
    for array in (rates, corrections):
        array.flags.writeable = False
    return Schedule(rates, corrections)


def _rates(inner: InnerSpec, total_steps: int) -> Float64Vector:
    """Linear warm-up, then constant, or a half cosine that reaches zero at the job's end."""
    peak, warmup = float(inner.lr), inner.warmup_steps
    rising = [peak * ((step + 1) / warmup) for step in range(min(warmup, total_steps))]
    rest = total_steps - len(rising)
    falling = FALLS[inner.schedule](rest)
    return np.array(rising + [peak * fraction for fraction in falling])


@lru_cache(maxsize=8)
def tables_root(model: ModelSpec, inner: InnerSpec, total_steps: int) -> Digest:
    """The root that a manifest with these choices names."""
    pieces = Pieces()
    for part in table_parts(model, inner, total_steps):
        pieces.add(part)
    return pieces.root()


def table_parts(model: ModelSpec, inner: InnerSpec, total_steps: int) -> tuple[bytes, bytes, bytes]:
    """What the root is over: rates, corrections, and pairs of cosine and sine by position."""
    schedule = schedule_of(inner, total_steps)
    rotary = rotary_tables(model.seq, model.head_dim, model.rope_base, model.rope_scaling)
    return (
        _filled(schedule.rates),
        _filled(schedule.corrections),
        _filled(np.stack(rotary, axis=-1)),
    )


def table_sizes(model: ModelSpec, inner: InnerSpec, total_steps: int) -> tuple[int, int, int]:
    """Bytes of each of `table_parts`."""
    corrections = 16 * total_steps if inner.properties.has_corrections else 0
    numbers = (8 * total_steps, corrections, 4 * model.seq * model.head_dim)
    rates, corrections, rotary = (-(-size // PIECE_BYTES) * PIECE_BYTES for size in numbers)
    return rates, corrections, rotary


def _filled(part: npt.NDArray[Any]) -> bytes:
    """Big-endian, filled up to whole pieces, so that every part begins with one."""
    data = part.astype(part.dtype.newbyteorder(">")).tobytes()
    return data + bytes(-len(data) % PIECE_BYTES)


def check_tables(manifest: Manifest) -> None:
    """Raises ManifestError unless the manifest's tables root is that of its choices."""
    total_steps = manifest.terms.rounds * manifest.inner.steps
    if tables_root(manifest.model, manifest.inner, total_steps) != manifest.tables:
        raise ManifestError(
            "manifest: its tables are not those of its schedule and model",
            next_step="do not join this job",
        )
