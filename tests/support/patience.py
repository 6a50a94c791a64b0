"""How long whole networks are waited for: what hangs fails a test, and a slow machine does not."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PATIENCE: Final = 2400.0
"""Seconds of one command; pytest ends a test somewhat later (pyproject.toml)."""
STILL_SECONDS: Final = 1200.0
"""In which nothing moves: longer than any window in which everybody only waits."""
AT_MOST_SECONDS: Final = 4 * 3600
"""Of a whole test: what goes in a circle moves, too."""
LOOK_SECONDS: Final = 1.0
SELDOM_SECONDS: Final = 10.0
"""Between two looks at the folders of a whole network."""
JOURNALS: Final = ("journal.sqlite*",)
"""What changes with whatever a member has done."""


def set_alarm(seconds: float) -> None:
    """The one that pytest-timeout ends a test with, if it does; nobody else is there to hear it."""
    if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        signal.setitimer(signal.ITIMER_REAL, seconds)


class StillnessAlarm:
    """Has a test end by pytest's own alarm once nothing has moved for so long.

    Args:
        arm: sets the alarm anew.
    """

    def __init__(
        self, folder: Path, names: tuple[str, ...], arm: Callable[[float], None] = set_alarm
    ) -> None:
        self._folder, self._names, self._arm = folder, names, arm
        self._seen, self._ended = _sizes(folder, names), threading.Event()
        self._until = time.monotonic() + AT_MOST_SECONDS

    def look(self) -> None:
        """Sets the alarm anew where something has moved since the last look."""
        sizes = _sizes(self._folder, self._names)
        if sizes != self._seen and not self._ended.is_set() and time.monotonic() < self._until:
            self._seen = sizes
            self._arm(STILL_SECONDS)

    def run(self) -> None:
        """Looks until `end`."""
        while not self._ended.wait(SELDOM_SECONDS):
            self.look()

    def end(self) -> None:
        self._ended.set()


@contextmanager
def ended_when_still(folder: Path, names: tuple[str, ...] = JOURNALS) -> Iterator[None]:
    """What is in it goes on while any file of the folder changes, however long that takes."""
    alarm = StillnessAlarm(folder, names)
    thread = threading.Thread(target=alarm.run, name="stillness", daemon=True)
    thread.start()
    try:
        yield
    finally:
        alarm.end()
        thread.join()


def wait_while_it_moves(
    process: subprocess.Popen[bytes],
    folder: Path,
    names: tuple[str, ...],
    still_s: float = STILL_SECONDS,
) -> int:
    """The exit code of what goes on, however long it takes, while any file of it changes.

    Args:
        names: patterns of files that change with what is achieved: a log grows whatever happens.

    Raises:
        subprocess.TimeoutExpired: none has changed for so long.
    """
    seen, since = _sizes(folder, names), time.monotonic()
    while True:
        try:
            return process.wait(min(LOOK_SECONDS, still_s))
        except subprocess.TimeoutExpired:
            sizes = _sizes(folder, names)
            if sizes != seen:
                seen, since = sizes, time.monotonic()
            elif time.monotonic() - since > still_s:
                raise


def _sizes(folder: Path, names: tuple[str, ...]) -> dict[Path, tuple[int, int]]:
    found: dict[Path, tuple[int, int]] = {}
    for path in (path for name in names for path in folder.rglob(name)):
        try:
            status = path.stat()
        except FileNotFoundError:  # a database's journal comes and goes
            continue
        found[path] = status.st_size, status.st_mtime_ns
    return found
