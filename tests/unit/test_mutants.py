"""The mutants: one change each, of what runs; a process lives with one and others do not notice."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
from tests.mutants.marks import Marks
from tests.mutants.operators import difference, mutants_of

SOURCE = '''
"""A module: 1 + 1."""
from dataclasses import dataclass
from typing import Annotated

LIMIT = 4
FLAGS = LIMIT | 1
Both = Place | Other | module.Third


@dataclass(frozen=True)
class Place:
    """One of 7."""

    at: Annotated[int, Field(ge=0)]

    def __repr__(self) -> str:
        return "Place" + str(1)


def count(items: list[int], flag: bool = True) -> int:
    assert len(items) > 3
    total = 0
    for item in items:
        if item < LIMIT and not flag:
            total += item
    if total == 9:
        raise ValueError(f"{total + 1} is " + "nine")
    return total
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "module.py").write_text(SOURCE, "utf-8")
    return tmp_path


def changes(root: Path, operator: str) -> list[str]:
    """Each changed line as it became."""
    found = [m for m in mutants_of(root, "module.py") if m.operator == operator]
    return [difference(root, mutant).splitlines()[-1].removeprefix("+").strip() for mutant in found]


def test_every_operator_changes_one_thing(root: Path) -> None:
    assert changes(root, "comparison") == ["if item <= LIMIT and (not flag):", "if total != 9:"]
    assert changes(root, "arithmetic") == ["FLAGS = LIMIT & 1", "total -= item"]
    assert changes(root, "boolean") == [
        "def count(items: list[int], flag: bool=False) -> int:",
        "if item < LIMIT or not flag:",
        "if item < LIMIT and flag:",
    ]
    assert changes(root, "constant") == [
        *("LIMIT = 5", "LIMIT = 3", "FLAGS = LIMIT | 2", "FLAGS = LIMIT | 0"),
        *("at: Annotated[int, Field(ge=1)]", "at: Annotated[int, Field(ge=-1)]"),
        *("total = 1", "total = -1", "if total == 10:", "if total == 8:"),
    ]
    assert changes(root, "branch") == [
        "if not (item < LIMIT and (not flag)):",
        "if not total == 9:",
    ]
    assert changes(root, "return") == ["return None"]
    assert changes(root, "deletion") == ["pass", "pass"]


def test_what_is_outside_of_functions_is_known(root: Path) -> None:
    outside = [m.line for m in mutants_of(root, "module.py") if not m.inside]
    lines = SOURCE.splitlines()
    assert {lines[line - 1].split()[0] for line in outside} == {"LIMIT", "FLAGS", "at:", "def"}


def test_no_mutant_is_the_source(root: Path) -> None:
    found = mutants_of(root, "module.py")
    assert all(difference(root, mutant) for mutant in found)
    assert [mutant.index for mutant in found] == list(range(len(found)))
    assert found == mutants_of(root, "module.py")
    assert ast.parse(SOURCE)


BRANCHING = '''
def sign(x):
    """The sign."""
    if x < 0:
        return -1
    elif (x
          > 0):
        return 1
    for word in ["no", "sign"]:
        try:
            int(word)
        except ValueError:
            continue
    return 0


class Counter:
    def count(self):
        return sign(len("three"))
'''


def test_the_lines_that_ran_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "branching_for_marks.py").write_text(BRANCHING, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    marks = Marks(tmp_path, ["branching_for_marks.py"])
    try:
        module = importlib.import_module("branching_for_marks")
    finally:
        marks.end()
    assert (module.sign.__doc__, set(marks.lines())) == ("The sign.", set())

    def ran() -> set[int]:
        found = {line for _, line in marks.lines()}
        marks.clear()
        return found

    assert module.sign(-1) == -1
    assert ran() == {4, 5}
    assert module.Counter().count() == 1
    assert ran() == {4, 6, 7, 8, 19}
    assert module.sign(0) == 0
    assert ran() == {4, 6, 7, *range(9, 15)}
    assert ran() == set()
