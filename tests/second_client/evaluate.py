"""The held-out loss of a model: SPEC.md, section 20."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
from tests.second_client.arithmetic import quiet
from tests.second_client.documents import Manifest
from tests.second_client.kernels import Ids
from tests.second_client.model import Params, Tables, loss_of
from tests.second_client.provide import Job, batch_of, scaled_model


@quiet
def held_out_loss(params: Params, manifest: Manifest, tables: Tables, tokens: Ids) -> bytes:
    """The number's 8 bytes; `params` have their base's. Raises ValueError where there is none."""
    size = manifest["inner"]["micro_batch"]
    windows = windows_of(manifest, len(tokens))
    job, losses, counts = Job(manifest, tokens, tables, {}), [], []
    for at in range(0, len(windows), size):
        ids = batch_of(job, windows[at : at + size])
        losses.append(float(loss_of(params, ids, scaled_model(manifest), tables)))
        counts.append(int((ids[:, 1:] >= 0).sum()))
    return mean(losses, counts)


def mean(losses: list[float], counts: list[int]) -> bytes:
    """The mean over all targets, rounded once."""
    if not sum(counts) or not np.isfinite(losses).all():
        return struct.pack(">d", math.nan)
    total = sum(Fraction(loss) * count for loss, count in zip(losses, counts, strict=True))
    return struct.pack(">d", float(total / sum(counts)))


def windows_of(manifest: Manifest, tokens: int) -> list[int]:
    """Where the windows of so many held-out tokens start."""
    length, count = manifest["model"]["seq"], manifest["data"]["eval_batches"]
    last, times = tokens - length - 1, length if manifest["data"]["aligned"] else 1
    count *= manifest["inner"]["batch"]
    if last < 0 or count == 0:
        raise ValueError("there is no held-out loss")
    return [times * (last // times * i // max(1, count - 1)) for i in range(count)]
