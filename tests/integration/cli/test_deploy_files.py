"""The units for systemd, looked at by systemd itself; what an image is built with, by a shell."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize(
    ("device", "code", "index"), [("cpu", 0, True), ("cuda", 0, False), ("tpu", 2, False)]
)
def test_the_image_installs_the_torch_of_its_device(
    device: str, code: int, index: bool, tmp_path: Path
) -> None:
    """The Dockerfile's own words, with a pip that says what it was asked for."""
    pip = tmp_path / "pip"
    pip.write_text('#!/bin/sh\necho "$@"\n')
    pip.chmod(0o755)
    (command,) = re.findall(
        r"^RUN (case .*?\[train\]')$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE | re.DOTALL
    )
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "DEVICE": device}
    shell = ["sh", "-c", command]
    done = subprocess.run(shell, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stdout.endswith(".[train]\n" if code == 0 else "")
    assert ("https://download.pytorch.org/whl/cpu" in done.stdout) is index
    assert ("say cpu or cuda" in done.stderr) is (code != 0)
