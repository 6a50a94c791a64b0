"""What runs the tests says how they ended, and refuses what it cannot run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORGE = ROOT / "contracts" / "tools" / "forge"


def program(path: Path, code: int) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\nexit {code}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("code", [0, 1, 3])
def test_forge_ends_as_the_program_does_whatever_its_launcher_says(
    tmp_path: Path, code: int
) -> None:
    (tmp_path / "tools").mkdir()
    tool, modules = shutil.copy2(FORGE, tmp_path / "tools"), tmp_path / "node_modules"
    program(modules / ".bin" / "forge", 0)
    program(modules / "@foundry-rs" / "forge-some-machine" / "bin" / "forge", code)
    assert subprocess.run([tool, "test"], check=False).returncode == code


def test_a_part_that_is_not_known_is_refused_with_the_known_ones() -> None:
    command = [sys.executable, ROOT / ".ci" / "tests.py", "bogus"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no part is called bogus: there are networks, contracts" in done.stdout
