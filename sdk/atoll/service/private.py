"""Files that nobody else on this machine may read: keys, passwords, the journal and its secret."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from atoll.errors import ConfigError

OTHERS = stat.S_IRWXG | stat.S_IRWXO
PRIVATE_UMASK = OTHERS
"""What a service creates is its owner's alone."""


@dataclass(frozen=True, slots=True)
class Exposed:
    """A path that others can use: what is wrong, and the command that mends it."""

    path: Path
    text: str
    mends: str


def exposed(path: Path) -> Exposed | None:
    """Why others can read or change the path; None where they cannot, or it is not there."""
    try:
        status = path.stat()
    except OSError:  # not there, or its folder is closed to us: the one who needs it says so
        return None
    is_folder = stat.S_ISDIR(status.st_mode)
    wanted = "700" if is_folder else "600"
    if status.st_uid not in {os.geteuid(), 0}:
        text = f"{path} belongs to user {status.st_uid}, and this is user {os.geteuid()}"
        return Exposed(path, text, shlex.join(["chown", str(os.geteuid()), str(path)]))
    mode = stat.S_IMODE(status.st_mode)
    if mode & OTHERS:
        text = f"{path} has mode {mode:04o}: others can use it"
        return Exposed(path, text, shlex.join(["chmod", wanted, str(path)]))
    return None


def make_private(folder: Path) -> None:
    """Makes a folder, and those above it that are not there, their owner's alone. Raises OSError.

    `mkdir(parents=True)` gives those above it everybody's mode, and a service refuses such a one.
    """
    for place in (*reversed(folder.parents), folder):
        if not place.is_dir():
            place.mkdir(mode=0o700, exist_ok=True)


def private_paths(keystore: Path | None, password: Path | None, data: Path | None) -> list[Path]:
    """What of a service is its owner's alone, as far as it is there."""
    databases = sorted(data.glob("*.sqlite*")) if data is not None else []
    named = [path for path in (keystore, password, data) if path is not None]
    return [path for path in (*named, *databases) if path.exists()]


def require_private(paths: Iterable[Path]) -> None:
    """Raises ConfigError where others can read or change one of the paths."""
    for path in paths:
        fault = exposed(path)
        if fault is not None:
            raise ConfigError(fault.text, next_step=fault.mends)
