"""A round's course and its tokens, opened from the store and checked against the manifest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from atoll.errors import ManifestError
from atoll.numerics.frozen_base import Base
from atoll.numerics.schedule import Recipe
from atoll.numerics.segment import Course
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Digest, SeatIndex
from atoll.storage.local import LocalStore
from atoll.train.data import TokenFile, form_of, read_nodes
from atoll.train.memory_room import plan_here
from atoll.train.open_base import open_base


def open_course(
    manifest: Manifest,
    *,
    store: LocalStore,
    data_seed: Digest,
    seat: SeatIndex,
    round: int,
    base_of: Callable[[Manifest, LocalStore], Base | None] = open_base,
) -> Course:
    """Opens the training tokens where they lie in the store.

    Args:
        base_of: opens what adapters are added to.

    Raises:
        NotFound, CorruptBlock: a block is missing or damaged.
        MalformedDataset: the data is not what the manifest says.
        MalformedState: what adapters are added to is not what the manifest says.
    """
    tokens = open_training_tokens(manifest, store)
    recipe = Recipe.of(manifest, base_of(manifest, store))
    return Course(
        manifest=manifest,
        recipe=replace(recipe, memory=plan_here(manifest)),
        tokens=tokens,
        data_seed=data_seed,
        seat=seat,
        round=round,
    )


def open_training_tokens(manifest: Manifest, store: LocalStore) -> TokenFile:
    """The tokens to train on, each MiB of which has to be the root's. Raises as above."""
    data = manifest.data
    nodes = read_nodes(data, store)
    return TokenFile(store, data.cid, data.train_tokens, form_of(manifest), nodes)


def open_held_out_tokens(manifest: Manifest, store: LocalStore) -> TokenFile:
    """The tokens to evaluate on.

    Raises:
        ManifestError: the manifest names none.
        NotFound, CorruptBlock, MalformedDataset: as above.
    """
    data = manifest.data
    if data.eval_cid is None:
        raise ManifestError("the manifest names no evaluation set", next_step="set data.eval_cid")
    return TokenFile(store, data.eval_cid, data.eval_tokens, form_of(manifest))
