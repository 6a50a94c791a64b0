"""Another release than this one, as it comes from a wheel: its code has another digest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from atoll.protocol.types import Digest
from atoll.service.environments import FOLDER_VARIABLE

ROOT = Path(__file__).parents[2]
LAST = "0.0.9"
_PARTS = ("sdk", "node", "verifier", "devnet", "pyproject.toml", "README.md", "LICENSE")


@dataclass(frozen=True)
class Release:
    """A release that was added beside this one."""

    number: str
    digest: Digest
    folder: Path


def last_wheel(folder: Path, change: str = "_OF_THE_LAST_RELEASE = 1") -> Path:
    """A wheel of this tree as release `LAST`, with a line more in what trains."""
    tree, out = folder / "tree", folder / "wheels"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for part in _PARTS:
        place = ROOT / part
        copy = shutil.copytree if place.is_dir() else shutil.copy
        copy(place, tree / part, **({"ignore": ignored} if place.is_dir() else {}))  # type: ignore[operator]
    project = tree / "pyproject.toml"
    text = project.read_text()
    assert text.count('\nversion = "') == 1
    head, _, rest = text.partition('\nversion = "')
    project.write_text(f'{head}\nversion = "{LAST}"{rest.partition(chr(34))[2]}')
    with (tree / "sdk" / "atoll" / "numerics" / "step.py").open("a") as file:
        file.write(f"\n{change}\n")
    return build_wheel(tree, out)


def build_wheel(tree: Path, out: Path) -> Path:
    """The wheel of a tree, built with what is installed here."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index"]
    command = [*pip, "--no-build-isolation", "-w", str(out), str(tree)]
    subprocess.run(command, check=True, cwd=out.parent)
    (wheel,) = out.glob("atoll-*.whl")
    return wheel


def atoll(*words: str, releases: Path) -> subprocess.CompletedProcess[str]:
    """`atoll` with its releases in a folder."""
    command = [sys.executable, "-m", "atoll.cli.main", *words]
    environment = {**os.environ, FOLDER_VARIABLE: str(releases)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def add_last(folder: Path) -> Release:
    """Adds release `LAST` as a user does, with the libraries that are here."""
    folder.mkdir(exist_ok=True)
    releases, wheel = folder / "releases", last_wheel(folder)
    words = ("release", "add", LAST, "--wheel", str(wheel), "--share-packages", "--json")
    done = atoll(*words, releases=releases)
    assert done.returncode == 0, done.stderr
    ((said,),) = [json.loads(line) for line in done.stdout.splitlines()]
    return Release(said["release"], Digest(bytes.fromhex(said["digests"][0])), releases)
