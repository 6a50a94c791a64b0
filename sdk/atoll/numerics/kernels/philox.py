"""Random integers by counter, in tensor arithmetic that every device does alike.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): the words are
a function of key and counter, so a mask needs no state and is the same wherever and however it is
worked out. First weights and masks are drawn with it; kernels.c has it for masks.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

import torch
from torch import Tensor

ROUNDS: Final = 10
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
LOW32: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Mask:
    """Which elements of one tensor are dropped: those whose word is below share · 2^32.

    Element i of the tensor has word (first + i) mod 4 of the block with the counter
    ((first + i) div 4 in two words, low first; step; site).

    Attributes:
        share: the probability, a decimal in [0, 1).
        key: two words, below 2^32 as all others.
        step, site: words of the counter.
        first: how many elements of the batch's tensor come before this part of it.
    """

    share: str
    key: tuple[int, int]
    step: int
    site: int
    first: int

    @property
    def threshold(self) -> int:
        """⌊share · 2^32⌋."""
        return int(Decimal(self.share) * (1 << 32))

    @property
    def scale(self) -> float:
        """1 / (1 − share), rounded once to binary64."""
        return float(1 / (1 - Fraction(self.share)))


def kept(mask: Mask, count: int, device: torch.device) -> Tensor:
    """Whether each of `count` elements stays: [count] bool."""
    return words(mask, count, device) >= mask.threshold


def words(mask: Mask, count: int, device: torch.device) -> Tensor:
    """Each of `count` elements' word: [count] int64."""
    start, stop = mask.first // 4, (mask.first + count + 3) // 4
    blocks = torch.arange(start, stop, dtype=torch.int64, device=device)
    step, site = (torch.full_like(blocks, word) for word in (mask.step, mask.site))
    drawn = philox4x32((blocks & LOW32, blocks >> 32, step, site), mask.key)
    return torch.stack(drawn, dim=1).flatten()[mask.first - 4 * start :][:count]


def philox4x32(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ten rounds on four int64 tensors of 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = _product(c0, _MULTIPLIERS[0])
        high2, low2 = _product(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & LOW32, (k1 + _WEYL[1]) & LOW32
    return c0, c1, c2, c3


def _product(word: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of word · factor, by halves so that int64 never overflows."""
    low = word * (factor & 0xFFFF)
    middle = word * (factor >> 16) + (low >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)
