"""What runs the tests says how they ended, and refuses what it cannot run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import BEYOND, LONGEST_FIRST, NEVERTHELESS

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


def refused(*arguments: str) -> str:
    """What is printed where `make test`, or with a flag less `make test-all`, has no such part."""
    command = [sys.executable, ROOT / ".ci" / "tests.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    return done.stdout.strip()


def test_a_part_that_is_not_known_is_refused_with_the_known_ones() -> None:
    newcomers = "networks, contracts, gas, computing"
    known = f"no part is called bogus: there are {newcomers}"
    assert refused("bogus") == f"{known}, fuzz, proofs, mutants, contracts-mutants"
    assert refused("--newcomer", "bogus") == known
    assert refused("--newcomer", "mutants").endswith(newcomers)


@pytest.mark.parametrize("name", [*BEYOND, *NEVERTHELESS, *LONGEST_FIRST])
def test_a_test_that_a_list_names_exists(name: str) -> None:
    """Else what was moved would be run by `make test` again, or by nobody in time."""
    file, _, test = name.partition("[")[0].partition("::")
    assert (ROOT / "tests" / file).exists()
    assert f"def {test}" in (ROOT / "tests" / file).read_text() if test else not test
