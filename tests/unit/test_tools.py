"""What runs the contracts' tests says how they ended."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FORGE = Path(__file__).parents[2] / "contracts" / "tools" / "forge"


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
