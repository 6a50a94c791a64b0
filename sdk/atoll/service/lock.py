"""Who runs in a service's folder: one process, which holds a lock for as long as it lives.

Rule of this file: the lock is taken before anything is written, and what it says is read only from
the lock: a process that ended, however it ended, holds none.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from atoll.errors import ConfigError
from atoll.service.processes import is_frozen, started_at

LOCK_NAME = "lock"
_UNKNOWN = 0
_SERVICE = "service"


class FolderHeld(ConfigError):
    """Another process runs in the folder; once it has ended, the same start may succeed."""

    exit_code = 6


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds a folder.

    Attributes:
        started: tells the process from a later one with its id.
        is_service: whether it is a service, and not a command that works there.
    """

    pid: int
    started: str = ""
    is_service: bool = False

    @property
    def is_frozen(self) -> bool:
        """Whether somebody stopped the process: it answers nothing, and its deadlines pass."""
        return self.pid != _UNKNOWN and is_frozen(self.pid)


@contextmanager
def hold_folder(data_dir: Path, *, is_service: bool = False) -> Iterator[None]:
    """Holds the folder; who we are stands in the lock's file.

    Raises:
        FolderHeld: another process holds it; nothing was changed.
    """
    path = data_dir / LOCK_NAME
    # Not truncated when opened: until the lock is ours, the file is its holder's.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0) as file:
        while not _locked(file, fcntl.LOCK_EX):
            # Who only looks whether somebody runs holds it too, for a moment, and lets us look.
            if not _locked(file, fcntl.LOCK_SH):
                holder = _holder_in(file.read()).pid
                who = f"process {holder}" if holder != _UNKNOWN else "another process"
                raise FolderHeld(
                    f"{who} runs in {data_dir} already",
                    next_step="stop it first, or give this one a data_dir of its own",
                )
            fcntl.flock(file, fcntl.LOCK_UN)
        file.truncate(0)
        me = os.getpid()
        what = _SERVICE if is_service else "command"
        file.write(f"{me} {started_at(me).replace(' ', '_')} {what}".encode())
        yield


def holder_of(data_dir: Path) -> int | None:
    """The id of the process that holds the folder; None where nobody does."""
    holder = holder_in(data_dir)
    return None if holder is None else holder.pid


def holder_in(data_dir: Path) -> LockHolder | None:
    """Who holds the folder; None where nobody does."""
    try:
        with (data_dir / LOCK_NAME).open("rb") as file:
            return None if _locked(file, fcntl.LOCK_SH) else _holder_in(file.read())
    except OSError:  # no such folder, or not ours to read: nobody whom we could name
        return None


def _locked(file: BinaryIO | FileIO, how: int) -> bool:
    """Takes the lock if nobody is in the way."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder_in(text: bytes) -> LockHolder:
    words = text.decode(errors="replace").split()
    if len(words) != 3 or not words[0].isdecimal():
        return LockHolder(_UNKNOWN)
    return LockHolder(int(words[0]), words[1].replace("_", " "), words[2] == _SERVICE)
