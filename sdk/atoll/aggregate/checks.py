"""Cheap integer checks of a round's updates before any replay: loudness, copies, free-riders.

All follow from the Gram matrix the outlier scores need anyway, and every comparison is between
exact integers. They decide nothing: an update that trips one is worth a full replay, because honest
work can look like this too (two seats with nearly the same data, a quiet round).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from atoll.aggregate.gram import Int64Matrix
from atoll.aggregate.outliers import lower_median


class Suspicion(StrEnum):
    """What a check found odd about an update."""

    SILENT = "silent"
    LOUD = "loud"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Suspect:
    """One finding: a seat, what is odd, and the numbers in one line."""

    seat: int
    suspicion: Suspicion
    reason: str


def find_suspects(
    seats: Sequence[int], gram_nn: Int64Matrix, *, norm_cap: str, copy_cosine: str
) -> list[Suspect]:
    """Updates worth a full replay, by seat and then by check.

    Args:
        seats: seat index of each row, ascending.
        gram_nn: inner products, (n, n).
        norm_cap: decimal string; a norm above it times the lower median norm is loud.
        copy_cosine: decimal string below 1; of two updates with a higher cosine both are named,
            since which one came first is not in the bytes. A free-rider that sends a blend of
            others' earlier updates is found the same way.
    """
    squares = [int(gram_nn[i, i]) for i in range(len(seats))]
    cap = Fraction(norm_cap) ** 2 * lower_median(squares)
    found = []
    for row, seat in enumerate(seats):
        if squares[row] == 0:
            found.append(Suspect(seat, Suspicion.SILENT, "every value is zero"))
            continue
        if squares[row] > cap:
            reason = f"squared norm {squares[row]} is above {float(cap):.6g}"
            found.append(Suspect(seat, Suspicion.LOUD, reason))
        twins = _twins(row, gram_nn, squares, Fraction(copy_cosine))
        if twins:
            names = ", ".join(str(seats[twin]) for twin in twins)
            reason = f"cosine above {copy_cosine} with seat {names}"
            found.append(Suspect(seat, Suspicion.COPY, reason))
    return found


def _twins(row: int, gram_nn: Int64Matrix, squares: list[int], cosine: Fraction) -> list[int]:
    """Rows whose cosine with `row` is above the limit: products compared squared, as integers."""
    limit = cosine**2
    return [
        other
        for other, square in enumerate(squares)
        if other != row
        and (product := int(gram_nn[row, other])) > 0
        and product * product > limit * squares[row] * square
    ]
