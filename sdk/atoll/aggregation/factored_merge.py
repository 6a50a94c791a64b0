"""The merge of the factored second moments: entry by entry the (f' + 1)-th largest.

A row that few seats saw is small in most updates, so a median would let its second moment decay
for all; above the (f' + 1)-th largest there are only f' values, which bad seats may have invented.
Sums enter no Gram matrix, so that nothing else tells an invented one. So of three updates the
largest is never taken, whatever f' is, and no sum is far above what half of the seats say that the
largest of its kind is: what is not borne is bounded, and nobody's sums overflow by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from atoll.numerics.codec.factored import FactoredLayout, FactoredMoments
from atoll.numerics.codec.grid_rounding import Float32Vector

_ENOUGH: Final = 3
"""Updates of which the largest of a sum can be excluded, and two still speak."""
_FAR: Final = np.float32(16)
_MOST: Final = np.float32(2.0**64)
_AT_ONCE: Final = 1 << 22
"""Values of all updates together that are compared at once."""


def merged_factored(
    f: int, factored: Sequence[FactoredMoments], places: FactoredLayout
) -> Float32Vector:
    """The merged sums of these updates, the rule bearing f bad ones; laid out as theirs."""
    limited = largest_but(passed_over(f, len(factored)), factored)
    for group in places.groups():
        np.minimum(limited[group], _limit(group, factored), out=limited[group])
    return limited


def passed_over(f: int, updates: int) -> int:
    """How many values of so many updates are passed over, the rule bearing f bad ones."""
    return f if updates < _ENOUGH else max(f, 1)


def largest_but(f: int, factored: Sequence[FactoredMoments]) -> Float32Vector:
    """Of each entry the value that at most f of the updates exceed; f is below their number.

    Non-negative floats are ordered as their bits, so integers are compared.
    """
    largest = np.empty(len(factored[0]), dtype=np.uint32)
    size = max(1, _AT_ONCE // len(factored))
    for at in range(0, len(largest), size):
        span = slice(at, at + size)
        values = np.stack([each[span] for each in factored])
        place = len(factored) - 1 - f
        largest[span] = np.partition(values, place, axis=0)[place]
    return largest.view(np.float32)


def _limit(group: slice, factored: Sequence[FactoredMoments]) -> np.float32:
    """16 times the lower median of what each update's largest is there, at most 2^64."""
    largest = sorted(each[group].max() for each in factored)
    median = largest[(len(largest) - 1) // 2].view(np.float32)
    return min(np.float32(min(median, _MOST) * _FAR), _MOST)
