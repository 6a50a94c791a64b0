"""How the shared grid follows the updates: each tensor's exponent moves by at most one a round.

Rule: every merged update votes on every tensor, and the lower median vote moves its exponent, so
that fewer than half of the seats cannot push it anywhere. A vote counts coordinates by magnitude:
- more than a share `fine_share` of them above `fine_steps`: the grid is too fine, +1;
- at most a share `coarse_share` above `coarse_steps` (an all-zero tensor too): too coarse, −1;
- otherwise it stays.
Each codec has its own target (`registry`), wide enough that a grid comes to rest on updates with
the tails that training gives them. The result is clamped to the manifest's bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from atoll.bits.codec.layout import Layout
from atoll.bits.codec.registry import Target
from atoll.law.checks import lower_median

Row = npt.NDArray[np.int8]


def vote(values: Row, target: Target) -> int:
    """−1, 0 or +1: what one update says about one tensor's exponent."""
    size = int(np.count_nonzero(values)) if target.of_sent else values.size
    if _above(values, target.fine_steps) > target.fine_share * size:
        return 1
    return 0 if _above(values, target.coarse_steps) > target.coarse_share * size else -1


def _above(values: Row, steps: int) -> int:
    return int(np.count_nonzero(values > steps) + np.count_nonzero(values < -steps))


def next_exponents(
    exponents: Mapping[str, int],
    layout: Layout,
    rows: Sequence[Row],
    target: Target | None,
    bounds: tuple[int, int],
) -> dict[str, int]:
    """The next round's grid exponents.

    Args:
        exponents: this round's, by tensor name.
        rows: the merged updates in grid steps, each flat in layout order. A row may be longer;
            coefficients of a transform are taken where the coordinates they stand for begin.
        target: the codec's; None where its grid never moves.
        bounds: lowest and highest exponent the manifest allows.
    """
    if target is None:
        return dict(exponents)
    low, high = bounds
    moved = {}
    for name, _, span in layout.spans():
        move = lower_median([vote(row[span], target) for row in rows])
        moved[name] = min(max(exponents[name] + move, low), high)
    return moved
