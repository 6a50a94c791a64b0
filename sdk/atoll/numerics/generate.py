"""Text by the law: each token from the logits that training's forward pass has (SPEC.md, 24).

Rule of this file: what a sequence becomes depends on the weights, its prompt and its place, and on
nothing else: not on how many are generated at a time, nor on whether a cache is used. A cache is
used where no forward value can leave fp32; elsewhere a token that overflows would reach the tokens
before it in a whole forward pass, and whoever kept a cache would have other bits than the law.

Shapes: N sequences, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from atoll.numerics.frozen_base import Base, freeze_all
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.interface import TILE
from atoll.numerics.key_value_cache import KeyValueCache
from atoll.numerics.magnitudes import is_cache_safe
from atoll.numerics.model import Adapted, Attend, attend_whole, head_inputs
from atoll.numerics.sampling import Draw, Row, Sampled, likeliest, sample
from atoll.protocol.model_spec import ModelSpec

NOT_FINITE: Final = -1
"""In the place of a weight below."""
MEMORY_BYTES: Final = 1 << 31
"""What caches and logits of the sequences at a time may take."""
_WHOLE_TOKENS: Final = 1 << 13
"""Tokens of a whole forward pass at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to generate.

    Attributes:
        prompts: ids, at least one each; none has more than the model has positions.
        new_tokens: at most so many are added to each.
        ends: tokens after which a sequence ends.
        draw: None takes the likeliest token each time.
        first_place: of the first prompt in the batch.
    """

    prompts: Sequence[Sequence[int]]
    new_tokens: int
    ends: frozenset[int] = frozenset()
    draw: Draw | None = None
    first_place: int = 0


@dataclass(frozen=True, slots=True)
class Generated:
    """What became of the prompts.

    Attributes:
        ids: int64 [N, seq + 1] on the CPU: the prompt, what follows it, and 0 behind.
        lengths: of prompt and answer together.
        below: int64 [N, seq + 1] on the CPU: the weight below each generated token
            (`Sampled.below`), `NOT_FINITE` where its row has no number for its maximum, and 0 of
            the others.
    """

    ids: Tensor
    lengths: tuple[int, ...]
    below: Tensor

    @property
    def is_finite(self) -> bool:
        """Whether every row that a token was taken from has a number for its maximum."""
        return not bool((self.below == NOT_FINITE).any())

    @property
    def drawn(self) -> tuple[int, ...]:
        """Of each sequence, the sum of the weights below its tokens."""
        return tuple(sum(row) for row in self.below.clamp(min=0).tolist())


@dataclass(frozen=True, slots=True)
class Generator:
    """A model that generates; its weights are rounded once.

    Attributes:
        is_cached: whether a cache gives the law's bits.
        memory: bytes that the sequences at a time may take.
    """

    base: Base
    adapters: Mapping[str, Tensor]
    spec: ModelSpec
    ops: ExactOps
    is_cached: bool
    memory: int = MEMORY_BYTES

    @classmethod
    def of(
        cls, params: Mapping[str, Tensor], spec: ModelSpec, ops: ExactOps, base: Base | None = None
    ) -> Generator:
        """Of trained weights, or of adapters on a base."""
        placed = {name: p.to(ops.device) for name, p in params.items()}
        if base is None:
            whole_base, adapters = freeze_all(placed.items(), spec, ops), {}
        else:
            whole_base, adapters = base, placed
        return cls(whole_base, adapters, spec, ops, is_cache_safe(placed, spec, base))

    def weights(self, attend: Attend = attend_whole) -> Adapted:
        return Adapted(self.base, self.adapters, self.spec, self.ops, attend)

    @property
    def at_a_time(self) -> int:
        """How many sequences are generated together."""
        spec = self.spec
        kept = spec.layers * spec.kv_heads * spec.seq * (spec.head_dim * 2 + 4) * 2
        read = spec.kv_heads * spec.seq * (spec.head_dim * 4 + 4) * 2  # one layer's, in fp32
        scores = spec.heads * spec.seq * 8
        return max(1, self.memory // (kept + read + scores + spec.vocab * 40))


def generate(generator: Generator, request: Request) -> Generated:
    """Continues every prompt. Raises ValueError on an empty prompt or one that is too long."""
    seq = generator.spec.seq
    if any(not 0 < len(prompt) <= seq for prompt in request.prompts):
        raise ValueError(f"a prompt has no tokens, or more than {seq}")
    count = len(request.prompts)
    ids_NT = torch.zeros(count, seq + 1, dtype=torch.int64)
    below_NT, lengths = torch.zeros_like(ids_NT), [0] * count
    # Those of one length are read at once.
    order = sorted(range(count), key=lambda i: len(request.prompts[i]))
    for start in range(0, count, generator.at_a_time):
        some = order[start : start + generator.at_a_time]
        batch = _Batch(generator, request, some)
        with torch.no_grad():
            (_cached if generator.is_cached else _uncached)(batch)
        ids_NT[some], below_NT[some] = batch.ids.cpu(), batch.below.cpu()
        for i, length in zip(some, batch.lengths.tolist(), strict=True):
            lengths[i] = length
    return Generated(ids_NT, tuple(lengths), below_NT)


def marked(sampled: Sampled) -> Tensor:
    """The weights below, `NOT_FINITE` of rows that are not finite."""
    return sampled.below.masked_fill(~sampled.is_finite, NOT_FINITE)


class _Batch:
    """Sequences that are generated together, as far as they are.

    Attributes:
        rows: those that go on, by their index.
        position: that the next logits are of.
    """

    def __init__(self, generator: Generator, request: Request, some: Sequence[int]) -> None:
        device, seq = generator.ops.device, generator.spec.seq
        prompts = [request.prompts[i] for i in some]
        self.generator, self.request = generator, request
        self.ids = torch.zeros(len(some), seq + 1, dtype=torch.int64, device=device)
        for row, prompt in enumerate(prompts):
            self.ids[row, : len(prompt)] = torch.tensor(prompt, device=device)
        self.places = torch.tensor(some, device=device) + request.first_place
        self.lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        self.limits = (self.lengths + request.new_tokens).clamp(max=seq + 1)
        self.ends = torch.tensor(sorted(request.ends), dtype=torch.int64, device=device)
        self.rows = (self.lengths < self.limits).nonzero().squeeze(1)
        self.position = int(self.lengths[self.rows].min()) - 1 if len(self.rows) else seq
        self.below = torch.zeros_like(self.ids)

    def take(self, logits_nV: Tensor) -> None:
        """The next token of every sequence that goes on, from the logits at `position`."""
        rows, position = self.rows, self.position
        sampled = self._sampled(logits_nV, Row.across(position, self.places[rows]))
        is_new = self.lengths[rows] == position + 1  # elsewhere the prompt has the next token
        fresh = rows[is_new]
        self.ids[fresh, position + 1] = sampled.ids[is_new]
        self.below[fresh, position + 1] = marked(sampled)[is_new]
        self.lengths[fresh] += 1
        is_over = is_new & torch.isin(sampled.ids, self.ends)
        is_over |= self.lengths[rows] >= self.limits[rows]
        self.rows = rows[~is_over]
        self.position += 1

    def _sampled(self, logits_nV: Tensor, row: Row) -> Sampled:
        draw = self.request.draw
        if draw is None:
            return likeliest(logits_nV)
        return sample(logits_nV, row, draw, self.generator.ops.engine.kernels)


def _cached(batch: _Batch) -> None:
    """Reads each token once, up to the longest sequence."""
    generator, spec = batch.generator, batch.generator.spec
    in_cache = batch.rows
    if not len(in_cache):
        return
    length = min(int(batch.limits.max()), spec.seq)
    cache = KeyValueCache(spec, sequences=len(in_cache), length=length, ops=generator.ops)
    weights, read_until = generator.weights(cache.attend), batch.position + 1
    while len(batch.rows):
        # Sequences that ended are let go by halves: each time all others are copied.
        if 2 * len(batch.rows) <= len(in_cache):
            cache.keep(torch.isin(in_cache, batch.rows).nonzero().squeeze(1))
            in_cache = batch.rows
        while cache.read < read_until:
            stop = min(read_until, (cache.read // TILE + 1) * TILE)
            values = head_inputs(weights, batch.ids[in_cache, cache.read : stop])
            cache.read = stop
        going = torch.isin(in_cache, batch.rows)
        batch.take(weights.head(values[going, -1:])[:, 0])
        read_until = batch.position + 1


def _uncached(batch: _Batch) -> None:
    """The law as it is written: a whole forward pass for every token."""
    weights, seq = batch.generator.weights(), batch.generator.spec.seq
    count = max(1, _WHOLE_TOKENS // seq)
    while len(batch.rows):
        known = torch.arange(seq, device=batch.ids.device) <= batch.position
        parts = [
            weights.head(
                head_inputs(weights, batch.ids[some, :seq] * known)[:, batch.position].unsqueeze(1)
            )
            for some in torch.split(batch.rows, count)
        ]
        batch.take(torch.cat(parts)[:, 0])
