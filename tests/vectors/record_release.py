"""Records the digest of the training code: `python -m tests.vectors.record_release`.

Without an argument it writes the digest of the number in `pyproject.toml` to `releases.json`, and
refuses where that release is out (has a tag `v…`) with another one: a changed digest needs a new
number. With a revision of git, `… HEAD~1`, it also compares the bits of that revision with these
and lists its digest in `equivalent.json`, so that its jobs are served by this version, too.

Rule of this file: a digest is listed only where the revision's every vector is here, byte for byte,
the probe is the same, and the tests of vectors and the whole second client pass in both trees.
"""
# ruff: noqa: T201 -- words for whoever runs it

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from atoll.train.code import code_digest
from atoll.train.releases import EQUIVALENT, RELEASES, met_digests

ROOT = Path(__file__).resolve().parents[2]
VECTORS = Path("tests/vectors")
WITHOUT_BITS = {Path("tags.json"), Path("wire.json")}
"""What journals and workers call things."""
ASKED = """
import json, sys
from atoll.train.probe import numerics_spec, pin_torch
pin_torch()
said = numerics_spec()
met = {said.code_digest}
try:
    from atoll.train.releases import met_digests
    met |= met_digests()
except ImportError:  # of before there was a list
    pass
json.dump([said.probe_digest.hex(), sorted(digest.hex() for digest in met)], sys.stdout)
"""


class Refused(Exception):
    """What keeps a digest from being written down."""


@dataclass(frozen=True)
class Bits:
    """What a tree says of itself: its probe, and the digests of code whose bits it has."""

    probe: str
    met: frozenset[str]

    @classmethod
    def of(cls, tree: Path) -> Bits:
        command = [sys.executable, "-c", ASKED]
        told = subprocess.run(command, env=_of(tree), cwd=tree, check=True, stdout=subprocess.PIPE)
        probe, met = json.loads(told.stdout.splitlines()[-1])
        return cls(probe, frozenset(met))


def version_here() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def recorded(releases: dict[str, str], version: str, digest: str, out: set[str]) -> dict[str, str]:
    """The releases with this one.

    Args:
        out: numbers of releases that people have.

    Raises:
        Refused: people have this number with another digest.
    """
    if version in out and releases.get(version) != digest:
        raise Refused(
            f"release {version} is out with other training code: give pyproject.toml a new number"
        )
    return {**releases, version: digest}


def released() -> set[str]:
    """Numbers that have a tag of git."""
    told = _git("tag", "--list", "v*").decode()
    return {tag.removeprefix("v") for tag in told.split()}


def changed_since_out() -> list[str]:
    """Releases whose digest here is another than it was as they came out."""
    here = json.loads(RELEASES.read_text(encoding="utf-8"))
    path, changed = RELEASES.relative_to(ROOT), []
    for number in sorted(released()):
        told = subprocess.run(
            ["git", "show", f"v{number}:{path}"], cwd=ROOT, capture_output=True, check=False
        )
        if told.returncode == 0 and json.loads(told.stdout)[number] != here.get(number):
            changed.append(number)
    return changed


def differing(before: Path, here: Path) -> list[str]:
    """Vectors of one folder that are not, or are others, in another."""
    found = []
    for file in sorted(before.rglob("*.json")):
        name = file.relative_to(before)
        other = here / name
        is_same = other.is_file() and other.read_bytes() == file.read_bytes()
        if name not in WITHOUT_BITS and not is_same:
            found.append(str(name))
    return found


def compare(before: Path, here: Path) -> frozenset[str]:
    """The digests whose bits two trees have in common: those of the first.

    Raises:
        Refused: they differ, or the tests of either fail.
    """
    if vectors := differing(before / VECTORS, here / VECTORS):
        raise Refused(f"other bits: {', '.join(vectors)}")
    was, now = Bits.of(before), Bits.of(here)
    if was.probe != now.probe:
        raise Refused(f"other bits: the probe gave {was.probe[:16]} and gives {now.probe[:16]}")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    # Of both: where the first one's code gives others than its vectors, they say nothing of it.
    for tree in (before, here):
        tests = [*command, *tests_of_vectors(tree)]
        if subprocess.run(tests, env=_of(tree), cwd=tree, check=False).returncode:
            raise Refused(f"a test of the vectors fails in {tree}")
    return was.met


def _of(tree: Path) -> dict[str, str]:
    """The environment in which a tree's own packages are imported."""
    parts = (tree / part for part in ("sdk", "node", "verifier", "devnet", "."))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, parts))}


def tests_of_vectors(tree: Path) -> list[str]:
    """The second client, and whatever else reads a vector."""
    files = sorted((tree / "tests" / "unit").rglob("test_*.py"))
    readers = [f for f in files if "vectors" in f.read_text(encoding="utf-8")]
    skipped = {
        "test_releases.py",
        "test_tags.py",
        "test_wire.py",
    }  # of what is written here, and of no bits
    names = [str(f.relative_to(tree)) for f in readers if f.name not in skipped]
    return ["tests/second_client", *names]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?", help="of git, whose bits are compared")
    parser.add_argument("--check", action="store_true", help="whether what is out is unchanged")
    asked = parser.parse_args()
    try:
        if asked.check:
            if changed := changed_since_out():
                raise Refused(f"changed since they are out: {', '.join(changed)}")
            return 0
        own = code_digest().hex()
        known = json.loads(RELEASES.read_text(encoding="utf-8"))
        _write(RELEASES, recorded(known, version_here(), own, released()))
        same = {digest.hex() for digest in met_digests()}
        if asked.revision:
            with tempfile.TemporaryDirectory() as folder:
                _check_out(asked.revision, Path(folder))
                same |= compare(Path(folder), ROOT)
        _write(EQUIVALENT, {"code": own, "same_bits": sorted(same - {own})})
        print(f"{version_here()} is {own}, with the bits of {len(same) - 1} other digests")
    except Refused as refused:
        print(f"refused: {refused}", file=sys.stderr)
        return 1
    return 0


def _check_out(revision: str, folder: Path) -> None:
    data = _git("archive", revision)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
