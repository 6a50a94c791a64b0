"""What a job's model says, as it is in the store: its tokenizer, base and end tokens with it."""

from __future__ import annotations

from dataclasses import replace

from atoll.numerics.generate import Generator
from atoll.numerics.ops import operations
from atoll.numerics.shards import Held
from atoll.protocol.manifest import Manifest
from atoll.storage.local import LocalStore
from atoll.train.continue_text import Sampling, continue_text, ends_of
from atoll.train.open_base import open_base
from atoll.train.tokenizer import open_belongings, open_tokenizer


def continue_by_job(
    params: Held,
    manifest: Manifest,
    store: LocalStore,
    prompt: str,
    sampling: Sampling | None = None,
) -> str:
    """A prompt, continued by trained weights or adapters.

    Args:
        sampling: its end tokens are the job's own; None samples as `Sampling` does by itself.

    Raises:
        NotFound, CorruptBlock, TooLarge: what the model needs is not in the store as it should be.
        ConfigError, MalformedDataset: as `continue_text`.
    """
    belongings = open_belongings(store, manifest.data.tokenizer_cid)
    base = open_base(manifest, store)
    generator = Generator.of(params, manifest.model, operations(), base)
    how = replace(sampling or Sampling(), ends=ends_of(belongings))
    tokenizer = open_tokenizer(store, manifest.data.tokenizer_cid)
    return continue_text(generator, tokenizer, prompt, how)
