"""Processes forked from this one, each with one thing to do and a limit of processor time.

On a busy machine everything takes longer, but not more of the processor. Real time is limited too,
generously: a process may also wait for something that never comes.
"""

from __future__ import annotations

import math
import os
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

POLL_SECONDS = 0.002
PATIENCE = 20
"""Times its processor time that a process may take altogether."""
BROKEN = 99
What = TypeVar("What")


@dataclass(frozen=True, slots=True)
class Ended(Generic[What]):
    """A fork that has ended; `code` is None where its time was up, `said` what it left in `by`."""

    what: What
    code: int | None
    said: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _Fork(Generic[What]):
    what: What
    pid: int
    home: Path
    started: float
    limit: float


class Forks(Generic[What]):
    """At most `jobs` at once.

    Rule: a fork leads a process group of its own, which ends with it, and its folder is removed.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._running: list[_Fork[What]] = []

    def start(self, what: What, limit: float, live: Callable[[Path], int]) -> None:
        """Forks; the child's exit code is what `live` returns for its folder.

        Args:
            limit: seconds of processor time.
        """
        home = Path(tempfile.mkdtemp(prefix="mutant-"))
        pid = os.fork()
        if pid == 0:
            _become(home, limit, live)
        self._running.append(_Fork(what, pid, home, time.monotonic(), PATIENCE * limit))

    def wait(self, *, for_all: bool = False) -> list[Ended[What]]:
        """What has ended by the time that there is room for another, or that none is left."""
        ended: list[Ended[What]] = []
        while len(self._running) > (0 if for_all else self._jobs - 1):
            for fork in list(self._running):
                pid, status = os.waitpid(fork.pid, os.WNOHANG)
                seconds = time.monotonic() - fork.started
                if pid == 0 and seconds <= fork.limit:
                    continue
                self._running.remove(fork)
                code = _exit_code(status) if pid else None
                ended.append(_collect(fork, code, seconds, reaped=bool(pid)))
            time.sleep(POLL_SECONDS)
        return ended


def allow(seconds: float) -> None:
    """In a fork: from here on it has so much processor time, unless that is said anew."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _exit_code(status: int) -> int | None:
    """None where it was ended for its time."""
    code = os.waitstatus_to_exitcode(status)
    return None if code in {-signal.SIGXCPU, -signal.SIGPROF, -signal.SIGKILL} else code


def _collect(fork: _Fork[What], code: int | None, seconds: float, *, reaped: bool) -> Ended[What]:
    with suppress(ProcessLookupError):  # where nothing outlived it
        os.killpg(fork.pid, signal.SIGKILL)
    if not reaped:
        os.waitpid(fork.pid, 0)
    by = fork.home / "by"
    said = by.read_text("utf-8") if by.exists() else ""
    shutil.rmtree(fork.home, ignore_errors=True)
    if code == BROKEN:
        raise RuntimeError(f"{fork.what}: {said}")
    return Ended(fork.what, code, said, seconds)


def _become(home: Path, limit: float, live: Callable[[Path], int]) -> None:
    os.setpgid(0, 0)
    seconds = math.ceil(limit)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    code = BROKEN
    try:
        code = live(home)
    except BaseException:
        (home / "by").write_text(traceback.format_exc(), "utf-8")
    finally:
        os._exit(code)
