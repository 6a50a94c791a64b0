"""The held-out loss of a model: one number, the same bits for whoever computes it (SPEC.md, 20).

Rule of this file: the losses are those of the operations, and what joins them (`law.held_out`) is
exact, so that neither order nor library can matter.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from atoll.numerics.batch import Windows
from atoll.numerics.errors import MalformedDataset
from atoll.numerics.frozen_base import Base
from atoll.numerics.model import forward
from atoll.numerics.ops import Ops, operations
from atoll.numerics.tokens import TokenSource
from atoll.protocol.losses import join
from atoll.protocol.manifest import Manifest


def held_out_loss(
    params: Mapping[str, Tensor], manifest: Manifest, tokens: TokenSource, base: Base | None = None
) -> float:
    """Mean loss in nats a target over `eval_batches` batches of windows of the held-out tokens.

    Args:
        base: the frozen model under the parameters, where these are adapters.

    Raises:
        MalformedDataset: the tokens are fewer than one sequence and its target.
    """
    batches = range(manifest.data.eval_batches)
    placed = _placed(params, operations())
    return join([batch_losses(placed, manifest, tokens, batch, base) for batch in batches])


def batch_losses(
    params: Mapping[str, Tensor],
    manifest: Manifest,
    tokens: TokenSource,
    batch: int,
    base: Base | None = None,
) -> tuple[list[float], list[int]]:
    """The losses of a batch's micro-batches, and how many targets each has. Raises as above."""
    spec, inner = manifest.model, manifest.inner
    last_start = len(tokens) - spec.seq - 1
    if last_start < 0:
        raise MalformedDataset(f"{len(tokens)} evaluation tokens are less than one sequence")
    ops, size = operations(), inner.micro_batch
    count, stride = manifest.data.eval_batches * inner.batch, manifest.data.stride(spec.seq)
    placed = _placed(params, ops)
    windows = Windows(tokens, spec.seq, manifest.data.mask_bit)
    losses, counts = [], []
    with torch.no_grad():
        for at in range(batch * inner.batch, (batch + 1) * inner.batch, size):
            # Of these alone: a manifest may have 2**25 windows, and each batch asks for its own.
            some = window_starts(last_start, count, range(at, at + size), stride)
            read = windows.at(some)
            m = read.to(ops.device)
            logits_bTV = forward(placed, m.ids, spec, ops, base=base)
            losses.append(ops.cross_entropy(logits_bTV, m.targets, m.weights).item())
            counts.append(read.count)
    return losses, counts


def _placed(params: Mapping[str, Tensor], ops: Ops) -> Mapping[str, Tensor]:
    return {name: p.to(ops.device) for name, p in params.items()}


def window_starts(
    last_start: int, count: int, some: range | None = None, stride: int = 1
) -> list[int]:
    """Of `count` starts from 0 to `last_start`, evenly spaced, rounded down, some or all.

    Each is a multiple of `stride`.
    """
    windows = range(count) if some is None else some
    return [stride * (last_start // stride * i // max(1, count - 1)) for i in windows]
