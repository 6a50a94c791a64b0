"""How a token follows from a row of logits: exactly, so that it can be checked.

Rule of this file: the weights are the integers that cross-entropy sums (SPEC-STEP.md, C1 and C2),
and a draw is one product of integers with a word of Philox, which the place of the token says. So
whoever has the logits' bits has the token, on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atoll.numerics.kernels.grid import whole
from atoll.numerics.kernels.interface import Kernels
from atoll.numerics.kernels.philox import LOW32, philox4x32

_SAMPLE = 1
"""The last word of the counter: other uses of the same key would take another one."""
_WEIGHT_ONE = 2.0**30


@dataclass(frozen=True, slots=True)
class Draw:
    """Where the words of a batch's draws come from.

    Attributes:
        key: of Philox, two words below 2^32.
        step: global, the same for the whole batch.
    """

    key: tuple[int, int]
    step: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """Which tokens of a batch are drawn: by place and not by prompt, so that equal prompts differ.

    Attributes:
        positions: of the logits that they are drawn from, int64 [N].
        places: of their sequences in the batch, int64 [N].
    """

    positions: Tensor
    places: Tensor

    @classmethod
    def across(cls, position: int, places: Tensor) -> Row:
        """The same position of several sequences."""
        return cls(torch.full_like(places, position), places)

    @classmethod
    def along(cls, positions: Tensor, place: int) -> Row:
        """Several positions of one sequence."""
        return cls(positions, torch.full_like(positions, place))


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens of N rows.

    Attributes:
        ids: int64 [N]; 0 in rows that are not finite.
        below: int64 [N], the weight of all tokens before the sampled one: what nobody has who did
            not compute the row. 0 of a greedy token.
        is_finite: bool [N], whether the row's maximum is a number.
    """

    ids: Tensor
    below: Tensor
    is_finite: Tensor


def sample(logits_NV: Tensor, row: Row, draw: Draw, kernels: Kernels) -> Sampled:
    """Draws at temperature 1: the first token whose cumulated weight is above the drawn one."""
    weights_NV, peak_N = _weights(logits_NV, kernels)
    is_finite_N = peak_N.isfinite()
    cumulated_NV = weights_NV.cumsum(-1)
    drawn_N = drawn_weights(row, draw, cumulated_NV[:, -1])
    ids_N1 = torch.searchsorted(cumulated_NV, drawn_N[:, None], right=True)
    ids_N1 = ids_N1.masked_fill(~is_finite_N[:, None], 0)
    below_N1 = cumulated_NV.gather(1, ids_N1) - weights_NV.gather(1, ids_N1)
    below_N = below_N1.squeeze(1).masked_fill(~is_finite_N, 0)
    return Sampled(ids_N1.squeeze(1), below_N, is_finite_N)


def drawn_weights(row: Row, draw: Draw, total_N: Tensor) -> Tensor:
    """What the cumulated weight of a drawn token is above, of rows with these sums of weights."""
    return _drawn(_words(row, draw), total_N)


def likeliest(logits_NV: Tensor) -> Sampled:
    """Of each row the token with the largest logit, of equal ones the lower."""
    peak_N1 = logits_NV.amax(-1, keepdim=True)
    ids_V = torch.arange(logits_NV.shape[1], device=logits_NV.device)
    ids_N = torch.where(logits_NV == peak_N1, ids_V, len(ids_V)).amin(-1)
    is_finite_N = peak_N1.squeeze(1).isfinite()
    return Sampled(ids_N.masked_fill(~is_finite_N, 0), torch.zeros_like(ids_N), is_finite_N)


def _weights(logits_NV: Tensor, kernels: Kernels) -> tuple[Tensor, Tensor]:
    """Integers [N, V], and each row's maximum [N]."""
    count, vocabulary = logits_NV.shape
    ones_1V1 = logits_NV.new_ones(1, vocabulary, 1)
    # Attention's weights are exp(score − peak) of scores times two steps, which are 1 here; no key
    # lies after a query. So this is what a loss sums, by kernels that every device has.
    shares_1NV, peak_1N1, _ = kernels.attention_weights(
        logits_NV.clone()[None], logits_NV.new_ones(1, count, 1), ones_1V1, vocabulary - 1
    )
    return whole(shares_1NV[0] * _WEIGHT_ONE).long(), peak_1N1.flatten()


def _words(row: Row, draw: Draw) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of each draw's word."""
    counter = (
        row.positions,
        row.places,
        torch.full_like(row.places, draw.step & LOW32),
        torch.full_like(row.places, _SAMPLE),
    )
    high, low, _, _ = philox4x32(counter, draw.key)
    return high, low


def _drawn(word: tuple[Tensor, Tensor], total: Tensor) -> Tensor:
    """⌊word · total / 2^64⌋, total below 2^51, in int64 that never overflows."""
    high, low = word
    carried = _shifted_product(low, total, torch.zeros_like(total))
    return _shifted_product(high, total, carried)


def _shifted_product(word: Tensor, total: Tensor, added: Tensor) -> Tensor:
    """⌊(word · total + added) / 2^32⌋ of a word below 2^32, and two numbers below 2^51."""
    low = word * (total & 0xFFFF) + (added & LOW32)
    middle = word * (total >> 16 & 0xFFFF) + (low >> 16)
    return word * (total >> 32) + (added >> 32) + (middle >> 16)
