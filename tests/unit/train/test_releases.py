"""Which jobs a version serves: those of its own training code, and of code with the same bits."""

from __future__ import annotations

import json
import re
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from tests.unit.train.factories import Job
from tests.vectors import record_release
from tests.vectors.record_release import Refused, compare, differing, recorded

from atoll.errors import NumericsMismatch
from atoll.protocol.types import Digest
from atoll.train import probe, releases
from atoll.train.code import code_digest

OWN, OTHER, THIRD = (Digest(sha256(name).digest()) for name in (b"own", b"other", b"third"))


def listed(code: Digest, *same: Digest) -> bytes:
    return json.dumps({"code": code.hex(), "same_bits": [d.hex() for d in same]}).encode()


def test_the_training_code_here_is_that_of_the_releases_number() -> None:
    """Where it changed: `python -m tests.vectors.record_release`, with the revision before as its
    argument where the bits are the same; what is out gets a new number in `pyproject.toml` first.
    """
    assert releases.releases()[record_release.version_here()] == code_digest()
    assert json.loads(releases.EQUIVALENT.read_bytes())["code"] == code_digest().hex()


def test_a_version_meets_its_own_digest_and_what_it_lists() -> None:
    assert releases.digests_met_by(OWN, listed(OWN)) == {OWN}
    assert releases.digests_met_by(OWN, listed(OWN, OTHER, THIRD)) == {OWN, OTHER, THIRD}


def test_a_list_of_other_code_counts_nothing() -> None:
    """Who changes the code and leaves the list: nobody compared the bits."""
    assert releases.digests_met_by(OWN, listed(OTHER, THIRD)) == {OWN}


def test_a_job_of_code_with_the_same_bits_is_served(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numerics = job.manifest.numerics.model_copy(update={"code_digest": OTHER})
    manifest = job.manifest.model_copy(update={"numerics": numerics})
    with pytest.raises(NumericsMismatch, match="training code"):
        probe.check_environment(manifest)
    monkeypatch.setattr(releases, "EQUIVALENT", tmp_path / "equivalent.json")
    releases.EQUIVALENT.write_bytes(listed(code_digest(), OTHER))
    releases.met_digests.cache_clear()
    try:
        probe.check_environment(manifest)
    finally:
        releases.met_digests.cache_clear()


def test_a_digest_that_is_known_is_named_by_its_release() -> None:
    newest = list(releases.releases())[-1]
    assert releases.release_with([code_digest()]) == newest
    assert releases.release_with([OTHER]) is None


def test_what_is_out_keeps_its_digest() -> None:
    known = {"0.1.0": "aa"}
    assert recorded(known, "0.1.0", "bb", out=set()) == {"0.1.0": "bb"}  # under way
    assert recorded(known, "0.1.0", "aa", out={"0.1.0"}) == known
    assert recorded(known, "0.2.0", "bb", out={"0.1.0"}) == {"0.1.0": "aa", "0.2.0": "bb"}
    with pytest.raises(Refused, match="new number"):
        recorded(known, "0.1.0", "bb", out={"0.1.0"})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(record_release.ROOT / record_release.VECTORS, tmp_path / "tests" / "vectors")
    return tmp_path


def vectors(tree: Path) -> list[Path]:
    return sorted((tree / record_release.VECTORS).rglob("*.json"))


def test_another_byte_of_any_vector_is_told(tree: Path) -> None:
    here = record_release.ROOT / record_release.VECTORS
    assert not differing(tree / record_release.VECTORS, here)
    assert len(vectors(tree)) > 30
    for file in vectors(tree):
        data = file.read_bytes()
        file.write_bytes(data.replace(b"0", b"1", 1))
        told = (
            []
            if file.name in ("tags.json", "wire.json")
            else [str(file.relative_to(tree / "tests/vectors"))]
        )
        assert differing(tree / record_release.VECTORS, here) == told
        file.write_bytes(data)


def test_a_digest_is_refused_where_a_vector_differs_or_is_gone(tree: Path) -> None:
    (tree / "tests" / "vectors" / "gone.json").write_text("{}")
    step = tree / "tests" / "vectors" / "training.json"
    step.write_text(step.read_text() + " ")
    with pytest.raises(Refused, match=r"other bits: gone\.json, training\.json"):
        compare(tree, record_release.ROOT)


def test_what_is_run_reads_every_vector() -> None:
    """Each file of vectors is named by a test that the comparison runs."""
    root = record_release.ROOT
    names = record_release.tests_of_vectors(root)
    files = [root / name for name in names if name.endswith(".py")]
    files += sorted((root / "tests" / "second_client").glob("*.py"))
    text = "".join(file.read_text() for file in files)
    assert "tests/second_client" in names
    stems = {re.sub(r"_\d$", "", f.stem) for f in vectors(root) if f.parent.name != "games"}
    unread = [stem for stem in stems - {"tags", "wire"} if stem not in text]
    assert unread == []
