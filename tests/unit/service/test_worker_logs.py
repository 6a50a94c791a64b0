"""What a worker logs is not what a command prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import structlog

ROOT = Path(__file__).parents[3]
PROGRAM = """
import asyncio
from atoll.service.worker import Worker

if __name__ == "__main__":
    print(asyncio.run(Worker().run("tests.unit.service.test_worker_logs:speak")))
"""


def speak() -> str:
    structlog.get_logger().info("a word of the worker")
    return "its result"


def test_a_spawned_worker_logs_to_standard_error(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r})\n"
    command += f"runpy.run_path({str(program)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, "its result\n"), done.stderr
    assert "a word of the worker" in done.stderr
