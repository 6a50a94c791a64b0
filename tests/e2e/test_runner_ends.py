"""However a run is ended, no process of it is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

GONE_WITHIN_SECONDS = 300.0


@dataclass(frozen=True)
class Row:
    """A living process, and whom it belongs to."""

    pid: int
    parent: int
    group: int
    command: str


def living() -> list[Row]:
    """Every process that has not ended; one that nobody collected has."""
    columns = "pid=,ppid=,pgid=,stat=,command="
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", columns], capture_output=True, text=True, check=True
    )
    rows = (line.split(None, 4) for line in listed.stdout.splitlines())
    return [Row(int(r[0]), int(r[1]), int(r[2]), r[4]) for r in rows if r[3][0] != "Z"]


def started_by(runner: int) -> list[Row]:
    """What the runner started, directly or not."""
    rows, family = living(), {runner}
    for _ in rows:
        family |= {row.pid for row in rows if row.parent in family}
    return [row for row in rows if row.pid in family - {runner}]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_runner(number: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    size = ["--providers", "1", "--verifiers", "1", "--set", "rounds=1"]
    command = [
        sys.executable,
        "-m",
        "atoll.cli.main",
        "devnet",
        "run",
        "--folder",
        str(folder),
        *size,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as runner:
        assert runner.stderr is not None
        assert any("each a process of its own" in line for line in runner.stderr)
        started = started_by(runner.pid)
        assert any("anvil" in row.command for row in started)
        assert sum("multiprocessing" in row.command for row in started) >= 3  # two of them members
        pids = {row.pid for row in started}
        runner.send_signal(number)
        runner.stderr.read()
        runner.wait()
    deadline = time.monotonic() + GONE_WITHIN_SECONDS
    while left := [r for r in living() if r.pid in pids or r.group in pids]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
