"""Batches of tokens, as steps take them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from atoll.bits.tokens import Tokens


def gather_batch(tokens: Tokens, offsets: Sequence[int], seq: int) -> Tensor:
    """Token ids [B, T + 1], int64: a sequence and the token after it from each offset."""
    rows = [tokens[start : start + seq + 1] for start in offsets]
    return torch.from_numpy(np.stack(rows).astype(np.int64))
