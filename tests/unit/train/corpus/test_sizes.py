"""No limit but the disk: what grows with the text is 64 bytes a MiB."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from atoll.numerics.pieces import SHARD_BYTES, root_of_shards
from atoll.storage.cid import RAW, Cid
from atoll.storage.local import LocalStore
from atoll.storage.unixfs import Child
from atoll.train.data import NODE_BYTES, TokenFile, WordForm, nodes_bytes


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", sync=False)


def test_a_file_of_forty_gibibytes_is_opened_and_read_at_both_ends(store: LocalStore) -> None:
    """Every shard is the same block, so that the file has the size and the disk has one MiB."""
    shards = 40 * 1024
    words = (np.arange(SHARD_BYTES // 2) % 50_000).astype("<u2")
    leaf = Child(store.add_block(words.tobytes(), RAW), SHARD_BYTES)
    last = Child(store.add_block(words[:9].tobytes(), RAW), 18)
    cid = store.join_leaves([*[leaf] * shards, last])
    tokens = shards * len(words) + 9
    found = TokenFile(store, cid.to_bytes(), tokens, WordForm("uint16", 0, 50_000))
    assert len(found) == tokens > 20 << 30
    assert np.array_equal(found[-12:], np.concatenate([words[-3:], words[:9]]))
    middle = 17_000 * len(words)
    assert np.array_equal(found[middle - 5 : middle + 5], np.roll(words, 5)[:10])
    assert nodes_bytes(2 * tokens) == (shards + 1) * NODE_BYTES < 2 << 20


def test_the_root_over_many_nodes_is_worked_out_without_the_data() -> None:
    count = 40 * 1024 + 1
    nodes = np.random.default_rng(1).integers(0, 256, count * NODE_BYTES).astype(np.uint8).tobytes()
    size = (count - 1) * SHARD_BYTES + 18
    root = root_of_shards(nodes, size)
    assert root != root_of_shards(nodes[:-1] + bytes([nodes[-1] ^ 1]), size)
    assert root != root_of_shards(nodes, size + 1024)
    for wrong in (nodes[:-NODE_BYTES], nodes + nodes[:NODE_BYTES], b""):
        with pytest.raises(ValueError, match="nodes"):
            root_of_shards(wrong, size)


def test_a_files_leaves_are_told_from_its_nodes(store: LocalStore) -> None:
    block = store.add_block(b"x" * 100)
    assert store.leaves(block, 100) == [Child(block, 100)]
    assert Cid.from_bytes(block.to_bytes()).codec == RAW
