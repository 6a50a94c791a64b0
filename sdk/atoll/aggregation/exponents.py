"""How the shared grid follows the updates: each tensor's exponent moves by at most four a round.

Rule: every merged update votes on every tensor, and the middle vote moves its exponent, so that
neither half of the seats nor fewer can push it beyond what some other seat says. A vote counts
magnitudes, of the values that are not 0: whether a 0 is a tensor's own (the row of a token that
nobody saw) or was rounded away, no update says.
- more than a share `share` of them above `fine`: the grid is too fine, +1; +2 where more than a
  quarter of them are clipped, and +4 where more than half are;
- at most that share above `coarse`, or at most a quarter above `low`: too coarse, −1, or as far as
  both would hold, but no further than `share` of them could be clipped;
- all of them 0: −4;
- otherwise it stays.
Each codec has its own target (`registry`), wide enough that a grid comes to rest on updates with
the tails that training gives them. The result is clamped to the manifest's bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from atoll.numerics.codec.registry import Target
from atoll.numerics.codec.update_codec import PIECE, VectorRow
from atoll.numerics.codec.vector_layout import Layout

MOST: Final = 4
"""Exponents are moved by in a round: a fourth part of what int8 spans is seen to be too little, or
too much, before the next round's update is lost."""
Values = npt.NDArray[np.int8]
Votes = tuple[tuple[int, ...], ...]
"""Of each row about each tensor."""
Above = npt.NDArray[np.int64]
"""How many values are above t in magnitude, by t from 0 to 127."""
_MAGNITUDES: Final = 128
_AT_ONCE: Final = 16 * PIECE


def vote(values: Values, target: Target) -> int:
    """−4 to 4: what one update says about one tensor's exponent."""
    return _move(_above(_counted(values)), target)


def _counted(values: npt.NDArray[Any]) -> Above:
    """How many values have each magnitude."""
    return np.bincount(np.abs(values), minlength=_MAGNITUDES).astype(np.int64, copy=False)


def _above(counted: Above) -> Above:
    above: Above = counted.sum() - np.cumsum(counted)
    return above


def _move(above: Above, target: Target) -> int:
    sent = int(above[0])
    if sent == 0:
        return -MOST
    if above[target.fine] * target.share > sent:
        clipped = int(above[target.clipped])
        return MOST if 2 * clipped > sent else 2 if 4 * clipped > sent else 1
    return -min(_wanted(above, target), _room(above, target))


def _wanted(above: Above, target: Target) -> int:
    """By how much a finer grid has enough of large values, and of others that are no noise."""
    sent = above[0]
    for finer in range(MOST):
        is_large = above[target.coarse >> finer] * target.share > sent
        if is_large and 4 * above[target.low >> finer] > sent:
            return finer
    return MOST


def _room(above: Above, target: Target) -> int:
    """By how much a finer grid clips few."""
    fits = (above[target.clipped >> finer] * target.share <= above[0] for finer in range(MOST + 1))
    return int(sum(fits)) - 1


def middle_vote(votes: Sequence[int]) -> int:
    """The middle one; of an even number that of the middle two which is nearer to 0, and 0 where
    they disagree on the direction; 0 of none.
    """
    if not votes:
        return 0
    ordered = sorted(votes)
    lower, upper = ordered[(len(votes) - 1) // 2], ordered[len(votes) // 2]
    return max(lower, min(upper, 0))


def next_exponents(
    exponents: Mapping[str, int],
    layout: Layout,
    rows: Sequence[VectorRow],
    target: Target | None,
    *,
    low: int,
    high: int,
) -> dict[str, int]:
    """The next round's grid exponents.

    Args:
        exponents: this round's, by tensor name.
        rows: the merged updates in grid steps, each flat in layout order. A row may be longer;
            coefficients of a transform are taken where the coordinates they stand for begin.
        target: the codec's; None where its grid never moves.
        low, high: the bounds of exponents that the manifest allows.
    """
    if target is None:
        return dict(exponents)
    return moved(exponents, layout, votes_of(layout, rows, target), low=low, high=high)


def votes_of(layout: Layout, rows: Sequence[VectorRow], target: Target) -> Votes:
    """What every row says about every tensor's exponent."""
    spans = [span for _, _, span in layout.spans()]
    return tuple(tuple(_vote_of(row, span, target) for span in spans) for row in rows)


def moved(
    exponents: Mapping[str, int],
    layout: Layout,
    votes: Sequence[Sequence[int]],
    *,
    low: int,
    high: int,
) -> dict[str, int]:
    """The exponents that these votes, of each row about each tensor, make of a round's."""
    by_tensor = zip(layout.names, zip(*votes, strict=True), strict=True)
    return {
        name: min(max(exponents[name] + middle_vote(moves), low), high) for name, moves in by_tensor
    }


def _vote_of(row: VectorRow, span: slice, target: Target) -> int:
    """`vote` of a row's values in a span, of which few are at hand at once."""
    counted = np.zeros(_MAGNITUDES, dtype=np.int64)
    for part in _parts(span):
        counted += _counted(row[part])
    return _move(_above(counted), target)


def _parts(span: slice) -> Iterator[slice]:
    """The parts of a span; but for the first they begin where pieces do."""
    at = span.start
    while at < span.stop:
        end = min((at // _AT_ONCE + 1) * _AT_ONCE, span.stop)
        yield slice(at, end)
        at = end
