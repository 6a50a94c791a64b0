"""Processes of this machine: whether one is still who it was, and whether it is frozen.

Rule of this file: an id alone names nobody, since the system gives it to another process once the
first has ended. With the time of its start it does.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path


def started_at(pid: int) -> str:
    """What tells a process from a later one with its id; empty where there is none."""
    return _state_and_start(pid)[1]


def is_frozen(pid: int) -> bool:
    """Whether somebody stopped it (SIGSTOP, Ctrl-Z), so that it does nothing until SIGCONT."""
    return _state_and_start(pid)[0][:1] in {"T", "t"}


def send(pid: int, started: str, *signals: signal.Signals) -> bool:
    """Sends signals to a process that is still the one which started then; whether it was."""
    if not started or started_at(pid) != started:
        return False
    with suppress(ProcessLookupError):
        if not hasattr(os, "pidfd_open"):
            for number in signals:
                os.kill(pid, number)
            return True
        descriptor = os.pidfd_open(pid)
        try:
            # Whom the descriptor names is looked at once more: it cannot become another one's.
            if started_at(pid) == started:
                for number in signals:
                    signal.pidfd_send_signal(descriptor, number)
                return True
        finally:
            os.close(descriptor)
    return False


def _state_and_start(pid: int) -> tuple[str, str]:
    """State and start of a process."""
    try:
        # The name, in brackets, may have blanks and brackets in it.
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ("", "") if Path("/proc/self/stat").exists() else _state_by_ps(pid)
    return words[0], words[19]


def _state_by_ps(pid: int) -> tuple[str, str]:
    """Where there is no /proc, as on macOS."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 (an id)
    except OSError:
        return "", ""
    state, _, start = printed.strip().partition(" ")
    return state, start.strip()
