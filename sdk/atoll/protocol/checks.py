"""Which updates stand out, and how: five exact checks on the Gram matrix of a round's updates.

Rule of this file: plain integers and exact fractions only, so that every party names the same
seats. Honest work can look like this too (two seats with nearly the same data, a turbulent round):
being named is no fault and costs no pay, only the round's weight (`merge_inputs`). How often honest
seats are named, and what slips under each limit, is measured in docs/attacks.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import combinations
from math import lcm
from typing import Final, TypeAlias

from atoll.protocol.types import SeatIndex

Gram: TypeAlias = Sequence[Sequence[int]]
"""Inner products of all pairs of updates, symmetric, in Python integers, which do not overflow."""

NORM_CAP: Final = Fraction(3)
"""Times the lower median norm; honest updates of one round stay within 2.3."""
COPY_SHARE: Final = 64
"""Of the median of `apart`: two honest updates are never so much nearer than others of their round,
however alike all of them are. Where they have little in common it is a cosine of 0.992.
"""
RIGHT_ANGLE: Final = 1 << 64
"""What `apart` says of two updates that have nothing in common."""
ALIGNMENT: Final = Fraction(3, 4)
"""Of the median alignment (`alignments`): one honest update in a thousand is below it."""
MOMENT_ALIGNMENT: Final = Fraction(7, 8)
"""Of the median alignment of first moments: many honest ones are below it, which lose little."""


class Check(StrEnum):
    """What is odd about an update; their order is the order in which weight is lost."""

    DISTANT = "distant"
    LOUD = "loud"
    SILENT = "silent"
    COPY = "copy"
    MISALIGNED = "misaligned"


@dataclass(frozen=True, slots=True)
class Named:
    """One finding; `reason` is for people, no party has to agree on it."""

    seat: SeatIndex
    check: Check
    reason: str


def lower_median(values: Sequence[int]) -> int:
    """The middle value; of an even count the lower of the two middle ones; 0 of none."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0


def name_odd(
    seats: Sequence[SeatIndex],
    grams: Sequence[Gram],
    done: Sequence[int],
    *,
    kappa: str,
    f: int,
) -> tuple[Named, ...]:
    """Findings check by check in the order of `Check`, at most f of each, the most odd first.

    Args:
        seats: seat of each row, ascending.
        grams: inner products, n rows of n: of what moves the model, and where updates have first
            moments of those too, which can be distant or loud by themselves.
        done: how much of the round each did, at least 1.
        kappa: decimal string, compared exactly.
        f: faulty updates that the merge bears.
    """
    gram = grams[0]
    checks = (
        _each_once(found for each in grams for found in _distant(seats, each, kappa)),
        _each_once(found for each in grams for found in _loud(seats, each)),
        _silent(seats, gram),
        _copies(seats, gram),
        _misaligned(seats, gram, done),
    )
    return tuple(found for check in checks for found in check[:f])


def _each_once(findings: Iterable[Named]) -> list[Named]:
    """The first about each seat."""
    by_seat: dict[SeatIndex, Named] = {}
    for each in findings:
        by_seat.setdefault(each.seat, each)
    return list(by_seat.values())


def distance_scores(gram: Gram) -> list[int]:
    """Each update's lower median squared distance to the others."""
    rows = range(len(gram))
    return [
        lower_median([gram[i][i] + gram[j][j] - 2 * gram[i][j] for j in rows if j != i])
        for i in rows
    ]


def alignments(gram: Gram, done: Sequence[int]) -> list[int]:
    """Each update's upper median inner product with the others, per segment done; 0 without others.

    In many dimensions honest noise is nearly orthogonal to everything, so for honest seats this is
    the squared length of what they have in common. An update made to slow the merge down has to
    have less of it, even where its distance to the others is that of an honest one. Who did less
    has less of it honestly: the product of i and j counts G[i][j] / (done by i · done by j), all
    times the square of their least common multiple, so that it stays an integer.
    """
    n, whole = len(gram), lcm(*done)
    times = [whole // part for part in done]
    return [
        sorted(gram[i][j] * times[i] * times[j] for j in range(n) if j != i)[(n - 1) // 2]
        if n > 1
        else 0
        for i in range(n)
    ]


def _distant(seats: Sequence[SeatIndex], gram: Gram, kappa: str) -> list[Named]:
    scores = distance_scores(gram)
    limit = Fraction(kappa) ** 2 * lower_median(scores)
    far = sorted((-score, seat) for score, seat in zip(scores, seats, strict=True) if score > limit)
    reason = f"is above {float(limit):.6g}"
    return [Named(seat, Check.DISTANT, f"score {-score} {reason}") for score, seat in far]


def _loud(seats: Sequence[SeatIndex], gram: Gram) -> list[Named]:
    squares = _squares(gram)
    cap = NORM_CAP**2 * lower_median(squares)
    loud = sorted((-s, seat) for s, seat in zip(squares, seats, strict=True) if s > cap)
    reason = f"is above {float(cap):.6g}"
    return [Named(seat, Check.LOUD, f"squared norm {-s} {reason}") for s, seat in loud]


def _silent(seats: Sequence[SeatIndex], gram: Gram) -> list[Named]:
    silent = (seat for seat, square in zip(seats, _squares(gram), strict=True) if square == 0)
    return [Named(seat, Check.SILENT, "every value is zero") for seat in silent]


def apart(gram: Gram) -> dict[tuple[int, int], int]:
    """sin² of the angle between two updates, in parts of 2^64 rounded down, by pair of rows.

    At a right angle and beyond it is the whole. What is zero has no angle with anything.
    """
    squares = _squares(gram)
    angles = {}
    for i, j in combinations([row for row, square in enumerate(squares) if square], 2):
        whole, product = squares[i] * squares[j], gram[i][j]
        angles[i, j] = (whole - max(product, 0) ** 2) * RIGHT_ANGLE // whole
    return angles


def _copies(seats: Sequence[SeatIndex], gram: Gram) -> list[Named]:
    """Of two alike both are named: which came first is not in the bytes.

    What counts as alike follows from the round: in one of few steps or little noise every honest
    update has a cosine above 0.99 with every other.
    """
    angles = apart(gram)
    middle = lower_median([*angles.values()])
    twins: dict[int, list[int]] = {}
    for (i, j), angle in angles.items():
        if COPY_SHARE * angle < middle:
            twins.setdefault(i, []).append(j)
            twins.setdefault(j, []).append(i)
    ranked = sorted((-len(others), row) for row, others in twins.items())
    names = {row: ", ".join(str(seats[twin]) for twin in twins[row]) for row in twins}
    reason = f"nearer than 1/{COPY_SHARE} of the median angle's sin² to seat"
    return [Named(seats[row], Check.COPY, f"{reason} {names[row]}") for _, row in ranked]


def _misaligned(seats: Sequence[SeatIndex], gram: Gram, done: Sequence[int]) -> list[Named]:
    limit, low = _below(ALIGNMENT, seats, alignments(gram, done))
    below = f"is below {float(limit):.6g}"
    return [Named(seat, Check.MISALIGNED, f"alignment {value} {below}") for value, seat in low]


def other_directions(seats: Sequence[SeatIndex], gram: Gram) -> list[SeatIndex]:
    """Seats whose first moments have less in common with the others', the least first.

    A moment is a mean over steps and no sum of them, so nobody's counts by the segments it did.
    """
    _, low = _below(MOMENT_ALIGNMENT, seats, alignments(gram, [1] * len(gram)))
    return [seat for _, seat in low]


def _below(
    share: Fraction, seats: Sequence[SeatIndex], found: Sequence[int]
) -> tuple[Fraction, list[tuple[int, SeatIndex]]]:
    """That share of the median alignment, and who has less; with the least first."""
    middle = lower_median(found)
    if middle <= 0:  # nothing in common: no direction to be misaligned with
        return Fraction(0), []
    limit = share * middle
    return limit, sorted((v, seat) for v, seat in zip(found, seats, strict=True) if v < limit)


def _squares(gram: Gram) -> list[int]:
    return [gram[row][row] for row in range(len(gram))]
