"""Whether one provider's replays are off in the same direction again and again.

The error of an honest machine is noise: from segment to segment its direction changes, and its sign
is a matter of chance. Someone who hides a small bias inside the tolerance is off the same way each
time. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Sketch: TypeAlias = NDArray[np.float32]

CLEARLY_WITHIN = 0.5
"""Excess up to which a verifier contradicts whoever reports a segment as out of tolerance."""
SKETCH_WIDTH = 512  # cosines to about 0.04; 2 KiB a segment in the journal
MOST_RESIDUALS = 64  # all pairs of them, under every sign flip, are compared
FALSE_POSITIVES = 0.001
"""How often the test calls residuals of random sign coherent, at most."""
_FLIPS = 1 << 14  # a p-value of a thousandth is 16 of them


@dataclass(frozen=True, slots=True)
class Coherence:
    """How alike the directions of residuals are.

    Attributes:
        count: residuals that are not zero.
        mean_cosine: over all pairs: near 0 for noise; b² / (b² + σ²) for noise of norm σ around a
            bias of norm b.
        p_value: share of random sign flips with at least this mean cosine (Fisher's randomisation
            test); n residuals cannot give less than about 2^(1−n).
    """

    count: int
    mean_cosine: float
    p_value: float

    def exceeds(self, limit: float) -> bool:
        """Whether this is a bias: larger than the job allows, and not by chance."""
        return self.mean_cosine > limit and self.p_value <= FALSE_POSITIVES


def sketch(rows: Sequence[NDArray[np.float64]], key: int) -> Sketch:
    """A long vector, given in pieces, as a unit vector [SKETCH_WIDTH]; zero stays zero.

    A count sketch (Charikar, Chen and Farach-Colton 2002): cosines survive to about
    SKETCH_WIDTH^(−1/2). The key stays with the verifier, or a bias could be chosen to vanish.
    """
    stream, sums = np.random.Philox(key=key), np.zeros(SKETCH_WIDTH)
    for row in rows:
        words = stream.random_raw(row.size)
        places = ((words >> np.uint64(1)) % np.uint64(SKETCH_WIDTH)).astype(np.intp)
        signed = np.where(words & np.uint64(1), row, -row)
        sums += np.bincount(places, weights=signed, minlength=SKETCH_WIDTH)
    length = float(np.linalg.norm(sums))
    return (sums / length if length else sums).astype(np.float32)


def coherence(sketches: Sequence[Sketch]) -> Coherence:
    """Tests the last `MOST_RESIDUALS` residuals of one provider."""
    rows = np.array([s for s in sketches if s.any()][-MOST_RESIDUALS:], dtype=np.float64)
    count = len(rows)
    if count < 2:
        return Coherence(count, 0.0, 1.0)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, 0.0)
    words = np.random.Philox(key=0).random_raw(_FLIPS * count).reshape(_FLIPS, count)
    signs = np.where(words & np.uint64(1), 1.0, -1.0)
    flipped = ((signs @ cosines) * signs).sum(axis=1)
    seen = float(cosines.sum())
    share = (1 + int((flipped >= seen - 1e-9).sum())) / (1 + _FLIPS)
    return Coherence(count, seen / (count * (count - 1)), share)
