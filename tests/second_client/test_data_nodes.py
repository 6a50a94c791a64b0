"""The nodes over every MiB of a data set are atoll's, and lead to its root."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.second_client import words

from atoll.numerics.pieces import SHARD_BYTES
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.data import write_tokens


@pytest.mark.parametrize("size", [2, 1024, 5000, SHARD_BYTES, SHARD_BYTES + 1026])
def test_nodes_lead_to_the_piece_root(size: int, tmp_path: Path) -> None:
    tokens = np.random.default_rng(size).integers(0, 1 << 16, size // 2).astype("<u2")
    raw = tokens.tobytes()
    store = LocalStore(tmp_path, sync=False)
    written = write_tokens(tokens, store)
    nodes = words.shard_nodes(raw)
    assert b"".join(nodes) == store.read_bytes(Cid.from_bytes(written.nodes_cid), 1 << 20)
    assert words.root_of_nodes(nodes, size) == written.root
    if size <= 5000:  # hashing a MiB in plain Python takes its time
        assert words.piece_root(raw) == written.root
    assert words.root_of_nodes(nodes, size + 1024) != written.root
