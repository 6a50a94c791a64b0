"""Attention of the trace, composed of its operations tile by tile: the kernels' bits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from tests.unit.numerics.trace.operations import data, grid, largest, op, reference, same, total
from torch import Tensor

from atoll.numerics.kernels.acceptance import KINDS
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.grid import operand_levels
from atoll.numerics.kernels.interface import TILE
from atoll.numerics.trace.opcodes import Op

FACTOR = 0x3E80000000000000
"""2⁻²³ as binary64."""
SCALE = 0x4B000000
"""2²³ as binary32."""


@dataclass
class Trace:
    """Attention of q [B, H, T, d] and k, v [B, K, T, d], made of operations."""

    q: Tensor
    k: Tensor
    v: Tensor

    def __post_init__(self) -> None:
        batch, heads, self.length, self.width = self.q.shape
        self.group = heads // self.k.shape[1]
        self.slices = batch * heads
        self.levels = operand_levels(max(self.width, min(TILE, self.length)))
        self.scale = 1.0 / math.sqrt(self.width)
        (self.Q, self.sq), (self.Y, self.sk), (self.U, self.sv) = (
            self.rows(x, self.width) for x in (self.q, self.k, self.v)
        )
        self.sq = self.sq * self.scale
        self.weights: dict[int, Tensor] = {}
        self.inverse: dict[int, Tensor] = {}

    def rows(self, x: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        up, step = grid(x, columns, self.levels)
        return op(Op.QUANTISE_F32, [columns], x, up), step

    def tiles(self) -> list[tuple[int, int]]:
        return [(at, min(TILE, self.length - at)) for at in range(0, self.length, TILE)]

    def transposed(self, x: Tensor) -> Tensor:
        """[slices, T, d] as [slices, d, T]."""
        T, d = self.length, self.width
        return op(Op.VIEW, [4, x.numel() // (T * d), d, T, 1, 0, T * d, 1, d, 0], x)

    def forward(self) -> Tensor:
        T, d, group = self.length, self.width, self.group
        parts = []
        for q0, t in self.tiles():
            seen = q0 + t
            words = [t, seen, d, group, q0 * d, T * d, d, 0, T * d, d]
            ints = op(Op.DOT_F32, words, self.Q, self.Y)
            z = op(Op.SCORE, [t, seen, T, group, q0, 0], ints, self.sq, self.sk)
            peak = largest(Op.MAX, z, seen, 64)
            w = op(Op.ATTENTION_WEIGHT, [t, seen, q0, 0], z, peak)
            sums = total(op(Op.SUM_ROUND, [seen, 64, SCALE], w), -(-seen // 64))
            self.weights[q0], self.inverse[q0] = w, op(Op.INVERSE_TOTAL, [FACTOR], sums)
            parts.append(self.mixed(q0, t) * self.inverse[q0].view(-1, t, 1))
        return torch.cat(parts, dim=1)

    def mixed(self, q0: int, t: int) -> Tensor:
        T, d, group, seen = self.length, self.width, self.group, q0 + t
        across, out = self.transposed(self.U), []
        for k0, s in self.tiles():
            if k0 > q0:
                break
            words = [t, s, group, k0, t * seen, seen, 1, k0, T, 0, 1]
            n, step = self.rows(op(Op.WEIGHTED, words, self.weights[q0], self.sv), s)
            ints = op(Op.DOT_F32, [t, d, s, group, 0, t * s, s, k0, T * d, T], n, across)
            out = [op(Op.ADD_SCALED, [d, 0 if out else 1], *out, ints, step)]
        return out[0].view(-1, t, d)

    def backward(self, g: Tensor, o: Tensor) -> list[Tensor]:
        shape = self.slices, self.length, self.width
        e = reference().kernels.row_dot(g.view(shape), o.view(shape)).flatten()
        sums: dict[tuple[str, int], list[Tensor]] = {}
        for q0, t in self.tiles():
            for k0, s in self.tiles():
                if k0 <= q0:
                    for name, at, ints, step in self.tile(g, e, (q0, t), (k0, s)):
                        prev = sums.get((name, at), [])
                        words = [self.width, 0 if prev else 1]
                        sums[name, at] = [op(Op.ADD_SCALED, words, *prev, ints, step)]
        return [
            torch.cat([sums[name, at][0].view(self.slices, s, -1) for at, s in self.tiles()], 1)
            for name in ("q", "k", "v")
        ]

    def tile(
        self, g: Tensor, e: Tensor, queries: tuple[int, int], keys: tuple[int, int]
    ) -> list[tuple[str, int, Tensor, Tensor]]:
        """What a tile adds to dq, dk and dv: name, first row, integers, steps."""
        T, d, group, (q0, t), (k0, s) = self.length, self.width, self.group, queries, keys
        G, sg = self.rows(g, d)
        words = [t, s, q0 + t, q0, k0]
        P = op(Op.SHARE, words, self.weights[q0], self.inverse[q0])
        ints = op(Op.DOT_F32, [t, s, d, group, q0 * d, T * d, d, k0 * d, T * d, d], G, self.U)
        gradient = op(Op.SHARE_GRADIENT, [t, s, T, group, q0, k0], ints, sg, self.sv)
        Z = op(Op.SLOPE, [t, s, T, q0, k0], P, gradient, e)
        columns = [s, t, 1, 0, t * s, 1, s, q0, T, 0, 1]
        along = [t, s, group, 0, t * s, s, 1, k0, T, 0, 1]
        added = []
        for name, line, cut, step, other in (
            ("v", P, columns, sg, G), ("q", Z, along, self.sk, self.Y),
            ("k", Z, columns, self.sq, self.Q),
        ):  # fmt: skip
            m, inner, start = (t, s, k0) if name == "q" else (s, t, q0)
            n, line_step = self.rows(op(Op.WEIGHTED, cut, line, step), inner)
            shared = group if name == "q" else 1
            words = [m, d, inner, shared, 0, m * inner, inner, start, T * d, T]
            ints = op(Op.DOT_F32, words, n, self.transposed(other))
            added.append((name, q0 if name == "q" else k0, ints, line_step))
        return added

    def summed(self, x: Tensor) -> Tensor:
        """A12's sums over the query heads of a key head."""
        parts = x.view(-1, self.group, self.length, self.width).unbind(1)
        result = parts[0]
        for part in parts[1:]:
            result = result + part
        return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("length", "heads", "key_heads"), [(200, 2, 2), (130, 4, 2), (7, 3, 1)])
def test_attention_is_the_kernels(kind: str, length: int, heads: int, key_heads: int) -> None:
    shapes = (2, heads, length, 16), (2, key_heads, length, 16), (2, key_heads, length, 16)
    q, k, v = (data(kind, shape, i) for i, shape in enumerate(shapes))
    if kind in ("infinite", "not a number"):  # what later lines make of them must be seen, too
        q[1], k[1], v[1] = (data("normal", x[1].shape, 7) for x in (q, k, v))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    expected = ExactOps(reference()).attention(*leaves, context=length)
    g = data(kind, shapes[0], 3)
    expected.backward(g)
    trace = Trace(q, k, v)
    o = trace.forward()
    assert same(o, expected.detach())
    dq, dk, dv = trace.backward(g, o)
    results = dq * trace.scale, trace.summed(dk), trace.summed(dv)
    for leaf, result in zip(leaves, results, strict=True):
        assert leaf.grad is not None and same(result, leaf.grad)
