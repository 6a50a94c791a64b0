"""Tokens as arrays, and the types that a manifest may name. Needs no torch."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

DTYPES: dict[str, np.dtype[Any]] = {
    "uint8": np.dtype("<u1"),
    "uint16": np.dtype("<u2"),
    "uint32": np.dtype("<u4"),
}
Tokens: TypeAlias = NDArray[Any]
"""Token ids, unsigned little-endian."""
