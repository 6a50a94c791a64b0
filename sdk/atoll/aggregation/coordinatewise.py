"""Sums per coordinate in numpy: weighted, and trimmed over updates or their neighbour mixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.aggregation.chunks import PassPlan
from atoll.aggregation.gram import Int8Vector
from atoll.aggregation.networks import middle_network

Lane = npt.NDArray[Any]
Int32Vector = npt.NDArray[np.int32]
BoolMatrix = npt.NDArray[np.bool_]

INT16_MAX = 32767
GRID_MAX = 127


def weighted_sums_numpy(
    rows: Sequence[Int8Vector], weights: Sequence[int], plan: PassPlan
) -> Int32Vector:
    """Σ weights[i] · rows[i], (d,) int32; the weights' magnitudes add to at most 2^24."""
    out = np.zeros(len(rows[0]), dtype=np.int32)
    for chunk in plan.chunks(len(out)):
        for row, weight in zip(rows, weights, strict=True):
            out[chunk] += row[chunk].astype(np.int32) * np.int32(weight)
    return out


def trimmed_sums_numpy(
    rows: Sequence[Int8Vector], f: int, mask_nn: BoolMatrix | None, plan: PassPlan
) -> Int32Vector:
    """Per coordinate, the sum of the middle n−2f of n values.

    Args:
        rows: n vectors of d grid integers.
        f: values dropped at each end; n > 2f.
        mask_nn: None to trim the updates themselves; else row i marks the updates whose sum is the
            i-th value.

    Returns:
        (d,) int32.
    """
    out = np.empty(len(rows[0]), dtype=np.int32)
    width = min(plan.chunk, len(out))
    mixer = None if mask_nn is None else _Mixer(mask_nn, width)
    trimmer = _Trimmer.of(len(rows), f, mask_nn, width)
    for chunk in plan.chunks(len(out)):
        lanes = [row[chunk] for row in rows]
        trimmer.write_middle(mixer.mix(lanes) if mixer else lanes, out[chunk])
    return out


class _Mixer:
    """Sums of each row's neighbours: the sum of all less the few excluded, in int16.

    At most 256 rows of ±127 are within ±32512, and so is every partial sum.
    """

    def __init__(self, mask_nn: BoolMatrix, chunk: int) -> None:
        n = len(mask_nn)
        self._excluded = [np.flatnonzero(~row).tolist() for row in mask_nn]
        self._wide = np.empty((n, chunk), dtype=np.int16)
        self._total = np.empty(chunk, dtype=np.int16)
        self._mixed = np.empty((n, chunk), dtype=np.int16)

    def mix(self, lanes: Sequence[Int8Vector]) -> list[Lane]:
        """The n mixes of one chunk; valid until the next call."""
        width = len(lanes[0])
        wide, mixed = self._wide[:, :width], self._mixed[:, :width]
        for lane, target in zip(lanes, wide, strict=True):
            target[:] = lane
        total = np.add.reduce(wide, axis=0, dtype=np.int16, out=self._total[:width])
        for target, excluded in zip(mixed, self._excluded, strict=True):
            rest = total
            for row in excluded:
                rest = np.subtract(rest, wide[row], out=target)
            if not excluded:
                target[:] = total
        return list(mixed)


@dataclass
class _Trimmer:
    """A selection network over lanes, with buffers of its own."""

    n: int
    f: int
    spare: npt.NDArray[Any]
    sums: npt.NDArray[Any]

    @classmethod
    def of(cls, n: int, f: int, mask_nn: BoolMatrix | None, chunk: int) -> _Trimmer:
        neighbours = 1 if mask_nn is None else int(mask_nn.sum(axis=1).max())
        lane_type = np.int8 if mask_nn is None else np.int16
        largest = neighbours * (n - 2 * f) * GRID_MAX
        sum_type = np.int16 if largest <= INT16_MAX else np.int32
        spare = np.empty((n + 2, chunk), dtype=lane_type)
        return cls(n, f, spare, np.empty(chunk, dtype=sum_type))

    def write_middle(self, lanes: Sequence[Lane], out: Int32Vector) -> None:
        """Writes the sum of the middle values of `lanes`, which stay as they are, to `out`."""
        width = len(out)
        free = [buffer[:width] for buffer in self.spare]
        owned = [False] * self.n
        current = list(lanes)

        def replace(lane: int, value: Lane) -> None:
            if owned[lane]:
                free.append(current[lane])
            current[lane], owned[lane] = value, True

        for step in middle_network(self.n, self.f):
            a, b = current[step.low], current[step.high]
            low = np.minimum(a, b, out=free.pop()) if step.needs_min else None
            high = np.maximum(a, b, out=free.pop()) if step.needs_max else None
            if low is not None:
                replace(step.low, low)
            if high is not None:
                replace(step.high, high)
        middle = current[self.f : self.n - self.f]
        sums = self.sums[:width]
        sums[:] = middle[0]
        for lane in middle[1:]:
            np.add(sums, lane, out=sums)
        out[:] = sums
