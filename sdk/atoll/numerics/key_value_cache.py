"""Attention of some positions at a time over keys and values that are kept: generation's.

Rule of this file: a position's values are those of the whole sequence's forward pass, bit for bit
(`kernels.attention`). They can be, since grids follow from the context and not from what is there,
and since what is after a position adds integers 0 to its sums, as long as it is finite (SPEC.md,
24).

Shapes: B sequences, H query heads, K key heads, M query heads of a key head, G = B · K, T
positions, d head width, t queries, s keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.interface import TILE, Engine, attention_levels
from atoll.numerics.model import Heads, Weights, rotary_of
from atoll.protocol.model_spec import ModelSpec


class _Kept:
    """Rows on their grid: integers int16 [B, K, T, d], steps [B, K, T, 1]."""

    def __init__(self, shape: tuple[int, int, int, int], device: torch.device) -> None:
        self.integers = torch.zeros(shape, dtype=torch.int16, device=device)
        self.steps = torch.zeros((*shape[:3], 1), device=device)

    def put(self, start: int, levels: tuple[Tensor, Tensor]) -> None:
        integers, steps = levels
        span = slice(start, start + integers.shape[2])
        self.integers[:, :, span], self.steps[:, :, span] = integers.to(torch.int16), steps

    def until(self, stop: int) -> tuple[Tensor, Tensor]:
        """[G, stop, d] in fp32, and [G, stop, 1]."""
        return (
            self.integers[:, :, :stop].float().flatten(0, 1),
            self.steps[:, :, :stop].contiguous().flatten(0, 1),
        )

    def keep(self, rows: Tensor) -> None:
        self.integers, self.steps = self.integers[rows], self.steps[rows]


class KeyValueCache:
    """Keys and values of the positions that were read, and `Attend` of the next ones."""

    def __init__(self, spec: ModelSpec, *, sequences: int, length: int, ops: ExactOps) -> None:
        self._spec, self._engine = spec, ops.engine
        self._levels = attention_levels(spec.seq, spec.head_dim)
        shape = sequences, spec.kv_heads, length, spec.head_dim
        names = [f"model.layers.{layer}." for layer in range(spec.layers)]
        self._kept = {at: (_Kept(shape, ops.device), _Kept(shape, ops.device)) for at in names}
        self.read = 0

    def keep(self, rows: Tensor) -> None:
        """Lets go all sequences but these."""
        for kept in self._kept.values():
            for each in kept:
                each.keep(rows)

    def attend(self, weights: Weights, at: str, heads: Heads) -> Tensor:
        """`Attend` of the positions from `read`, which lie in one tile of queries."""
        count, kernels = heads.q.shape[2], self._engine.kernels
        start, stop = self.read, self.read + count
        cos_td, sin_td = (table[start:stop] for table in rotary_of(self._spec, heads.q.device))
        q_BHtd, k_BKtd = (weights.ops.rotary(x, cos_td, sin_td) for x in (heads.q, heads.k))
        keys, values = self._kept[at]
        keys.put(start, kernels.quantise_levels(k_BKtd, self._levels))
        values.put(start, kernels.quantise_levels(heads.v, self._levels))
        q, q_step = kernels.quantise_levels(q_BHtd, self._levels)
        q_step = q_step * (1.0 / math.sqrt(self._spec.head_dim))
        queries = _by_key_head(q, self._spec.kv_heads), _by_key_head(q_step, self._spec.kv_heads)
        kept = _Seen(*keys.until(stop), *values.until(stop), start, self._levels)
        mixed_GMtd = _mixed(self._engine, queries, kept)
        return mixed_GMtd.view(heads.q.shape)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Keys and values [G, s, d] that a tile's queries see, of which the first is at `start`."""

    k: Tensor
    k_step: Tensor
    v: Tensor
    v_step: Tensor
    start: int
    levels: int

    def of(self, part: slice) -> _Seen:
        """Of some slices."""
        k, k_step, v, v_step = (x[part] for x in (self.k, self.k_step, self.v, self.v_step))
        return _Seen(k, k_step, v, v_step, self.start, self.levels)


def _by_key_head(x_BHtn: Tensor, key_heads: int) -> Tensor:
    """[G, M, t, n]"""
    batch, heads, *rest = x_BHtn.shape
    return x_BHtn.reshape(batch * key_heads, heads // key_heads, *rest)


def _mixed(engine: Engine, queries: tuple[Tensor, Tensor], seen: _Seen) -> Tensor:
    q_GMtd, q_step_GMt1 = queries
    if q_GMtd.shape[2] == 1:  # one position sees all keys, so a key head's queries are one matrix
        return _attend(engine, (q_GMtd.squeeze(2), q_step_GMt1.squeeze(2)), seen).unsqueeze(2)
    out_GMtd = torch.empty_like(q_GMtd)
    for start in range(0, len(out_GMtd), engine.slices):
        part = slice(start, start + engine.slices)
        for member in range(q_GMtd.shape[1]):
            queries = q_GMtd[part, member], q_step_GMt1[part, member]
            out_GMtd[part, member] = _attend(engine, queries, seen.of(part))
    return out_GMtd


def _attend(engine: Engine, queries: tuple[Tensor, Tensor], seen: _Seen) -> Tensor:
    """`kernels.attention`'s tile of queries: [G, t, d]."""
    q, q_step = queries
    kernels = engine.kernels
    weights, _, inverse = kernels.attention_weights(
        engine.batched(q, seen.k.mT), q_step.contiguous(), seen.k_step, seen.start
    )
    total = torch.zeros_like(q)
    for start in range(0, seen.k.shape[1], TILE):
        keys = slice(start, start + TILE)
        mixed, step = kernels.quantise_mixture(weights, seen.v_step[:, keys], start, seen.levels)
        total += engine.batched(mixed, seen.v[:, keys]) * step
    total *= inverse
    return total
