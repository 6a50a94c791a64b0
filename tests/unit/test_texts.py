"""The texts name files, modules, sections and commands that exist.

What is checked is what can be checked mechanically: relative links, paths and modules in backticks,
the contents line of each chapter of the law, references to its sections, and the length of its
sentences. Whether a sentence is true remains for a reader.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    ".ci",
    "bench",
    "contracts",
    "devnet",
    "docs",
    "locks",
    "node",
    "sdk",
    "tests",
    "verifier",
)
FOREIGN = {"node_modules", "lib", "out", "cache", "__pycache__"}
"""Folders with files that are not ours, or that a build writes."""

EVERYTHING = {
    path.relative_to(ROOT).as_posix()
    for top in FOLDERS
    for path in [ROOT / top, *(ROOT / top).rglob("*")]
    if not FOREIGN & set(path.relative_to(ROOT).parts)
} | {path.name for path in ROOT.iterdir()}
TEXTS = sorted(name for name in EVERYTHING if name.endswith(".md"))
LAW = "sdk/atoll/law"
CHAPTERS = sorted(name for name in TEXTS if name.startswith(f"{LAW}/SPEC"))

MADE_BY_A_RUN = {
    "card.json",
    "config.toml",
    "deployment.json",
    "metrics.json",
    "provider.toml",
    "report.json",
}
MADE_BY_A_RUN |= {"verifier.toml", "sdk/atoll/chain/artifacts/{Name}.json"}
ENTRY_POINTS = {"atoll.commands"}
LONGEST_SENTENCE = 45

CODE = re.compile(r"```.*?```", re.DOTALL)
TICKS = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"[\w.{}/-]*\w[\w}-]*\.(?:py|c|sol|md|json|toml|txt|yml)")
MODULE = re.compile(r"atoll(?:_node|_verifier|_devnet)?(?:\.\w+)+")
TAG = re.compile(r"atoll\.[\w.-]+\.v\d")
"""What a hash begins with, such as atoll.leaf.v1; not a module."""
SECTION = re.compile(r"(SPEC(?:-[A-Z]+)?)(?:\.md)?\)?,? (?:section |chapter )?(\d+)\b")


def prose(name: str) -> str:
    return CODE.sub("", (ROOT / name).read_text(encoding="utf-8"))


def exists(name: str) -> bool:
    """Whether a file or folder has this path, or ends with it."""
    wanted = name.rstrip("/")
    return wanted in EVERYTHING or any(path.endswith(f"/{wanted}") for path in EVERYTHING)


def headings(name: str) -> dict[int, str]:
    found = re.findall(r"^## (\d+)\. (.+)$", prose(name), re.MULTILINE)
    return {int(number): title for number, title in found}


def anchors(name: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", prose(name), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_there_are_texts() -> None:
    assert {"README.md", "CHANGELOG.md", "docs/ARCHITECTURE.md", f"{LAW}/SPEC.md"} <= set(TEXTS)
    assert len(CHAPTERS) == 7


@pytest.mark.parametrize("name", TEXTS)
def test_every_link_leads_somewhere(name: str) -> None:
    for link in LINK.findall(prose(name)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / name).parent / path).resolve() if path else ROOT / name
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.relative_to(ROOT).as_posix()), link


@pytest.mark.parametrize("name", TEXTS)
def test_every_path_in_backticks_exists(name: str) -> None:
    for word in re.split(r"[\s:]+", " ".join(TICKS.findall(prose(name)))):
        is_ours = word.split("/")[0] in FOLDERS and "/" in word
        if (FILE.fullmatch(word) or is_ours) and word not in MADE_BY_A_RUN:
            assert exists(word), word


@pytest.mark.parametrize("name", TEXTS)
def test_every_module_in_backticks_exists(name: str) -> None:
    words = " ".join(TICKS.findall(prose(name)))
    for dotted in MODULE.findall(TAG.sub("", words)):
        parts = dotted.split(".")
        while not exists("/".join(parts)) and not exists("/".join(parts) + ".py"):
            parts.pop()
        rest = dotted.split(".")[len(parts) :]
        if rest and dotted not in ENTRY_POINTS:
            assert hasattr(importlib.import_module(".".join(parts)), rest[0]), dotted


@pytest.mark.parametrize("name", CHAPTERS)
def test_contents_name_the_sections(name: str) -> None:
    found = re.search(r"^Contents: (.+?)\.(?:\s|$)", prose(name), re.MULTILINE | re.DOTALL)
    assert found is not None
    listed = {}
    for entry in " ".join(found[1].split()).split(" · "):
        number, title = entry.split(" ", 1)
        listed[int(number)] = title.lower()
    assert listed == {number: title.lower() for number, title in headings(name).items()}


@pytest.mark.parametrize("name", TEXTS)
def test_references_to_the_law_name_a_section(name: str) -> None:
    for chapter, number in SECTION.findall(prose(name)):
        assert int(number) in headings(f"{LAW}/{chapter}.md"), f"{chapter} {number}"


def sentences(name: str) -> list[str]:
    """What ends with a full stop, a colon or an empty line; neither tables nor numbered lines."""
    text = re.sub(r"^Contents: .*?\n\n", "", prose(name), flags=re.MULTILINE | re.DOTALL)
    lines = ["" if line.strip().startswith(("|", "#")) else line for line in text.splitlines()]
    text = re.sub(r"\n(?=\s*(?:[-*] |\d+\. |[A-Z]\d+\. ))", "\n\n", "\n".join(lines))
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return [s for paragraph in paragraphs for s in re.split(r"(?<=[.:?!*)])\s", paragraph)]


@pytest.mark.parametrize("name", CHAPTERS)
def test_sentences_of_the_law_are_short(name: str) -> None:
    long = [s for s in sentences(name) if len(s.split()) > LONGEST_SENTENCE]
    assert long == []
