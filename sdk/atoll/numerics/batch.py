"""Batches of tokens, as steps take them.

Rule of this file: a batch is int64, and a token that is no target is its complement, −1 − id.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from atoll.numerics.tokens import TokenSource, mask_bit


def gather_batch(
    tokens: TokenSource, offsets: Sequence[int], seq: int, *, masked: bool = False
) -> Tensor:
    """Token ids [B, T + 1], int64: a sequence and the token after it from each offset."""
    rows = np.stack([tokens[start : start + seq + 1] for start in offsets])
    ids = rows.astype(np.int64)
    if masked:
        bit = mask_bit(rows.dtype.name)
        ids = np.where(ids & bit, ~(ids ^ bit), ids)
    return torch.from_numpy(ids)


def inputs_of(batch_BT1: Tensor) -> Tensor:
    """What a model reads of a batch: all tokens but the last ones, targets or not: [B, T]."""
    ids_BT = batch_BT1[:, :-1]
    return torch.where(ids_BT < 0, ~ids_BT, ids_BT)


def targets_of(batch_BT1: Tensor) -> Tensor:
    """The token after each input, negative where it is none to learn: [B, T]."""
    return batch_BT1[:, 1:]


def count_targets(batch_BT1: Tensor) -> int:
    """How many tokens of a batch are learned."""
    return int((targets_of(batch_BT1) >= 0).sum())


def shares_of(counts: Sequence[int]) -> list[float]:
    """Each count's share of their sum, a quotient in fp64; 0 where the sum is 0."""
    total = sum(counts)
    return [count / total if total else 0.0 for count in counts]
