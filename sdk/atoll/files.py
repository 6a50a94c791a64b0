"""Files of which a power cut leaves the whole or nothing, and nothing only before they counted.

Rule of this file: bytes reach the disk before the name that they get, and that name before anyone
is told. A file system that orders the two by itself is not relied on.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path


def write_once(path: Path, data: bytes) -> None:
    """Writes a file that is not there, its owner's alone; once this returns, it is on the disk.

    Raises FileExistsError where it is there, and OSError.
    """
    temporary = write_beside(path, data)
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:  # a disk without links, such as most sticks
        if path.exists():
            raise FileExistsError(path) from None
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def write_beside(path: Path, data: bytes) -> Path:
    """A new file in the path's folder, on the disk and its owner's alone. Raises OSError."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(name).unlink()
        raise
    return Path(name)


def durable_rename(new: Path, path: Path) -> None:
    """Makes `new`, on the same file system, the file at `path`, whatever was there.

    A power cut leaves the one or the other, whole; once this returns, the new one. Raises OSError.
    """
    sync_path(new)
    new.replace(path)
    _sync_folder(path.parent)


def sync_path(path: Path) -> None:
    """Returns when a file, or the names in a folder, are on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    try:
        sync_path(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # that of file systems that sync no folders: some shares
            raise
