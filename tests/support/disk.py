"""What a power cut would leave: only what was synced before it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Disk:
    """Remembers, of each file and folder, what it held when it was last synced.

    A file system that writes more than it was asked for leaves more; none may leave less.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._remember)

    def after_a_power_cut(self, path: Path) -> bytes | None:
        """A file's bytes; empty where only its name was synced, None where that was not."""
        inode = self._names.get(path.parent.stat().st_ino, {}).get(path.name)
        return None if inode is None else self._contents.get(inode, b"")

    def _remember(self, descriptor: int) -> None:
        self._fsync(descriptor)
        synced, inode = Path(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor).st_ino
        if synced.is_dir():
            self._names[inode] = {path.name: path.stat().st_ino for path in synced.iterdir()}
        else:
            self._contents[inode] = synced.read_bytes()
