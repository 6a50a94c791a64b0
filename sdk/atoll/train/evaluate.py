"""How good a model is, on the manifest's evaluation set: the same windows for everyone."""

from __future__ import annotations

from atoll.errors import ManifestError
from atoll.numerics.held_out_loss import held_out_loss
from atoll.numerics.shards import Held
from atoll.protocol.manifest import Manifest
from atoll.storage.local import LocalStore
from atoll.train.course import open_held_out_tokens
from atoll.train.data import TokenFile
from atoll.train.open_base import open_base


def evaluate(params: Held, manifest: Manifest, store: LocalStore) -> float:
    """The held-out loss, in nats a target, on the tokens that `data.eval_cid` names.

    Raises:
        ManifestError: the manifest names no evaluation set.
        NotFound, CorruptBlock, MalformedDataset: the set cannot be used.
    """
    tokens, base = open_held_out(manifest, store), open_base(manifest, store)
    return held_out_loss(params, manifest, tokens, base)


def open_held_out(manifest: Manifest, store: LocalStore) -> TokenFile:
    """The tokens to evaluate on. Raises as `evaluate`."""
    if manifest.data.eval_batches == 0:
        raise ManifestError("the manifest evaluates on nothing", next_step="set data.eval_batches")
    return open_held_out_tokens(manifest, store)
