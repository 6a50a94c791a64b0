"""The held-out loss of a model: one number, the same bits for whoever computes it (SPEC.md, 20).

Rule of this file: the losses are those of the operations, and what joins them is exact, so that
neither order nor library can matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import torch
from torch import Tensor

from atoll.bits.batch import gather_batch
from atoll.bits.errors import MalformedDataset
from atoll.bits.model import forward
from atoll.bits.ops import operations
from atoll.bits.tokens import Tokens
from atoll.law.manifest import Manifest


def held_out_loss(params: Mapping[str, Tensor], manifest: Manifest, tokens: Tokens) -> float:
    """Mean loss in nats a target over `eval_batches` batches of windows of the held-out tokens.

    Raises:
        MalformedDataset: the tokens are fewer than one sequence and its target.
    """
    spec, size = manifest.model, manifest.inner.micro_batch
    last_start = len(tokens) - spec.seq - 1
    if last_start < 0:
        raise MalformedDataset(f"{len(tokens)} evaluation tokens are less than one sequence")
    ops = operations(manifest.numerics.mode)
    starts = window_starts(last_start, manifest.data.eval_batches * manifest.inner.batch)
    losses, counts = [], []
    with torch.no_grad():
        for at in range(0, len(starts), size):
            batch_bT1 = gather_batch(tokens, starts[at : at + size], spec.seq)
            targets_bT = batch_bT1[:, 1:]
            logits_bTV = forward(params, batch_bT1[:, :-1], spec, ops)
            losses.append(ops.cross_entropy(logits_bTV, targets_bT).item())
            counts.append(targets_bT.numel())
    return mean_loss(losses, counts)


def window_starts(last_start: int, count: int) -> list[int]:
    """`count` starts from 0 to `last_start`, evenly spaced, rounded down."""
    return [last_start * i // max(1, count - 1) for i in range(count)]


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
