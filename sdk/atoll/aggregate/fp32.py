"""Uncompressed updates, the reference that codecs are compared with.

Body: the fp32 values little-endian in coordinate order. Not on the grid, so no integer rule takes
it; the exponents in the header are the round's, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from atoll.aggregate.grid import check_finite, flat
from atoll.aggregate.header import CodecId, body_of, header, header_length
from atoll.aggregate.layout import Layout
from atoll.errors import MalformedUpdate

if TYPE_CHECKING:
    from torch import Tensor


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
    head = header(CodecId.FP32, layout, exponents)
    values = np.frombuffer(body_of(data, head, 4 * layout.total), dtype="<f4").astype(np.float32)
    if not np.isfinite(values).all():
        raise MalformedUpdate("a value is not finite")
    if np.signbit(values[values == 0]).any():
        raise MalformedUpdate("minus zero is not canonical")
    return {
        name: torch.from_numpy(values[span].copy()).reshape(shape)
        for name, shape, span in layout.spans()
    }
