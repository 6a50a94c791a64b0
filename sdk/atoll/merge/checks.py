"""Which updates are replayed in full before they are paid: five exact checks on the Gram matrix.

All compare integers, so every verifier names the same seats. None decides anything: honest work can
look like this too (two seats with nearly the same data, a turbulent round), and replay tells.
How often honest seats are named, and what slips under each limit, is measured in docs/attacks.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from atoll.merge.gram import Int64Matrix, squared_distances
from atoll.merge.outliers import find_outliers, lower_median

NORM_CAP = Fraction(3)
"""Times the lower median norm; honest updates of one round stay within 2.3."""
COPY_COSINE = Fraction(99, 100)
"""Above the highest cosine of two honest updates, 0.961, which warm-up brings."""
ALIGNMENT = Fraction(9, 10)
"""Of the median alignment: see `alignments`."""


class Suspicion(StrEnum):
    """What a check found odd about an update."""

    DISTANT = "distant"
    LOUD = "loud"
    SILENT = "silent"
    COPY = "copy"
    MISALIGNED = "misaligned"


@dataclass(frozen=True, slots=True)
class Suspect:
    """One finding: a seat, what is odd, and the numbers in one line."""

    seat: int
    suspicion: Suspicion
    reason: str


def find_suspects(
    seats: Sequence[int], gram_nn: Int64Matrix, *, kappa: str, f: int
) -> list[Suspect]:
    """Updates worth a full replay, check by check, at most f of each, most conspicuous first.

    Args:
        seats: seat index of each row, ascending.
        gram_nn: inner products, (n, n).
        kappa: decimal string; the limit of `find_outliers`.
        f: faulty updates that the merge bears.
    """
    outliers = find_outliers(seats, squared_distances(gram_nn), kappa, f)
    distant = [Suspect(s, Suspicion.DISTANT, outliers.reason(s)) for s in outliers.flagged]
    checks = (_loud, _silent, _copies, _misaligned)
    return distant + [found for check in checks for found in check(seats, gram_nn)[:f]]


def full_replays(
    seats: Sequence[int], gram_nn: Int64Matrix, *, kappa: str, f: int
) -> tuple[int, ...]:
    """The seats that `find_suspects` names, each once, in its order."""
    found = find_suspects(seats, gram_nn, kappa=kappa, f=f)
    return tuple(dict.fromkeys(suspect.seat for suspect in found))


def alignments(gram_nn: Int64Matrix) -> list[int]:
    """Each update's upper median inner product with the others.

    In many dimensions honest noise is nearly orthogonal to everything, so for honest seats this is
    the squared length of what they have in common. An update made to slow the merge down has to
    have less of it, even where its distance to the others is that of an honest one.
    """
    n = len(gram_nn)
    return [
        sorted(int(gram_nn[i, j]) for j in range(n) if j != i)[(n - 1) // 2] if n > 1 else 0
        for i in range(n)
    ]


def _loud(seats: Sequence[int], gram_nn: Int64Matrix) -> list[Suspect]:
    squares = _squares(gram_nn)
    cap = NORM_CAP**2 * lower_median(squares)
    above = f"is above {float(cap):.6g}"
    loud = [(-square, seat) for seat, square in zip(seats, squares, strict=True) if square > cap]
    return [Suspect(s, Suspicion.LOUD, f"squared norm {-v} {above}") for v, s in sorted(loud)]


def _silent(seats: Sequence[int], gram_nn: Int64Matrix) -> list[Suspect]:
    squares = _squares(gram_nn)
    return [
        Suspect(seat, Suspicion.SILENT, "every value is zero")
        for seat, square in zip(seats, squares, strict=True)
        if square == 0
    ]


def _copies(seats: Sequence[int], gram_nn: Int64Matrix) -> list[Suspect]:
    """Of two alike both are named: which came first is not in the bytes."""
    squares = _squares(gram_nn)
    found = []
    for row, seat in enumerate(seats):
        twins = _twins(row, gram_nn, squares)
        if twins:
            names = ", ".join(str(seats[twin]) for twin in twins)
            reason = f"cosine above {float(COPY_COSINE)} with seat {names}"
            found.append((-len(twins), seat, reason))
    return [Suspect(seat, Suspicion.COPY, reason) for _, seat, reason in sorted(found)]


def _twins(row: int, gram_nn: Int64Matrix, squares: list[int]) -> list[int]:
    """Rows whose cosine with `row` is above the limit: products compared squared, as integers."""
    limit = COPY_COSINE**2
    return [
        other
        for other, square in enumerate(squares)
        if other != row
        and (product := int(gram_nn[row, other])) > 0
        and product * product > limit * squares[row] * square
    ]


def _misaligned(seats: Sequence[int], gram_nn: Int64Matrix) -> list[Suspect]:
    found = alignments(gram_nn)
    limit = ALIGNMENT * lower_median(found)
    low = sorted((value, seat) for value, seat in zip(found, seats, strict=True) if value < limit)
    return [
        Suspect(seat, Suspicion.MISALIGNED, f"alignment {value} is below {float(limit):.6g}")
        for value, seat in low
        if limit > 0
    ]


def _squares(gram_nn: Int64Matrix) -> list[int]:
    return [int(gram_nn[row, row]) for row in range(len(gram_nn))]
