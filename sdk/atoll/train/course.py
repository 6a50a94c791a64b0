"""A round's course and its tokens, opened from the store and checked against the manifest."""

from __future__ import annotations

from atoll.bits.errors import MalformedDataset
from atoll.bits.schedule import Recipe
from atoll.bits.segment import Course
from atoll.bits.state import GlobalState
from atoll.bits.tokens import Tokens
from atoll.content.local import LocalStore
from atoll.law.manifest import Manifest
from atoll.law.words import Digest, SeatIndex
from atoll.train.base import open_base
from atoll.train.data import Dataset, root_of


def open_course(
    manifest: Manifest,
    data_seed: Digest,
    seat: SeatIndex,
    round: int,
    store: LocalStore,
    *,
    model: GlobalState | None = None,
) -> Course:
    """Opens the training tokens from the store, every shard checked.

    Raises:
        NotFound, CorruptBlock: a block is missing or damaged.
        MalformedDataset: the dataset is not what the manifest says.
        MalformedState: what adapters are added to is not what the manifest says.
    """
    tokens = open_training_tokens(manifest, store)
    recipe = Recipe.of(manifest, open_base(manifest, store))
    return Course(manifest, recipe, tokens, data_seed, seat, round, model)


def open_training_tokens(manifest: Manifest, store: LocalStore) -> Tokens:
    """The tokens to train on, as many as the manifest says and with its root. Raises as above."""
    data = manifest.data
    tokens = open_tokens(data.cid, manifest, store)
    if len(tokens) != data.train_tokens:
        raise MalformedDataset(
            f"{len(tokens)} training tokens, the manifest says {data.train_tokens}"
        )
    if data.cid not in _ROOTS:
        _ROOTS[data.cid] = root_of(tokens)
    if _ROOTS[data.cid] != data.root:
        raise MalformedDataset("the training tokens have another root than the manifest says")
    return tokens


_ROOTS: dict[bytes, Digest] = {}
"""A CID names the same tokens for ever, so their root is worked out once a process."""


def open_tokens(cid: bytes, manifest: Manifest, store: LocalStore) -> Tokens:
    """A dataset's tokens, of the manifest's dtype and within its vocabulary. Raises as above."""
    dataset = Dataset.open(store, cid)
    if dataset.index.dtype != manifest.data.dtype:
        raise MalformedDataset(f"tokens are {dataset.index.dtype}, not {manifest.data.dtype}")
    if int(dataset.tokens.max()) >= manifest.model.vocab:
        raise MalformedDataset(f"a token is not below the vocabulary's {manifest.model.vocab}")
    return dataset.tokens
