"""How much the blocks of a store may take, of the disk and of its quota."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from typing import Final

from atoll.errors import DiskFull
from atoll.storage.blocks import BlockFolder, disk_errors
from atoll.storage.garbage_collection import GarbageCollector

QUOTA_GRACE_S: Final = 60.0  # as `GRACE_S`, where the alternative is that nothing more fits


@dataclass(frozen=True, slots=True)
class Usage:
    """What a store holds."""

    blocks: int
    bytes: int


class Quota:
    """Makes room for blocks before they are written, and refuses what does not fit.

    Args:
        folder: where the blocks are.
        collector: removes what nothing keeps.
        limit: bytes that the blocks may take; None for what the folder says.

    Attributes:
        limit: bytes that the blocks may take; None for no bound.
    """

    def __init__(self, folder: BlockFolder, collector: GarbageCollector, limit: int | None) -> None:
        self._folder, self._collector = folder, collector
        self.limit = limit or folder.quota()
        self._room = 0  # bytes that may be written before the folder is looked at again
        self._room_lock = threading.Lock()

    def set(self, limit: int | None) -> None:
        """Bounds what the blocks may take, for everyone who opens this folder from now on."""
        self._folder.set_quota(limit)
        self.limit = limit

    def usage(self) -> Usage:
        """Counts blocks and their bytes; reads the whole folder's listing."""
        sizes = [block.size for block in self._folder.scan()]
        return Usage(len(sizes), sum(sizes))

    def has_room(self, size: int) -> bool:
        """Whether so many bytes fit on the disk, and in the quota, for which it may collect."""
        if not self._fits_after_collection(size):
            return False
        if self.limit is None or self.usage().bytes + size <= self.limit:
            return True
        kept = self._collector.collect(self.limit * 7 // 8 - size, QUOTA_GRACE_S).kept_bytes
        return kept + size <= self.limit

    def make_room(self, size: int) -> None:
        """Counts `size` bytes against the quota, collecting when it is reached.

        Each process looks at the folder again after writing a sixteenth of the quota, so several
        together may overshoot by that much each. Where the disk is full, the same gives way; what
        does not fit then, the disk refuses.
        """
        with self._room_lock:
            if not self._fits_after_collection(size):
                self._collector.drop_spare(size - self._free())
            if self.limit is None:
                return
            if self._room < size:
                held = self.usage().bytes
                if held + size > self.limit:
                    held = self._collector.collect(
                        self.limit * 7 // 8 - size, QUOTA_GRACE_S
                    ).kept_bytes
                if held + size > self.limit:
                    held -= self._collector.drop_spare(held + size - self.limit)
                if held + size > self.limit:
                    raise DiskFull(
                        f"the store's quota of {self.limit} bytes is full of pinned content",
                        next_step="raise the quota, or end pins: see `atoll store pin`",
                    )
                self._room = max(size, min(self.limit - held, self.limit // 16))
            self._room -= size

    def _fits_after_collection(self, size: int) -> bool:
        """Whether the disk has so many bytes, for which it collects."""
        free = self._free()
        if size <= free:
            return True
        held = self.usage().bytes
        if size > free + held:  # whatever went, it would go for nothing
            return False
        self._collector.collect(held * 7 // 8 - size, QUOTA_GRACE_S)
        return size <= self._free()

    def _free(self) -> int:
        with disk_errors(self._folder.root):
            return shutil.disk_usage(self._folder.root).free
