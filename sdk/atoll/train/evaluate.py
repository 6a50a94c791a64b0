"""How good a model is, on the manifest's evaluation set: the same windows for everyone."""

from __future__ import annotations

import math

import torch

from atoll.bits.batch import count_targets, gather_batch, inputs_of, shares_of, targets_of
from atoll.bits.errors import MalformedDataset
from atoll.bits.model import forward
from atoll.bits.ops import operations
from atoll.bits.state import Tensors
from atoll.content.local import LocalStore
from atoll.errors import ManifestError
from atoll.law.manifest import Manifest
from atoll.train.base import open_base
from atoll.train.course import open_held_out_tokens


def evaluate(params: Tensors, manifest: Manifest, store: LocalStore) -> float:
    """Mean loss in nats a target over `eval_batches` batches, evenly spaced over the held-out text.

    The batches' losses are added as a step adds its micro-batches' (SPEC-STEP.md, S3).

    Raises:
        ManifestError: the manifest names no evaluation set.
        NotFound, CorruptBlock, MalformedDataset: the set cannot be used.
    """
    data, spec = manifest.data, manifest.model
    if data.eval_batches == 0:
        raise ManifestError("the manifest evaluates on nothing", next_step="set data.eval_batches")
    tokens = open_held_out_tokens(manifest, store)
    last_start = len(tokens) - spec.seq - 1
    if last_start < 0:
        raise MalformedDataset(f"{len(tokens)} evaluation tokens are less than one sequence")
    ops, base = operations(manifest.numerics.mode), open_base(manifest, store)
    size = manifest.inner.batch
    starts = window_starts(last_start, data.eval_batches * size)
    losses, counts = [], []
    with torch.no_grad():
        for at in range(0, len(starts), size):
            batch_BT1 = gather_batch(tokens, starts[at : at + size], spec.seq, masked=data.masked)
            logits_BTV = forward(params, inputs_of(batch_BT1), spec, ops, base=base)
            losses.append(ops.cross_entropy(logits_BTV, targets_of(batch_BT1)).item())
            counts.append(count_targets(batch_BT1))
    if not sum(counts):
        raise MalformedDataset("no token of the evaluation's windows is a target")
    shares = shares_of(counts)
    return math.fsum(loss * share for loss, share in zip(losses, shares, strict=True))


def window_starts(last_start: int, count: int) -> list[int]:
    """`count` starts from 0 to `last_start`, evenly spaced, rounded down."""
    return [last_start * i // max(1, count - 1) for i in range(count)]
