"""Nodes of families 3 and 4: see `elements`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from tests.judge.elements import (
    Draw,
    Node,
    Rng,
    integers32,
    integers64,
    reals,
    size,
    wide_reals,
    word,
    word32,
    word64,
)
from torch import Tensor

from atoll.numerics.trace import elementwise
from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.rows import Each, Place

VARIANTS: Final = 4
"""Smaller nodes of operations whose words decide what they do, so that all cases are drawn."""


def _rows(rng: Rng, count: int) -> tuple[int, int]:
    columns = size(rng, 1, 24)
    return max(1, count // columns), columns


def _one(rng: Rng) -> int:
    """The bits of a binary32 constant."""
    return word(reals(rng, 1))


def _square(rng: Rng, count: int) -> tuple[int, int]:
    side = size(rng, 1, max(1, int(count**0.5)))
    return side, side


def _diagonal(rng: Rng, count: int) -> tuple[int, int]:
    return 1, _square(rng, count)[1]


KINDS: Final = {"f32": reals, "f64": wide_reals, "i64": integers64}


def of_row(op: Op, shape: Callable[[Rng, int], tuple[int, int]] = _rows) -> Draw:
    """Numbers of every size in all that the operation's row says that it reads.

    Args:
        shape: rows and columns of the result, where it has columns.
    """
    row = op.row
    assert isinstance(row, Each)

    def draw(rng: Rng, count: int) -> Node:
        rows, columns = shape(rng, count) if "C" in row.names else (count, 1)
        sizes = {Place.SAME: rows * columns, Place.ROW: rows, Place.COLUMN: columns}
        sizes |= {Place.FIRST: 1, Place.PAIR: 2, Place.DIAGONAL: columns * columns}
        kinds = {place: kind for place, _, kind in row.constants}
        words = [
            word(KINDS[kinds[place]](rng, 1)) if place in kinds else columns
            for place in range(len(row.names))
        ]
        inputs = {o.name: (o.kind, sizes[o.place]) for o in row.operands}
        return Node(op, tuple(words), tuple(KINDS[k](rng, n) for k, n in inputs.values()))

    return draw


def rstd(rng: Rng, count: int) -> Node:
    words = word64(1.0 / size(rng, 1, 1 << 17)), word32(rng.choice([1e-5, 1e-6, 1e-12]))
    return Node(Op.RSTD, words, (integers64(rng, count), reals(rng, count)))


def exact_sum(rng: Rng, count: int) -> Node:
    words = (word64(rng.choice([1.0, 1.0 / size(rng, 1, 1 << 17)])),)
    return Node(Op.EXACT_SUM, words, (integers64(rng, count), reals(rng, count)))


def rotate(rng: Rng, count: int) -> Node:
    length, half = size(rng, 1, 4), size(rng, 1, 8)
    x = reals(rng, max(1, count // VARIANTS // (length * 2 * half)) * length * 2 * half)
    tables = reals(rng, length * half), reals(rng, length * half)
    return Node(Op.ROTATE, (length, 2 * half, word32(rng.choice([1.0, -1.0]))), (x, *tables))


def dropout(rng: Rng, count: int) -> Node:
    threshold = int(rng.choice([0, 1 << 31, 1 << 32, *rng.integers(0, 1 << 32, 5)]))
    first = size(rng, 0, 1 << size(rng, 0, 48))
    words = threshold, _one(rng), size(rng, 0, 999), first, size(rng, 0, 1 << size(rng, 0, 40))
    key = torch.from_numpy(rng.integers(0, 1 << 64, 1, dtype=np.uint64).view(np.int32).copy())
    step = torch.tensor([size(rng, 0, (1 << 63) - 2)])
    x = reals(rng, count // VARIANTS)
    return Node(Op.DROPOUT, words, (x, key, step), iteration=size(rng, 0, 7))


def total(rng: Rng, count: int) -> Node:
    return Node(Op.TOTAL, (word64(2.0**-30),), (integers64(rng, count),))


def targets(rng: Rng, tokens: int, vocabulary: int) -> Tensor:
    """Ids, a quarter of them as complements: no targets."""
    ids = rng.integers(0, vocabulary, tokens).astype(np.int32)
    return torch.from_numpy(np.where(rng.random(tokens) < 0.25, ~ids, ids))


def token_loss(rng: Rng, count: int) -> Node:
    tokens, vocabulary = count, size(rng, 1, 5)
    logits, peaks = reals(rng, tokens * vocabulary), reals(rng, tokens)
    totals = (integers64(rng, tokens).abs() >> 20).double() * 2.0**-30
    totals = torch.where(
        torch.from_numpy(rng.random(tokens) < 0.5), totals, wide_reals(rng, tokens)
    )
    return Node(
        Op.TOKEN_LOSS, (vocabulary,), (logits, peaks, totals, targets(rng, tokens, vocabulary))
    )


def counts(rng: Rng, count: int) -> Tensor:
    """How many targets: 0 and lengths up to 2³⁰."""
    return torch.from_numpy(rng.integers(0, 1 << rng.integers(0, 31, count)))


def loss(rng: Rng, count: int) -> Node:
    return Node(Op.LOSS, (), (integers64(rng, count), reals(rng, count), counts(rng, count)))


def loss_scale(rng: Rng, count: int) -> Node:
    own, others = counts(rng, count), counts(rng, count)
    return Node(Op.LOSS_SCALE, (), (own, torch.where(others % 3 == 0, own, own + others)))


def dlogits(rng: Rng, count: int) -> Node:
    tokens, vocabulary = _rows(rng, count)
    inputs = reals(rng, tokens * vocabulary), wide_reals(rng, tokens)
    labels = targets(rng, tokens, vocabulary)
    return Node(Op.DLOGITS, (vocabulary,), (*inputs, labels, reals(rng, 1)))


def policy_dlogits(rng: Rng, count: int) -> Node:
    plain = dlogits(rng, count)
    a = reals(rng, plain.inputs[1].numel())
    return Node(Op.POLICY_DLOGITS, plain.words, (*plain.inputs[:3], a))


def norm_term(rng: Rng, count: int) -> Node:
    chained, count = size(rng, 0, 1), count // VARIANTS
    before = (wide_reals(rng, count),) if chained else ()
    return Node(Op.NORM_TERM, (chained,), (*before, integers64(rng, count), reals(rng, count)))


def moments(op: Op) -> Draw:
    """A moment and a gradient, half of it 0: with the factor 1, a moment stays on a border."""

    def draw(rng: Rng, count: int) -> Node:
        count //= VARIANTS
        keep = float(rng.choice([1.0, 1.0, 0.9, 0.95]))
        words = word32(keep), int(rng.choice([word32(1.0 - keep), _one(rng)]))
        some = torch.from_numpy(rng.random(count) < 0.5)
        return Node(op, words, (reals(rng, count), torch.where(some, reals(rng, count), 0.0)))

    return draw


def adamw_p(rng: Rng, count: int) -> Node:
    tensors = tuple(reals(rng, count) for _ in range(3))
    words = word32(rng.choice([1e-8, 1e-6])), word32(rng.choice([0.0, 0.1]))
    return Node(Op.ADAMW_P, words, (*tensors, wide_reals(rng, 2), wide_reals(rng, 1)))


def descend(rng: Rng, count: int) -> Node:
    inputs = reals(rng, count), reals(rng, count), wide_reals(rng, 1)
    return Node(Op.DESCEND, (word32(rng.choice([0.0, 0.1])),), inputs)


def advance(rng: Rng, count: int) -> Node:
    rows, columns = _rows(rng, count // VARIANTS)
    wide = int(rng.choice([4, 8]))
    sums = (integers32 if wide == 4 else integers64)(rng, rows * columns)
    tensors = reals(rng, rows * columns), reals(rng, rows), sums, reals(rng, rows)
    return Node(Op.ADVANCE, (columns, wide), tensors)


NODES: Final[dict[int, Draw]] = {
    **{op: of_row(op) for op in elementwise.OPERATIONS if op.family in (3, 4)},
    Op.RSTD: rstd,
    Op.EXACT_SUM: exact_sum,
    Op.ROTATE: rotate,
    Op.DROPOUT: dropout,
    Op.TOTAL: total,
    Op.TOKEN_LOSS: token_loss,
    Op.LOSS: loss,
    Op.LOSS_SCALE: loss_scale,
    Op.DLOGITS: dlogits,
    Op.POLICY_DLOGITS: policy_dlogits,
    Op.NORM_TERM: norm_term,
    Op.ADAMW_M: moments(Op.ADAMW_M),
    Op.ADAMW_V: moments(Op.ADAMW_V),
    Op.ADAMW_P: adamw_p,
    Op.MOMENTUM: moments(Op.MOMENTUM),
    Op.DESCEND: descend,
    Op.ZERO_DIAGONAL: of_row(Op.ZERO_DIAGONAL, _square),
    Op.MUON_ALONG: of_row(Op.MUON_ALONG, _diagonal),
    Op.MUON_ACROSS: of_row(Op.MUON_ACROSS, _square),
    Op.ADVANCE: advance,
}
