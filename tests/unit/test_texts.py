"""The texts name files, modules, sections and commands that exist.

What is checked is what can be checked mechanically: relative links, paths and modules in backticks,
commands with their options, the contents line of each chapter of the law, references to its
sections, and the length of its sentences. Whether a sentence is true remains for a reader.
"""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from atoll.cli.main import app
from atoll.errors import ConfigError
from atoll.job.presets import preset
from atoll_devnet.cheats.catalogue import (
    check_provider_cheat,
    check_verifier_cheat,
    check_watcher_cheat,
)

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    ".ci",
    "bench",
    "contracts",
    "deploy",
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
LAW = "sdk/atoll/protocol"
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
COMMAND = re.compile(r"(?:\.venv/bin/)?atoll (.+)")
"""Of the `atoll` program; in words, and in blocks of code at the start of a line."""
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


def commands(name: str) -> Iterator[list[str]]:
    """The words behind `atoll` wherever a text says what to type."""
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = [line for block in CODE.findall(text) for line in block.replace("\\\n", "").split("\n")]
    for written in (*lines, *TICKS.findall(CODE.sub("", text))):
        if found := COMMAND.fullmatch(written.strip().removeprefix("$ ")):
            words = shlex.split(found[1].split(" > ")[0].split(" | ")[0], comments=True)
            yield [word.strip(",…") for word in words if word != "…"]


def check_command(words: list[str]) -> None:
    """Raises click's errors, or AssertionError, unless there is this command with its options."""
    command: Any = typer.main.get_command(app)
    context: Any = command.context_class(command, info_name="atoll")
    while hasattr(command, "resolve_command") and words and words[0].islower():
        name, command, words = command.resolve_command(context, words)
        context = command.context_class(command, info_name=name, parent=context)
    known = {option for parameter in command.get_params(context) for option in parameter.opts}
    if words and "--help" not in words:  # otherwise it is only named
        needed = [one.opts for one in command.params if one.required and "--" in one.opts[0]]
        assert [opts for opts in needed if not set(opts) & set(words)] == []
    for option, value in pairwise(words):
        check_value(context, option, value)
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in known, word


def check_value(context: Any, option: str, value: str) -> None:
    """Of options whose values have names of their own. Raises ConfigError for an unknown one."""
    checks = {
        "--cheat": check_provider_cheat,
        "--verifier-cheat": check_verifier_cheat,
        "--watcher-cheat": check_watcher_cheat,
    }
    if option in checks:
        checks[option](value.partition(":")[2])
    of_jobs = context.parent is not None and context.parent.info_name in {"devnet", "job"}
    if option == "--set" and of_jobs and value.partition("=")[0].islower():
        path, _, text = value.partition("=")
        preset("demo").but({path: int(text) if text.isdecimal() else text})


@pytest.mark.parametrize("name", TEXTS)
def test_every_command_exists_with_its_options(name: str) -> None:
    for words in commands(name):
        check_command(words)


def test_commands_are_found_and_wrong_ones_noticed() -> None:
    assert ["judge", "init", "--help"] in commands("README.md")
    for wrong in ("job attest", "job new --colour red", "devnet run --cheat 1:honest"):
        with pytest.raises(Exception, match=r"attest|colour|honest"):
            check_command(wrong.split())
    with pytest.raises(AssertionError, match="--config"):
        check_command(["tx", "bump", "7"])
    with pytest.raises(ConfigError, match="coverage"):
        check_command(["devnet", "run", "--set", "audit.coverage=1"])


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


def test_the_specification_is_readable_in_a_day() -> None:
    """Words, of which signs between numbers and the bars of tables are none."""
    texts = (ROOT / "sdk" / "atoll" / "protocol").glob("SPEC*.md")
    words = [word for text in texts for word in text.read_text(encoding="utf-8").split()]
    assert sum(any(sign.isalnum() for sign in word) for word in words) <= 31_200
