"""Uncompressed updates, the reference that codecs are compared with.

Body: the fp32 values little-endian in coordinate order. They are merged by their mean, in integers
of 2^-40, which is what every exponent of such a job is; no robust rule and no outlier score takes
them, since squares of such integers would not fit 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from atoll.aggregate.grid import check_finite, flat
from atoll.aggregate.header import CodecId, body_of, header, header_length
from atoll.aggregate.layout import Layout
from atoll.aggregate.rules import Aggregate
from atoll.errors import MalformedUpdate

if TYPE_CHECKING:
    from torch import Tensor


UNIT_BITS = 40
LIMIT = 1 << 47
"""128 in units of 2^-40: larger values are clamped when they are merged."""
Int64Vector = npt.NDArray[np.int64]


def encoded_length(layout: Layout) -> int:
    """Bytes of any update of this layout."""
    return header_length(layout) + 4 * layout.total


def encode(delta: Mapping[str, Tensor], exponents: Mapping[str, int]) -> bytes:
    """The canonical bytes of an update; minus zero is written as zero.

    Raises:
        NonFiniteDeltaError: a value is NaN or infinite.
        ConfigError: exponents out of range or not of these tensors.
    """
    layout = Layout.of_tensors(delta)
    parts = [header(CodecId.FP32, layout, exponents)]
    for name in layout.names:
        values = flat(delta[name])
        check_finite(name, values)
        parts.append((values + np.float32(0)).astype("<f4").tobytes())
    return b"".join(parts)


def decode(data: bytes, layout: Layout, exponents: Mapping[str, int]) -> dict[str, Tensor]:
    """The fp32 tensors by name.

    Raises:
        MalformedUpdate: not canonical, or a value is not finite.
    """
    values = _values(data, layout, exponents)
    return {
        name: torch.from_numpy(values[span].copy()).reshape(shape)
        for name, shape, span in layout.spans()
    }


def decode_units(data: bytes, layout: Layout, exponents: Mapping[str, int]) -> Int64Vector:
    """The values in units of 2^-40, rounded half to even and clamped to ±128: what is merged.

    Raises:
        MalformedUpdate: as `decode`.
    """
    units = np.rint(_values(data, layout, exponents).astype(np.float64) * 2.0**UNIT_BITS)
    return np.clip(units, -LIMIT, LIMIT).astype(np.int64)


def mean(rows: Sequence[Int64Vector]) -> Aggregate:
    """The sum of at most 256 rows over their number."""
    n = len(rows)
    return Aggregate(sum(rows[1:], start=rows[0]), n, (Fraction(1, n),) * n)


def _values(data: bytes, layout: Layout, exponents: Mapping[str, int]) -> npt.NDArray[np.float32]:
    head = header(CodecId.FP32, layout, exponents)
    values = np.frombuffer(body_of(data, head, 4 * layout.total), dtype="<f4").astype(np.float32)
    if not np.isfinite(values).all():
        raise MalformedUpdate("a value is not finite")
    if np.signbit(values[values == 0]).any():
        raise MalformedUpdate("minus zero is not canonical")
    return values
