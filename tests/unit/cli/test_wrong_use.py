"""Whatever is typed, a command ends with a sentence and its exit code, and no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
CASES = 25
"""Of 6,700, others for each commit; all of them take an hour."""


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def wrong(seed: str, *words: str) -> str:
    command = (sys.executable, "-m", "tests.unit.cli.wrong_use", seed, str(CASES), *words)
    return output(*command)


def test_what_a_hasty_operator_types_ends_with_a_sentence() -> None:
    assert wrong(output("git", "rev-parse", "HEAD").strip()) == ""


def test_numbers_without_measure_are_refused() -> None:
    assert wrong("0", "numerics", "99999999999999999999999999") == ""
