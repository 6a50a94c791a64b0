"""A folder that another process has."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.errors import ConfigError
from atoll.service.lock import LOCK_NAME, hold_folder, holder_of

HOLDER = """
import signal, sys
from pathlib import Path
from atoll.service.lock import hold_folder
with hold_folder(Path(sys.argv[1])):
    print("held", flush=True)
    signal.pause()
"""


def test_a_refused_start_leaves_the_first_one_s_name(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None and first.stdout.readline() == b"held\n"
        with (
            pytest.raises(ConfigError, match=f"process {first.pid} runs in"),
            hold_folder(tmp_path),
        ):
            pass
        assert holder_of(tmp_path) == first.pid
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert holder_of(tmp_path) is None
    assert (tmp_path / LOCK_NAME).stat().st_mode & 0o077 == 0
