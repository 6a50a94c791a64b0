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

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from atoll.bits.codec.base import PIECE, Row
from atoll.bits.codec.layout import Layout
from atoll.bits.codec.registry import Target
from atoll.law.checks import lower_median

Values = npt.NDArray[np.int8]
Counts = tuple[int, int, int]
"""Of the coordinates of an update's tensor: all that a share is of, those above `fine_steps`, and
those above `coarse_steps`."""
_AT_ONCE: Final = 64 * PIECE


def vote(values: Values, target: Target) -> int:
    """−1, 0 or +1: what one update says about one tensor's exponent."""
    return _move(_counts(values, target), target)


def _counts(values: Values, target: Target) -> Counts:
    size = int(np.count_nonzero(values)) if target.of_sent else values.size
    return size, _above(values, target.fine_steps), _above(values, target.coarse_steps)


def _move(counts: Counts, target: Target) -> int:
    size, fine, coarse = counts
    if _exceeds(fine, target.fine_share, size):
        return 1
    return 0 if _exceeds(coarse, target.coarse_share, size) else -1


def _exceeds(count: int, share: Fraction, size: int) -> bool:
    return count * share.denominator > share.numerator * size


def _above(values: Values, steps: int) -> int:
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
        move = lower_median([_vote_of(row, span, target) for row in rows])
        moved[name] = min(max(exponents[name] + move, low), high)
    return moved


def _vote_of(row: Row, span: slice, target: Target) -> int:
    """`vote` of a row's values in a span, of which few are at hand at once."""
    size, fine, coarse = 0, 0, 0
    for part in _parts(span):
        found = _counts(row[part], target)
        size, fine, coarse = size + found[0], fine + found[1], coarse + found[2]
    return _move((size, fine, coarse), target)


def _parts(span: slice) -> Iterator[slice]:
    """The parts of a span; but for the first they begin where pieces do."""
    at = span.start
    while at < span.stop:
        end = min((at // _AT_ONCE + 1) * _AT_ONCE, span.stop)
        yield slice(at, end)
        at = end
