"""How good a model is: what joins its losses, and how verdicts say it (SPEC.md, 20)."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from fractions import Fraction

from atoll.protocol.checkpoint_commitments import float_bytes


def loss_bytes(loss: float) -> bytes:
    """The binary64, big-endian, as documents have it; every NaN is the one NaN."""
    return float_bytes(">d", loss)


def loss_of(data: bytes) -> float:
    """What `loss_bytes` wrote. Raises ValueError where it could not have."""
    loss = float(struct.unpack(">d", data)[0])
    if math.isinf(loss) or loss_bytes(loss) != data:
        raise ValueError(f"{data.hex()} is no held-out loss")
    return loss


def join(parts: Iterable[tuple[Sequence[float], Sequence[int]]]) -> float:
    """The held-out loss of the losses and counts of every batch, in order."""
    losses: list[float] = []
    counts: list[int] = []
    for some_losses, some_counts in parts:
        losses.extend(some_losses)
        counts.extend(some_counts)
    return mean_loss(losses, counts)


def mean_loss(losses: Sequence[float], counts: Sequence[int]) -> float:
    """Σ count·loss / Σ count, rounded once; NaN where a loss is not finite or nothing counts.

    Args:
        losses: of each micro-batch, the mean over its targets; values of binary32.
        counts: how many targets each has.
    """
    total = sum(counts)
    if not total or not all(map(math.isfinite, losses)):
        return math.nan
    weighted = (count * Fraction(loss) for loss, count in zip(losses, counts, strict=True))
    return float(sum(weighted, Fraction(0)) / total)
