"""The same CIDs as other implementations, from vectors that they made.

`unixfs-js.json` comes from ipfs-unixfs-importer (tests/integration/storage/node),
`unixfs-kubo.json` from a Kubo node (tests/integration/storage/test_libkubo.py). All
content is the start of one SHAKE-128 stream.
"""

from __future__ import annotations

import hashlib
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from atoll.storage.directory import build_path
from atoll.storage.unixfs import PROFILES, Profile, build_tree

VECTORS = Path(__file__).parents[2] / "vectors"


@cache
def stream() -> bytes:
    return hashlib.shake_128(b"atoll").digest(50_000_000)


def load(key: str) -> list[Any]:
    return [
        pytest.param(case, id=f"{source}-{case['profile']}-{case.get('bytes', 'folder')}")
        for source in ("js", "kubo")
        for case in json.loads((VECTORS / f"unixfs-{source}.json").read_text())[key]
    ]


def profile_of(case: dict[str, Any]) -> Profile:
    named = PROFILES[case["profile"]]
    return Profile(named.name, case["chunk"], case["links"], named.raw_leaves, named.cid_version)


@pytest.mark.parametrize("case", load("files"))
def test_file(case: dict[str, Any]) -> None:
    root = build_tree(io.BytesIO(stream()[: case["bytes"]]), lambda *_: None, profile_of(case))
    assert (str(root.cid), root.file_bytes) == (case["cid"], case["bytes"])
    assert root.tree_bytes == case.get("tree_bytes", root.tree_bytes)


@pytest.mark.parametrize("case", load("folders"))
def test_folder(case: dict[str, Any], tmp_path: Path) -> None:
    for name, size in case["tree"].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(stream()[:size])
    written = build_path(tmp_path, lambda *_: None, PROFILES[case["profile"]])
    assert str(written.cid) == case["cid"]
