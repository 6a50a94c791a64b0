"""Family 0 of the trace: what a step takes from elsewhere.

Rule of this file: an import copies bytes that a root on the chain, the manifest or the game itself
vouches for, and changes nothing but their order and byte order. `opcodes` says which words and
inputs each has; ImportSteps.sol has the same for one element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from atoll.numerics.batch import BatchPosition, DrawnWindows, Windows
from atoll.numerics.state import SeatState
from atoll.numerics.tokens import TokenSource
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.canonical import decode
from atoll.protocol.checkpoint_commitments import StateRoots
from atoll.protocol.draws import dropout_key
from atoll.protocol.types import Digest, SeatIndex

CONTEXT_BYTES: Final = 12 * 32
TOKEN_CONTEXT_BYTES: Final = 13 * 32
"""Of a token's own trace: the token's number stands behind."""


@dataclass(frozen=True, slots=True)
class ImportContext:
    """What the game knows of a step from the claim, the steps and the job.

    Attributes:
        data_seed: of the round.
        step: in the round, from 0; global_step: in the job.
        roots: of the state before the step.
        model: params root of the round's global model.
        exponents: SHA-256 of that state's exponents, as in its digest.
        token: of the step's batch, that a trace of its own is about; None of every other trace.
    """

    data_seed: Digest
    seat: SeatIndex
    round: int
    step: int
    global_step: int
    roots: StateRoots
    model: Digest
    exponents: Digest
    token: int | None = None

    def to_bytes(self) -> bytes:
        """Twelve words of 32 bytes, numbers big-endian; thirteen of a token."""
        numbers = (self.seat, self.round, self.step, self.global_step)
        words = [number.to_bytes(32, "big") for number in numbers]
        digests = (self.roots.digest(), *self.roots, self.model, self.exponents)
        token = () if self.token is None else (self.token.to_bytes(32, "big"),)
        return b"".join((self.data_seed, *words, *digests, *token))


def nothing_sampled() -> Tensor:
    """The tokens of a step that samples none."""
    return torch.zeros(0, dtype=torch.int32)


@dataclass(frozen=True, slots=True)
class TraceSources:
    """Where imports read.

    Attributes:
        state: before the step.
        tables: the bytes of `schedule_tables.table_parts`, one after another.
        base: the frozen model by name; empty where everything is trained.
        model: the round's global parameters by name, which only the update proof reads.
        exponents: the bytes of which the context has the hash, likewise.
        generated: the tokens of a step that samples, i32 [B, T + 1, 4]; none of other steps.
        sampled: of an update proof, the ids of the round's steps, i32 [·, B, T + 1]; of those that
            were not generated −1 − id.
    """

    context: ImportContext
    state: SeatState
    tokens: TokenSource
    tables: bytes
    base: Mapping[str, Tensor]
    model: Mapping[str, Tensor]
    exponents: bytes
    generated: Tensor = field(default_factory=nothing_sampled)
    sampled: Tensor = field(default_factory=nothing_sampled)


Read: TypeAlias = Callable[["Reading"], Tensor]


@dataclass(frozen=True, slots=True)
class Reading:
    """An import's node: its words, tail and iteration, the nodes that it reads, and the sources."""

    words: Sequence[int]
    tail: bytes
    iteration: int
    inputs: Sequence[Tensor]
    sources: TraceSources


@lru_cache(maxsize=4096)
def _name(tail: bytes) -> str:
    """Of the tensor whose chunks are hashed behind the tail."""
    fields = decode(tail, len(tail))
    assert isinstance(fields, list)
    return str(fields[1])


def _state(r: Reading) -> Tensor:
    state, name = r.sources.state, _name(r.tail)
    if r.words[2] == 0:
        return state.params[name].flatten()
    group, _, name = name.partition("/")
    groups = {"m": state.m, "v": state.v, "feedback": state.feedback, "left": state.residual}
    return groups[group][name].flatten()


def _tokens(r: Reading) -> Tensor:
    size, seq, token_bytes, is_masked, limit, stride = r.words
    c = r.sources.context
    windows = Windows(r.sources.tokens, seq, mask_bit=is_masked << 8 * token_bytes - 1)
    # A node does not say how large the batch is, and later draws change no earlier one.
    drawn = DrawnWindows(windows, (r.iteration + 1) * size, size, limit, stride)
    position = BatchPosition(c.data_seed, c.seat, c.round, c.step, r.iteration)
    return windows.signed(drawn.starts(position)).to(torch.int32).flatten()


def _ids(r: Reading) -> Tensor:
    signed = r.inputs[0].view(-1, r.words[0] + 1)[:, :-1]
    return torch.where(signed < 0, ~signed, signed).flatten()


def _targets(r: Reading) -> Tensor:
    """Targets and weights in one: a target of weight 0 stays negative."""
    return r.inputs[0].view(-1, r.words[0] + 1)[:, 1:].flatten()


def _rate(r: Reading) -> Tensor:
    return _table(r, ">f8", 8 * r.sources.context.global_step, 1)


def _corrections(r: Reading) -> Tensor:
    offset, count = r.words
    row = max(1, min(int(r.inputs[0]), count)) - 1  # a forged state may count from below
    return _table(r, ">f8", offset + 16 * row, 2)


def _table(r: Reading, kind: str, offset: int, count: int) -> Tensor:
    numbers = np.frombuffer(r.sources.tables, kind, count, offset)
    return torch.from_numpy(numbers.astype(numbers.dtype.newbyteorder("<")))


def _rotary(column: int) -> Read:
    """Cosines (0) or sines (1)."""

    def read(r: Reading) -> Tensor:
        offset, count = r.words
        return _table(r, ">f4", offset, 2 * count).view(-1, 2)[:, column].contiguous()

    return read


def _dropout_key(r: Reading) -> Tensor:
    c = r.sources.context
    words = np.array(dropout_key(c.data_seed, c.seat), dtype="<u4")
    return torch.from_numpy(words.view("<i4"))


def _exponents(r: Reading) -> Tensor:
    first, count = r.words
    numbers = np.frombuffer(r.sources.exponents, ">i2", count, 2 * first)
    return torch.from_numpy(numbers.astype("<i4"))


READS: Final[dict[int, Read]] = {
    Op.STATE: _state,
    Op.TOKENS: _tokens,
    Op.IDS: _ids,
    Op.TARGETS: _targets,
    Op.RATE: _rate,
    Op.CORRECTIONS: _corrections,
    Op.COSINES: _rotary(0),
    Op.SINES: _rotary(1),
    Op.DROPOUT_KEY: _dropout_key,
    Op.GLOBAL_STEP: lambda r: torch.tensor([r.sources.context.global_step]),
    Op.BASE: lambda r: r.sources.base[_name(r.tail)].flatten(),
    Op.MODEL: lambda r: r.sources.model[_name(r.tail)].flatten(),
    Op.COUNT: lambda r: torch.tensor([r.sources.state.count + 1]),
    Op.EXPONENTS: _exponents,
}
"""By operation."""
