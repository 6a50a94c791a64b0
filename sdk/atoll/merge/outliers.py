"""Which updates stand out so far that they are replayed in full before they are paid.

score(seat) = median of the squared integer distances to the other updates; a seat is an outlier
iff score > κ² · median(scores). The median of an even count is the lower of the two middle values,
so every quantity is an integer and κ, a decimal string, is compared as an exact fraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from atoll.merge.gram import Int64Matrix


@dataclass(frozen=True, slots=True)
class OutlierReport:
    """Scores and the seats to replay in full.

    Attributes:
        scores: median squared integer distance to the others, by seat.
        threshold: κ² · median score; a seat above it is an outlier.
        flagged: the top min(f, outliers) seats, by descending score, ties by seat index.
    """

    scores: dict[int, int]
    threshold: Fraction
    flagged: tuple[int, ...]

    def reason(self, seat: int) -> str:
        """One line that says why the seat is or is not an outlier."""
        score = self.scores[seat]
        relation = "above" if score > self.threshold else "within"
        return f"score {score} is {relation} the threshold {float(self.threshold):.6g}"


def lower_median(values: Sequence[int]) -> int:
    """The middle value; of an even count the lower of the two middle ones; 0 of none."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0


def find_outliers(
    seats: Sequence[int], distances_nn: Int64Matrix, kappa: str, f: int
) -> OutlierReport:
    """Score every seat and name those to replay in full.

    Args:
        seats: seat index of each row.
        distances_nn: squared integer distances, (n, n).
        kappa: decimal string.
        f: most seats that may be named.
    """
    n = len(seats)
    scores = {
        seat: lower_median([int(distances_nn[row, other]) for other in range(n) if other != row])
        for row, seat in enumerate(seats)
    }
    threshold = Fraction(kappa) ** 2 * lower_median(list(scores.values()))
    above = [seat for seat in seats if scores[seat] > threshold]
    ranked = sorted(above, key=lambda seat: (-scores[seat], seat))
    return OutlierReport(scores, threshold, tuple(ranked[:f]))
