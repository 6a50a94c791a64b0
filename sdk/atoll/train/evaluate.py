"""How good a model is, on the manifest's evaluation set: the same windows for everyone."""

from __future__ import annotations

from atoll.bits.held_out import held_out_loss
from atoll.bits.state import Tensors
from atoll.content.local import LocalStore
from atoll.errors import ManifestError
from atoll.law.manifest import Manifest
from atoll.train.course import open_tokens


def evaluate(params: Tensors, manifest: Manifest, store: LocalStore) -> float:
    """The held-out loss, in nats a target, on the tokens that `data.eval_cid` names.

    Raises:
        ManifestError: the manifest names no evaluation set.
        NotFound, CorruptBlock, MalformedDataset: the set cannot be used.
    """
    data = manifest.data
    if data.eval_cid is None or data.eval_batches == 0:
        raise ManifestError("the manifest names no evaluation set", next_step="set data.eval_cid")
    return held_out_loss(params, manifest, open_tokens(data.eval_cid, manifest, store))
