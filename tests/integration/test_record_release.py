"""Whose bits are the same: both trees are asked by their own tests, with their own packages."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.vectors import record_release
from tests.vectors.record_release import Bits, Refused, compare

TEST = """
from own_package import BITS

def test_a_vector():
    assert BITS == 1
"""


def tree_of(folder: Path, bits: int) -> Path:
    """A tree whose vectors say 1, and whose code gives other bits."""
    (folder / "sdk").mkdir(parents=True)
    (folder / "sdk" / "own_package.py").write_text(f"BITS = {bits}\n")
    (folder / "test_vector.py").write_text(TEST)
    (folder / record_release.VECTORS).mkdir(parents=True)
    return folder


@pytest.mark.parametrize("wrong", ["before", "here", None])
def test_a_digest_is_listed_only_where_both_give_the_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str | None
) -> None:
    """A change of bits that no probe saw and no vector followed is in the older tree alone."""
    before, here = (tree_of(tmp_path / n, 2 if n == wrong else 1) for n in ("before", "here"))
    monkeypatch.setattr(record_release, "tests_of_vectors", lambda tree: ["test_vector.py"])
    monkeypatch.setattr(Bits, "of", lambda tree: Bits("a probe", frozenset({tree.name})))
    if wrong is None:
        assert compare(before, here) == {"before"}
    else:
        with pytest.raises(Refused, match=f"fails in .*{wrong}"):
            compare(before, here)
