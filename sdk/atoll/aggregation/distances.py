"""How far the updates of a round lie from what the round merged, for people who look at a job.

Rule of this file: binary64, since nobody has to agree on it. What everybody agrees on about odd
updates is `atoll.protocol.checks`, which compares them with each other, in whole grid steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from atoll.aggregation.merge_round import MergedUpdate
from atoll.numerics.codec.registry import codec_of
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.sections import StoredUpdate
from atoll.protocol.method_spec import CodecSpec

_FINENESS: Final = 1 << 8
"""Of the coordinates that coefficients of a transform are turned into."""
_AT_ONCE: Final = 1 << 22
"""Coordinates that are taken as binary64 at once."""


def distances(
    updates: Mapping[int, StoredUpdate],
    merged: MergedUpdate,
    *,
    exponents: Mapping[str, int],
    codec: CodecSpec,
) -> dict[int, float]:
    """|update − merge| / |merge| by seat; of nobody where the round moved nothing.

    It is what the checks do not see: two updates that are equally far from each other can lie on
    either side of the merge. Of honest updates it is alike; how much it is says how much of them is
    noise, which the merge averages out.

    Args:
        exponents: of the grid that the round's updates are in, by tensor.
    """
    layout = Layout.of_tensors(merged.numerators) if merged.numerators else None
    length = 0.0 if layout is None else _length(layout, merged, exponents)
    if layout is None or not length:
        return {}
    by_seat: dict[int, float] = {}
    for seat, update in sorted(updates.items()):
        row, parts = update.delta[:], 1
        if codec.properties.is_sparse:
            row, parts = row.astype(np.int32) * _FINENESS, _FINENESS
        row = codec_of(codec).coordinates(row, parts, layout.total)
        by_seat[int(seat)] = _length(layout, merged, exponents, row, parts) / length
    return by_seat


def _length(
    layout: Layout,
    merged: MergedUpdate,
    exponents: Mapping[str, int],
    row: npt.NDArray[Any] | None = None,
    parts: int = 1,
) -> float:
    """Of the merged update, or of the difference between it and a row, whose values have so many
    parts a grid step.
    """
    squared = 0.0
    for name, _, span in layout.spans():
        values = merged.numerators[name].numpy().reshape(-1)
        for begin in range(0, len(values), _AT_ONCE):
            part = values[begin : begin + _AT_ONCE].astype(np.float64) / merged.denominator
            if row is not None:
                start = span.start + begin
                part -= row[start : start + len(part)] / parts
            squared += 4.0 ** exponents[name] * float(part @ part)
    return sqrt(squared)
