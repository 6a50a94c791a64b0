"""The units for systemd, looked at by systemd itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.test_deploy_files import DEPLOY


def verified(program: str, unit: Path) -> str:
    """What systemd has to say against a unit."""
    command = [program, "verify", "--man=no", "--recursive-errors=no", str(unit)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("role", ["node", "verifier"])
def test_systemd_finds_no_fault_with_the_unit(role: str, tmp_path: Path) -> None:
    """As its own comment says to use it: for a verifier, with the other word in ExecStart."""
    program = shutil.which("systemd-analyze")
    assert program, "this test needs systemd-analyze, of the Debian package `systemd`"
    text = (DEPLOY / "atoll-node@.service").read_text()
    here = text.replace("/opt/atoll/.venv/bin/atoll node", f"{sys.executable} {role}")
    assert here != text
    unit = tmp_path / f"atoll-{role}@.service"
    unit.write_text(here)
    assert verified(program, unit) == ""
    unit.write_text(here.replace("Restart=always", "Restart=sometimes"))
    assert "sometimes" in verified(program, unit)
