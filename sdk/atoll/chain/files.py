"""New files, whole or not there, and their owner's alone."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_once(path: Path, data: bytes) -> None:
    """Writes a file that is not there. Raises FileExistsError where it is, and OSError."""
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


def write_beside(path: Path, data: bytes) -> Path:
    """A new file in the path's folder with that content, on the disk. Raises OSError."""
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
