"""How the shared grid follows the updates: each tensor's exponent moves by at most one a round.

Rule, per tensor of s coordinates, on the merged update in grid steps (an exact fraction):
- more than s/256 coordinates above 64 steps: the grid is too fine and clips soon, exponent + 1;
- at most s/256 coordinates above 24 steps (a zero aggregate too): too coarse, exponent − 1;
- otherwise it stays. 64/24 > 2, so one move never provokes the opposite one on the same update.
The result is clamped to the manifest's bounds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from atoll.aggregate.layout import Layout

TOO_FINE_STEPS = 64
TOO_COARSE_STEPS = 24
RARE = 256
"""A magnitude is exceeded rarely when at most one coordinate in so many exceeds it."""


def move(numerators: npt.NDArray[np.int32], denominator: int) -> int:
    """−1, 0 or +1 for one tensor whose merged update is numerators / denominator grid steps."""
    if _often_above(TOO_FINE_STEPS, numerators, denominator):
        return 1
    return 0 if _often_above(TOO_COARSE_STEPS, numerators, denominator) else -1


def _often_above(steps: int, numerators: npt.NDArray[np.int32], denominator: int) -> bool:
    limit = steps * denominator
    above = np.count_nonzero((numerators > limit) | (numerators < -limit))
    return int(above) * RARE > numerators.size


def next_exponents(
    exponents: Mapping[str, int],
    layout: Layout,
    numerators: npt.NDArray[np.int32],
    denominator: int,
    bounds: tuple[int, int],
) -> dict[str, int]:
    """The next round's grid exponents.

    Args:
        exponents: this round's, by tensor name.
        numerators, denominator: the merged update in grid steps, flat in layout order.
        bounds: lowest and highest exponent the manifest allows.
    """
    low, high = bounds
    return {
        name: min(max(exponents[name] + move(numerators[span], denominator), low), high)
        for name, _, span in layout.spans()
    }
