"""Each row of tests/README.md names tests, and they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
CONTRACTS = TESTS.parent / "contracts" / "test"
NAMED = re.compile(r"`([\w/]+\.(?:py|t\.sol))::(\w+)`")
BEGINS = re.compile(r"^    function (\w+)\(", re.MULTILINE)
"""A test in Solidity."""


def rows(text: str) -> list[str]:
    """Rows of tables, without their headers."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = {at for at, line in enumerate(lines) if set(line) <= set("| -")}
    return [line for at, line in enumerate(lines) if at not in rules and at + 1 not in rules]


ROWS = rows((TESTS / "README.md").read_text(encoding="utf-8"))


@cache
def functions(file: str) -> frozenset[str]:
    """Tests of a file, in Python or in Solidity."""
    if file.endswith(".sol"):
        return frozenset(BEGINS.findall((CONTRACTS / file).read_text(encoding="utf-8")))
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))


def missing(row: str) -> list[str]:
    """What a row names that is not there; all of it, where it names no test."""
    named = NAMED.findall(row)
    return [row] if not named else [test for file, test in named if test not in functions(file)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_a_row_has_tests_and_they_exist(row: str) -> None:
    assert missing(row) == []


def test_a_row_without_a_test_is_noticed() -> None:
    table = "| what | tests |\n| --- | --- |\n| a | none |\n| b | `unit/test_rows.py::test_gone` |"
    assert [missing(row) for row in rows(table)] == [["| a | none |"], ["test_gone"]]
