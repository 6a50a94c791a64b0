"""Who runs in a service's folder: one process, which holds a lock for as long as it lives.

Rule of this file: the lock is taken before anything is written, and what it says is read only from
the lock: a process that ended, however it ended, holds none.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from atoll.errors import ConfigError

LOCK_NAME = "lock"
_UNKNOWN = 0


@contextmanager
def hold_folder(data_dir: Path) -> Iterator[None]:
    """Holds the folder; the process's id stands in the lock's file.

    Raises:
        ConfigError: another process holds it; nothing was changed.
    """
    path = data_dir / LOCK_NAME
    # Not truncated when opened: until the lock is ours, the file is its holder's.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _pid_in(file.read())
            who = f"process {holder}" if holder != _UNKNOWN else "another process"
            raise ConfigError(
                f"{who} runs in {data_dir} already",
                next_step="stop it first, or give this one a data_dir of its own",
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        yield


def holder_of(data_dir: Path) -> int | None:
    """The id of the process that holds the folder; None where nobody does."""
    try:
        with (data_dir / LOCK_NAME).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return _pid_in(file.read())
    except OSError:
        return None
    return None


def _pid_in(text: bytes) -> int:
    return int(text) if text.isdigit() else _UNKNOWN
