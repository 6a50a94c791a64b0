"""However a run is ended, no process of it is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

GONE_WITHIN_SECONDS = 60.0


def processes_of(folder: Path) -> list[str]:
    """The command line of every living process that names the folder, but not the runner's."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "command="], capture_output=True, text=True, check=True
    )
    lines = listed.stdout.splitlines()
    return [line for line in lines if str(folder) in line and "devnet run" not in line]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_runner(number: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    size = ["--providers", "1", "--verifiers", "1", "--rounds", "1"]
    command = [sys.executable, "-m", "atoll.cli", "devnet", "run", "--folder", str(folder), *size]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as runner:
        assert runner.stderr is not None
        assert any("each a process of its own" in line for line in runner.stderr)
        assert len(processes_of(folder)) >= 3  # the chain, a provider, a verifier
        runner.send_signal(number)
        runner.stderr.read()
        runner.wait()
    deadline = time.monotonic() + GONE_WITHIN_SECONDS
    while left := processes_of(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
