"""The recipes of docs/extending.md name what their newest sibling stands in, and few files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
CODE = ("sdk/atoll", "node", "verifier", "contracts/src", "tests/second_client")
RECIPES = {
    "A codec": ("two_bit", 8),
    "A merge rule": ("centred_clip", 5),
    "A model family": ("olmo2", 10),
    "An optimiser": ("lion", 12),
    "A batch source": ("aligned", 20),
}
"""Chapter → a sibling whose name is in each file that knows of it, and how many files by hand the
page should come to, within a quarter (docs, texts and tests among them)."""
USERS = {
    "two_bit": (
        "sdk/atoll/job/methods.py",
        "sdk/atoll/train/probe_job.py",
        "tests/second_client/test_codecs.py",
        "tests/second_client/test_rounds.py",
    ),
    "aligned": (
        "sdk/atoll/cli/output.py",
        "sdk/atoll/numerics/tensors.py",
        "sdk/atoll/storage/blocks.py",
        "sdk/atoll/storage/direct.py",
        "sdk/atoll/train/corpus/problems.py",
        "tests/second_client/test_tasks.py",
    ),
}
"""Who asks for it, as anybody may: a method, the probe, and jobs that are about other things; and
where the word is of something else."""
TABLES = re.compile(r"^\| (`.*?`.*?) \|", re.MULTILINE)


def chapter(title: str) -> str:
    """The text of one recipe."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/extending.md has no chapter {title!r}"
    return found.group(1)


def listed(title: str) -> list[str]:
    """Files and folders in the first column of its table, without those that a command makes."""
    rows = [row for row in TABLES.findall(chapter(title)) if not row.startswith("`file`")]
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    return [name for name in names if not name.endswith(".json")]


def files_with(word: str) -> list[str]:
    """Files of the product and the second client that have the word."""
    files = (file for top in CODE for file in (ROOT / top).rglob("*"))
    texts = (file for file in files if file.suffix in {".py", ".md", ".sol"})
    known = re.compile(rf"\b{word}\b")
    found = (file for file in texts if known.search(file.read_text(encoding="utf-8")))
    return sorted(file.relative_to(ROOT).as_posix() for file in found)


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_names_what_its_newest_sibling_stands_in(title: str) -> None:
    sibling, _ = RECIPES[title]
    names, users = listed(title), USERS.get(sibling, ())
    where = [file for file in files_with(sibling) if file not in users]
    assert where
    missing = [file for file in where if not file.startswith(tuple(names))]
    assert not missing, f"docs/extending.md does not name {missing}"


def test_every_path_of_the_page_is_there() -> None:
    paths = re.findall(r"\b(?:sdk|node|tests|contracts|docs|bench)/[\w./-]*\w", PAGE)
    assert len(set(paths)) > 60
    missing = {path for path in paths if not (ROOT / path).exists()}
    assert not missing, f"docs/extending.md names what is not there: {sorted(missing)}"


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_is_no_longer_than_it_should_be(title: str) -> None:
    _, aim = RECIPES[title]
    assert len(listed(title)) <= aim * 1.25


def test_an_event_is_written_by_hand_in_few_files() -> None:
    steps = re.findall(r"^\d\. ", chapter("A contract event"), re.MULTILINE)
    assert 0 < len(steps) <= 6 * 1.25
