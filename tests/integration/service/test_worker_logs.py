"""What a worker logs is not what a command prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import structlog

from atoll.service.task import Task

ROOT = Path(__file__).parents[3]
PROGRAM = """
import asyncio
from atoll.service.worker import Worker
from tests.integration.service.test_worker_logs import SPEAK

if __name__ == "__main__":
    {first}
    print(asyncio.run(Worker().run(SPEAK())))
"""
LEVEL = "from atoll.cli.output import configure_logs; configure_logs({level!r})"
SPEAK: Final[Task[[], str]] = Task("test-speak.v1", __name__)
AHEAD = "from atoll.service.worker import fork_ahead; fork_ahead(); "


@SPEAK.runs
def speak() -> str:
    structlog.get_logger().info("a word of the worker")
    return "its result"


def complaints(folder: Path, first: str) -> str:
    """What the program writes to standard error, if it begins so."""
    program = folder / "program.py"
    program.write_text(PROGRAM.format(first=first))
    command = f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r})\n"
    command += f"runpy.run_path({str(program)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, "its result\n"), done.stderr
    return done.stderr


def test_a_spawned_worker_logs_to_standard_error(tmp_path: Path) -> None:
    assert "a word of the worker" in complaints(tmp_path, "pass")


@pytest.mark.parametrize("ahead", ["", AHEAD])
@pytest.mark.parametrize(("level", "is_told"), [("info", True), ("warning", False)])
def test_a_worker_logs_from_the_level_up_that_its_starter_does(
    tmp_path: Path, ahead: str, level: str, is_told: bool
) -> None:
    told = complaints(tmp_path, ahead + LEVEL.format(level=level))
    assert ("a word of the worker" in told) is is_told


def test_a_class_that_only_its_starter_knows_ends_no_worker(tmp_path: Path) -> None:
    own = "structlog.configure(wrapper_class=type('Own', (structlog.BoundLogger,), {}))"
    assert "a word of the worker" in complaints(tmp_path, f"import structlog; {own}")
