"""How long whole networks are waited for: what hangs fails a test, and a slow machine does not."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Final

PATIENCE: Final = 2400.0
"""Seconds; pytest ends a test somewhat later (pyproject.toml)."""
STILL_SECONDS: Final = 1200.0
"""In which nothing moves: longer than any window in which everybody only waits."""
LOOK_SECONDS: Final = 1.0


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
