"""The merge of sparse updates: norms clipped to their median, then a mean over contributors.

With few senders a coordinate, trimming throws honest values away; a mean over all n would shrink
the rest. Here a coordinate's sum is divided by the number of updates that sent it, which is what
makes SparseLoCo work; the clip bounds what one sender can do, though not its direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt

import numpy as np

from atoll.aggregation.chunks import PassPlan, blocks
from atoll.aggregation.rules import Aggregate
from atoll.numerics.codec.update_codec import VectorRow
from atoll.protocol.checks import lower_median

DENOMINATOR = 1 << 12  # a merged coordinate keeps 12 bits below a grid step
_UNIT = 1 << 16
_NORM_BLOCK = 1 << 22


def contributor_mean(rows: Sequence[VectorRow], plan: PassPlan | None = None) -> Aggregate:
    """Merges n sparse updates, in which 0 means not sent.

    Each coordinate is round(Σ factorᵢ · valueᵢ · 4096 / contributors) over 4096, halves up, where
    factorᵢ = min(1, lower median norm / norm) in steps of 2⁻¹⁶, floored. A weight is the row's
    factor over n.
    """
    plan = plan or PassPlan()
    norms = [isqrt(_squared_norm(row, plan)) for row in rows]
    radius = lower_median(norms)
    factors = [_UNIT if norm <= radius else _UNIT * radius // norm for norm in norms]
    numerators = np.empty(len(rows[0]), dtype=np.int32)
    for span in blocks(rows):
        lanes, out = [row[span] for row in rows], numerators[span]
        for chunk in plan.chunks(len(out)):
            block = np.stack([lane[chunk] for lane in lanes])
            sums = np.array(factors, dtype=np.int64) @ block.astype(np.int64)
            divisor = np.maximum(np.count_nonzero(block, axis=0), 1) * (_UNIT // DENOMINATOR)
            out[chunk] = (2 * sums + divisor) // (2 * divisor)
    shares = tuple(Fraction(factor, _UNIT * len(rows)) for factor in factors)
    return Aggregate(numerators, DENOMINATOR, shares)


def _squared_norm(row: VectorRow, plan: PassPlan) -> int:
    total = 0
    for span in blocks([row], _NORM_BLOCK):
        lane = row[span]
        for chunk in plan.chunks(len(lane)):
            wide = lane[chunk].astype(np.int64)
            total += int(wide @ wide)
    return total
