"""Whatever is typed, a command ends with a sentence and its exit code, and no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
CASES = 25
"""Of 6,700, others for each commit; all of them take an hour."""
WITHOUT_MEASURE = "0 numerics 99999999999999999999999999"


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def newest_commit() -> str:
    return output("git", "rev-parse", "HEAD").strip()


@pytest.fixture(scope="module")
def failures(newest_commit: str) -> list[dict[str, Any]]:
    """Of both groups, whose commands are forked from one process that has imported everything."""
    command = (sys.executable, "-m", "tests.integration.cli.wrong_use", str(CASES))
    lines = output(*command, newest_commit, WITHOUT_MEASURE).splitlines()
    return [json.loads(line) for line in lines]


def test_what_a_hasty_operator_types_ends_with_a_sentence(
    newest_commit: str, failures: list[dict[str, Any]]
) -> None:
    assert [failure for failure in failures if failure["group"] == newest_commit] == []


def test_numbers_without_measure_are_refused(failures: list[dict[str, Any]]) -> None:
    assert [failure for failure in failures if failure["group"] == WITHOUT_MEASURE] == []
