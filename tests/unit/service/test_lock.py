"""One process a folder; who it is stands in the lock, and a refused start changes nothing."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_nobody_runs_where_nobody_ran(tmp_path: Path) -> None:
    assert holder_of(tmp_path) is None
    assert holder_of(tmp_path / "no folder") is None


def test_the_holder_is_known_while_it_holds(tmp_path: Path) -> None:
    with hold_folder(tmp_path):
        assert holder_of(tmp_path) == os.getpid()
    assert holder_of(tmp_path) is None
    with hold_folder(tmp_path):
        assert holder_of(tmp_path) == os.getpid()


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


def test_who_looks_whether_somebody_runs_refuses_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`atoll status` in the very moment in which a service starts."""
    looker = os.open(tmp_path / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(looker, fcntl.LOCK_SH)
    flock = fcntl.flock

    def gone_after_one_try(file: Any, how: int) -> None:
        try:
            flock(file, how)
        finally:
            flock(looker, fcntl.LOCK_UN)

    monkeypatch.setattr(fcntl, "flock", gone_after_one_try)
    with hold_folder(tmp_path):
        assert holder_of(tmp_path) == os.getpid()
    os.close(looker)
