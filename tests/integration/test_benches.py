"""Benches that no other test runs still run, in their smallest setting."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SMALL = ("--width", "64", "--layers", "1", "--seq", "16", "--batch", "2", "--steps", "1")


@pytest.mark.parametrize("mode", ["native", "exact"])
def test_a_mode_of_the_numerics_bench_takes_its_steps(mode: str) -> None:
    command = [sys.executable, str(BENCH / "numerics.py"), "--mode", mode, *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["step_ms"] > 0
