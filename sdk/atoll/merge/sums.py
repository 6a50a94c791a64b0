"""The merge of the sums that stand for second moments: entry by entry the (f' + 1)-th largest.

A row that few seats saw is small in most updates, so a median would let its second moment decay
for all; above the (f' + 1)-th largest there are only f' values, which bad seats may have invented.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from atoll.bits.codec.grid import Float32Vector
from atoll.bits.codec.sums import StoredSums

_AT_ONCE: Final = 1 << 22
"""Values of all updates together that are compared at once."""


def largest_but(f: int, sums: Sequence[StoredSums]) -> Float32Vector:
    """Of each entry the value that at most f of the updates exceed; f is below their number.

    Non-negative floats are ordered as their bits, so integers are compared.
    """
    found = np.empty(len(sums[0]), dtype=np.uint32)
    size = max(1, _AT_ONCE // len(sums))
    for at in range(0, len(found), size):
        span = slice(at, at + size)
        values = np.stack([each[span] for each in sums])
        place = len(sums) - 1 - f
        found[span] = np.partition(values, place, axis=0)[place]
    return found.view(np.float32)
