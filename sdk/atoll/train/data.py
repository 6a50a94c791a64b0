"""Tokens as files in the store, read where they lie.

Needs no torch. The words of a data set are one file of raw leaves of 1 MiB: it has no size that it
could outgrow, and pins, gateways and mirrors treat it as any file. Its root's nodes over each MiB
are a second one, so that a MiB is checked when it is first read, and nobody reads all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from atoll.errors import TooLarge
from atoll.numerics.errors import MalformedDataset
from atoll.numerics.pieces import SHARD_BYTES, root_of_shards, shard_node
from atoll.numerics.tokens import DTYPES, Tokens
from atoll.protocol.manifest import DataSpec, Manifest
from atoll.protocol.types import Digest
from atoll.storage.cid import Cid
from atoll.storage.errors import MalformedDag
from atoll.storage.leaves import Leaves
from atoll.storage.local import LocalStore
from atoll.storage.unixfs import Child

NODE_BYTES: Final = 32


def nodes_bytes(size: int) -> int:
    """How many bytes the nodes of a file of tokens have."""
    return -(-size // SHARD_BYTES) * NODE_BYTES


@dataclass(frozen=True, slots=True)
class WordForm:
    """What a data set's words look like.

    Attributes:
        mask_bit: set where a token has weight 0; 0 where no bit says so.
        vocab: every token is below it.
    """

    dtype: str
    mask_bit: int
    vocab: int

    @property
    def bytes(self) -> int:
        """Bytes of a word."""
        return DTYPES[self.dtype].itemsize

    def check(self, words: Tokens) -> None:
        """Raises MalformedDataset where a word's token is not below the vocabulary."""
        tokens = words & ~DTYPES[self.dtype].type(self.mask_bit)
        if len(words) and int(tokens.max()) >= self.vocab:
            raise MalformedDataset(f"a token is not below the vocabulary's {self.vocab}")


class TokenFile:
    """The words of a file in the store, as a sequence that slices are taken of.

    Nothing is read until it is asked for. A shard of 1 MiB is checked when it is first read:
    against its CID, the vocabulary and, where nodes are given, the node of the root over it. What
    is read of it later is what was checked (`Leaves`).

    Args:
        store: where the file is.
        cid: the file.
        tokens: how many words it has.
        form: what they look like.
        nodes: `shard_node` of every shard, which the caller has checked; None for no check.

    Raises:
        NotFound, CorruptBlock: a block is missing or damaged.
        MalformedDataset: not a file of that many words in leaves of 1 MiB.
    """

    def __init__(
        self,
        store: LocalStore,
        cid: bytes,
        tokens: int,
        form: WordForm,
        nodes: bytes | None = None,
    ) -> None:
        self.form = form
        self._tokens = tokens
        self.nodes = nodes
        self._leaves = Leaves(store, _leaves(store, cid, tokens * form.bytes))
        self._checked: set[int] = set()

    def __len__(self) -> int:
        return self._tokens

    def __getitem__(self, span: slice, /) -> NDArray[Any]:
        """A copy of the words of a span without a step; raises as the class does."""
        start, stop, step = span.indices(self._tokens)
        if step != 1:
            raise ValueError("words are read in their order, one after another")
        words = np.empty(max(stop - start, 0), DTYPES[self.form.dtype])
        raw, per_shard = words.view(np.uint8), SHARD_BYTES // self.form.bytes
        at = start
        while at < stop:
            shard, begin = divmod(at, per_shard)
            end = min(begin + stop - at, per_shard)
            part = self._span(shard, begin * self.form.bytes, end * self.form.bytes)
            placed = (at - start) * self.form.bytes
            raw[placed : placed + len(part)] = np.frombuffer(part, np.uint8)
            at += end - begin
        return words

    def check(self) -> None:
        """Reads all of it once, a shard at a time. Raises as the class does."""
        for shard in range(len(self._leaves)):
            self._span(shard, 0, 0)

    def _span(self, index: int, begin: int, end: int) -> bytes:
        if index in self._checked:
            return self._leaves.span(index, begin, end)
        shard = self._leaves.read(index)
        self.form.check(np.frombuffer(shard, DTYPES[self.form.dtype]))
        self._check_node(index, shard)
        self._checked.add(index)
        return shard[begin:end]

    def _check_node(self, index: int, shard: bytes) -> None:
        if self.nodes is None:
            return
        if shard_node(shard) != self.nodes[index * NODE_BYTES : (index + 1) * NODE_BYTES]:
            raise MalformedDataset(f"MiB {index} of the tokens is not what their root is over")


def _leaves(store: LocalStore, cid: bytes, size: int) -> list[Child]:
    try:
        leaves = store.leaves(Cid.from_bytes(cid), size)
    except (MalformedDag, TooLarge) as error:
        raise MalformedDataset(f"tokens: {error}") from error
    held = sum(leaf.file_bytes for leaf in leaves)
    if held != size:
        raise MalformedDataset(f"the tokens have {held} bytes, the manifest says {size}")
    if any(leaf.file_bytes != SHARD_BYTES for leaf in leaves[:-1]):
        raise MalformedDataset("the tokens' leaves are not of 1 MiB")
    return leaves


def form_of(manifest: Manifest) -> WordForm:
    """What the words of a job's data look like: tokens, or numbers of rows, too."""
    task, vocab = manifest.task, manifest.model.vocab
    limit = vocab if task is None else task.least_values(vocab)
    return WordForm(manifest.data.dtype, manifest.data.mask_bit, limit)


def read_nodes(data: DataSpec, store: LocalStore) -> bytes:
    """The nodes of the training tokens' shards, which lead to the manifest's root.

    Raises:
        NotFound, CorruptBlock: a block is missing or damaged.
        MalformedDataset: they lead to another root.
    """
    size = data.train_tokens * data.token_bytes
    try:
        nodes = store.read_bytes(Cid.from_bytes(data.nodes_cid), nodes_bytes(size))
        root = root_of_shards(nodes, size)
    except (MalformedDag, TooLarge, ValueError) as error:
        raise MalformedDataset(f"the training tokens' nodes: {error}") from error
    if root != data.root:
        raise MalformedDataset("the training tokens have another root than the manifest says")
    return nodes


@dataclass(frozen=True, slots=True)
class Written:
    """Tokens in a store: the file, the file of nodes (binary CIDs), and the root."""

    cid: bytes
    nodes_cid: bytes
    root: Digest


def write_tokens(words: Tokens, store: LocalStore) -> Written:
    """Stores words that are in memory. Raises ValueError where there are none."""
    raw = np.ascontiguousarray(words).data.cast("B")
    shards = [raw[at : at + SHARD_BYTES] for at in range(0, len(raw), SHARD_BYTES)]
    nodes = b"".join(map(shard_node, shards))
    root = root_of_shards(nodes, len(raw))
    cid, nodes_cid = store.add_bytes(bytes(raw)), store.add_bytes(nodes)
    return Written(cid.to_bytes(), nodes_cid.to_bytes(), root)
