"""Every attack of SECURITY.md's table is staged by tests that exist under the names given there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TITLE = "## Where each attack is staged"
DEFINED = {
    ROOT / "tests": ("*.py", re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)),
    ROOT / "contracts/test": (
        "*.sol",
        re.compile(r"^    function ((?:test|invariant)\w+)", re.MULTILINE),
    ),
}
"""Where tests are, and how one begins."""
NAME = re.compile(r"`((?:test|invariant)\w+)`")


def defined() -> set[str]:
    """Names of all tests, in Python and in Solidity."""
    return {
        name
        for folder, (files, begins) in DEFINED.items()
        for path in folder.rglob(files)
        for name in begins.findall(path.read_text(encoding="utf-8"))
    }


def rows() -> list[list[str]]:
    """The cells of each attack: what it is, what ends it, what stages it."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    lines = text[text.index(TITLE) :].splitlines()
    table = [line for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def test_there_are_attacks() -> None:
    assert len(rows()) > 20


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_is_staged(row: list[str]) -> None:
    _, _, staged = row
    names = NAME.findall(staged)
    assert names
    assert set(names) <= defined()
    # Nothing but names of tests, so that none is misspelt into prose.
    assert not NAME.sub("", staged).strip(", ")
