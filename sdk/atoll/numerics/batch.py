"""What a step reads: micro-batches of token ids, targets and weights, and where they come from.

A weight is 1 where the target is learned and 0 where it is only read: a prompt, of which the answer
is learned, or padding. The loss is the mean over what has weight.

Rule of this file: a batch source is a function of what the job names and of a `BatchPosition`, and
of nothing else. An auditor reads the same micro-batch, and so does a game about one of its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atoll.numerics.tokens import TokenSource
from atoll.protocol.draws import batch_offsets
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Digest, SeatIndex


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """As many sequences as go through the model at once, [b, T] each.

    Attributes:
        ids: int64, what the model reads.
        targets: int64, the token after each; where tokens were sampled, −1 for all others.
        weights: fp32, of the targets: 0 or 1, or what a sampled token's likelihood is raised by.
        is_sampled: whether the sum over targets of weight · loss is learned, not a mean.
    """

    ids: Tensor
    targets: Tensor
    weights: Tensor
    is_sampled: bool = False

    @property
    def count(self) -> int:
        """How many targets are learned."""
        return int(torch.count_nonzero(self.weights))

    def to(self, device: torch.device) -> MicroBatch:
        ids, targets, weights = (t.to(device) for t in (self.ids, self.targets, self.weights))
        return MicroBatch(ids, targets, weights, self.is_sampled)


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """Which micro-batch is meant.

    Attributes:
        data_seed: the round's, which nobody knew before it opened: so that a seat cannot have
            chosen what it will be asked to train on.
        step: in the round, from 0; micro_batch: in the step, from 0.
    """

    data_seed: Digest
    seat: SeatIndex
    round: int
    step: int
    micro_batch: int


class BatchSource(Protocol):
    """Where micro-batches come from."""

    def micro_batch(self, position: BatchPosition) -> MicroBatch:
        """The same for everybody who asks for this position, on the CPU."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Sequences of `seq` tokens, and the token after each, of a file of words.

    Attributes:
        mask_bit: of a word: set where its token has weight 0; no bit where all have weight 1.
    """

    words: TokenSource
    seq: int
    mask_bit: int = 0

    def at(self, starts: Sequence[int]) -> MicroBatch:
        """A window from each start."""
        words = self._words(starts)
        tokens = torch.from_numpy(words & ~self.mask_bit)
        weights = torch.from_numpy((words[:, 1:] & self.mask_bit == 0).astype(np.float32))
        return MicroBatch(tokens[:, :-1], tokens[:, 1:], weights)

    def signed(self, starts: Sequence[int]) -> Tensor:
        """The windows as a trace has them, int64 [b, T + 1]: −1 − id for a token of weight 0.

        One integer for both, since an element of a node that is opened in a game is one word.
        """
        words = self._words(starts)
        return torch.from_numpy(np.where(words & self.mask_bit, ~(words & ~self.mask_bit), words))

    def _words(self, starts: Sequence[int]) -> NDArray[np.int64]:
        return np.stack([self.words[at : at + self.seq + 1] for at in starts]).astype(np.int64)


@dataclass(frozen=True, slots=True)
class DrawnWindows:
    """A `BatchSource`: of each step as many windows as its batch has, drawn with replacement.

    Passes over the data in an order would need a permutation that everybody agrees on and that
    outlives seats and rounds; a draw follows from the round's seed alone.

    Attributes:
        batch, micro_batch_size: sequences of a step, and of a micro-batch.
        limit: draws are below it.
        stride: a window begins at so many times its draw.
    """

    windows: Windows
    batch: int
    micro_batch_size: int
    limit: int
    stride: int = 1

    def starts(self, position: BatchPosition) -> list[int]:
        """Where the position's windows begin."""
        seed, seat, step = position.data_seed, position.seat, position.step
        first = position.micro_batch * self.micro_batch_size
        drawn = _draws_of_step(seed, seat, step, self.batch, self.limit)
        return [self.stride * draw for draw in drawn[first : first + self.micro_batch_size]]

    def micro_batch(self, position: BatchPosition) -> MicroBatch:
        return self.windows.at(self.starts(position))


@lru_cache(maxsize=4)
def _draws_of_step(
    data_seed: Digest, seat: SeatIndex, step: int, batch: int, limit: int
) -> tuple[int, ...]:
    """All of a step's draws, which come one after another: each micro-batch asks for its own."""
    return tuple(batch_offsets(data_seed, seat, step, batch, limit))


def batch_source(manifest: Manifest, tokens: TokenSource) -> BatchSource:
    """What a job trains on; docs/extending.md says how another kind comes here."""
    data, seq = manifest.data, manifest.model.seq
    return DrawnWindows(
        windows=Windows(tokens, seq, data.mask_bit),
        batch=manifest.inner.batch,
        micro_batch_size=manifest.inner.micro_batch,
        limit=data.windows(seq),
        stride=data.stride(seq),
    )


def shares_of(counts: Sequence[int]) -> list[float]:
    """Each count's share of their sum, a quotient in fp64; 0 where the sum is 0."""
    total = sum(counts)
    return [count / total if total else 0.0 for count in counts]
