"""Who runs in a service's folder: one process, which holds a lock for as long as it lives.

Rule of this file: the lock is taken before anything is written, and what it says is read only from
the lock: a process that ended, however it ended, holds none.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from atoll.errors import ConfigError

LOCK_NAME = "lock"
_UNKNOWN = 0


class FolderHeld(ConfigError):
    """Another process runs in the folder; once it has ended, the same start may succeed."""

    exit_code = 6


@contextmanager
def hold_folder(data_dir: Path) -> Iterator[None]:
    """Holds the folder; the process's id stands in the lock's file.

    Raises:
        FolderHeld: another process holds it; nothing was changed.
    """
    path = data_dir / LOCK_NAME
    # Not truncated when opened: until the lock is ours, the file is its holder's.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0) as file:
        while not _locked(file, fcntl.LOCK_EX):
            # Who only looks whether somebody runs holds it too, for a moment, and lets us look.
            if not _locked(file, fcntl.LOCK_SH):
                holder = _pid_in(file.read())
                who = f"process {holder}" if holder != _UNKNOWN else "another process"
                raise FolderHeld(
                    f"{who} runs in {data_dir} already",
                    next_step="stop it first, or give this one a data_dir of its own",
                )
            fcntl.flock(file, fcntl.LOCK_UN)
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        yield


def holder_of(data_dir: Path) -> int | None:
    """The id of the process that holds the folder; None where nobody does."""
    try:
        with (data_dir / LOCK_NAME).open("rb") as file:
            return None if _locked(file, fcntl.LOCK_SH) else _pid_in(file.read())
    except OSError:  # no such folder, or not ours to read: nobody whom we could name
        return None


def _locked(file: BinaryIO | FileIO, how: int) -> bool:
    """Takes the lock if nobody is in the way."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pid_in(text: bytes) -> int:
    return int(text) if text.isdigit() else _UNKNOWN
