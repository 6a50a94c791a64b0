"""What `doctor` says is a command is one."""

from __future__ import annotations

import subprocess
from pathlib import Path

from atoll.service.private import exposed


def test_what_mends_a_mode_is_a_command_whatever_the_path(tmp_path: Path) -> None:
    path = tmp_path / "a key; and so on"
    path.touch()
    path.chmod(0o644)
    found = exposed(path)
    assert found is not None
    subprocess.run(["/bin/sh", "-c", found.mends], check=True)
    assert exposed(path) is None
