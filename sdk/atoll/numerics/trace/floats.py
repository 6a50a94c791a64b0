"""What family 3 of the trace has beside `elementwise`: rotation, dropout and a token's loss.

Rule of this file: as in `elementwise`; FloatSteps.sol gives any element alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from atoll.numerics.kernels.elementary import log
from atoll.numerics.kernels.grid import one_nan
from atoll.numerics.kernels.philox import LOW32, Mask
from atoll.numerics.kernels.philox import words as philox_words
from atoll.numerics.trace.integers import Operation, float32
from atoll.numerics.trace.opcodes import Op


def _unsigned(x: Tensor, width: int) -> list[int]:
    """The unsigned little-endian integers of `width` bytes that x's bytes are."""
    data = x.contiguous().view(torch.uint8).numpy().tobytes()
    return [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]


def rotate(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    length, width, sign = words
    x, cos, sin = inputs
    a, b = x.view(-1, length, width).chunk(2, dim=-1)
    c, s = cos.view(length, -1), sin.view(length, -1) * float32(sign)
    return one_nan(torch.cat((a * c - b * s, b * c + a * s), dim=-1)).flatten()


def dropout(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """DROPOUT [threshold, scale f32, site, first, per iteration]: x, key, global step (D1, D2).

    key is two u32, the global step a u64 whose low word counts; element e of x is number
    first + iteration · per iteration + e of its site.
    """
    threshold, factor, site, first, per_iteration = words
    x, key, step = inputs
    k0, k1 = _unsigned(key, 4)
    start = first + iteration * per_iteration
    mask = Mask("0", (k0, k1), _unsigned(step, 8)[0] & LOW32, site, start)
    kept = philox_words(mask, x.numel(), x.device) >= threshold
    return torch.where(kept, one_nan(x * float32(factor)), 0.0)


def token_loss(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    logits, m, wide, targets = inputs
    at = targets.long().clamp(min=0)[:, None]
    z = logits.view(-1, words[0]).gather(1, at).squeeze(1) - m
    return torch.where(targets < 0, 0.0, one_nan(log(wide.float()) - z))


OPERATIONS: Final[dict[int, Operation]] = {
    Op.ROTATE: rotate,
    Op.DROPOUT: dropout,
    Op.TOKEN_LOSS: token_loss,
}
