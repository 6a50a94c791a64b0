"""How good a model is, on the manifest's evaluation set: the same windows for everyone."""

from __future__ import annotations

import math

import torch

from atoll.bits.batch import gather_batch
from atoll.bits.errors import MalformedDataset
from atoll.bits.model import forward
from atoll.bits.ops import operations
from atoll.bits.state import Tensors
from atoll.content.local import LocalStore
from atoll.errors import ManifestError
from atoll.law.manifest import Manifest
from atoll.train.base import open_base
from atoll.train.course import open_tokens


def evaluate(params: Tensors, manifest: Manifest, store: LocalStore) -> float:
    """Mean loss in nats a token over `eval_batches` batches, evenly spaced over the held-out text.

    Raises:
        ManifestError: the manifest names no evaluation set.
        NotFound, CorruptBlock, MalformedDataset: the set cannot be used.
    """
    data, spec = manifest.data, manifest.model
    if data.eval_cid is None or data.eval_batches == 0:
        raise ManifestError("the manifest names no evaluation set", next_step="set data.eval_cid")
    tokens = open_tokens(data.eval_cid, manifest, store)
    last_start = len(tokens) - spec.seq - 1
    if last_start < 0:
        raise MalformedDataset(f"{len(tokens)} evaluation tokens are less than one sequence")
    ops, base = operations(manifest.numerics.mode), open_base(manifest, store)
    starts = window_starts(last_start, data.eval_batches * manifest.inner.batch)
    losses = []
    with torch.no_grad():
        for at in range(0, len(starts), manifest.inner.batch):
            batch_BT1 = gather_batch(tokens, starts[at : at + manifest.inner.batch], spec.seq)
            logits_BTV = forward(params, batch_BT1[:, :-1], spec, ops, base=base)
            losses.append(ops.cross_entropy(logits_BTV, batch_BT1[:, 1:]).item())
    return math.fsum(losses) / len(losses)


def window_starts(last_start: int, count: int) -> list[int]:
    """`count` starts from 0 to `last_start`, evenly spaced, rounded down."""
    return [last_start * i // max(1, count - 1) for i in range(count)]
