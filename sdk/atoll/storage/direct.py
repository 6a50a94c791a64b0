"""Bulk bytes to and from the disk, past the page cache.

A block is hashed once and then rests. Through the page cache it would be copied once more, push out
what the machine trains on, and leave its writing to the sync that someone waits for. So whole pages
in a page-aligned buffer go straight to the device (`O_DIRECT`). What is not made of whole pages,
and file systems that have no such way, take the usual one: same calls, same bytes.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

_O_DIRECT: Final = getattr(os, "O_DIRECT", None)
_SYNCFS: Final = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)  # Linux has it
_PAGE: Final = 4096
_WORTH: Final = 1 << 16  # bytes from which a copy costs less than the cache


class Buffers:
    """Page-aligned buffers that threads acquire and release.

    Args:
        count: how many there are; made when first needed.
        size: bytes of each.
    """

    def __init__(self, count: int, size: int) -> None:
        self._size = size
        self._free: SimpleQueue[mmap.mmap | None] = SimpleQueue()
        for _ in range(count):
            self._free.put(None)

    def acquire(self) -> mmap.mmap:
        """A buffer nobody else holds; waits for one to come back."""
        return self._free.get() or self._make()

    def release(self, buffer: mmap.mmap) -> None:
        """Frees a buffer for others; no view of it may be used any more."""
        self._free.put(buffer)

    def aligned(self, data: bytes | memoryview) -> mmap.mmap | None:
        """A buffer that starts with a copy of `data`, to be released.

        None where `data` would gain nothing by it, or no buffer is free just now.
        """
        if isinstance(data, memoryview) or len(data) % _PAGE or len(data) < _WORTH:
            return None
        try:
            buffer = self._free.get_nowait() or self._make()
        except Empty:
            return None
        buffer[: len(data)] = data
        return buffer

    @contextmanager
    def borrowed(self) -> Iterator[mmap.mmap]:
        """A buffer until the context ends."""
        buffer = self.acquire()
        try:
            yield buffer
        finally:
            self.release(buffer)

    def _make(self) -> mmap.mmap:
        # Private: a forked child writes into a copy of its own.
        buffer = mmap.mmap(-1, self._size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            # A device takes a few hundred pages in one request, however large they are.
            with _refusal_ignored():
                buffer.madvise(mmap.MADV_HUGEPAGE)
        return buffer


class OutFile:
    """A new file that several threads write by offset; every method raises OSError as it comes.

    Args:
        path: where; nothing may be there.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CLOEXEC
        self._plain = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        self._direct = _open_direct(path, flags)

    def reserve(self, size: int) -> None:
        """Makes the file `size` bytes long, and room for them, before they are written.

        Direct writes that lengthen a file, ext4 does one at a time; within it, side by side.
        """
        if self._direct is not None and size:
            with _refusal_ignored():
                os.posix_fallocate(self._plain, 0, size)

    def write(self, data: bytes | memoryview, offset: int) -> None:
        """Writes all of `data`: directly where it is whole pages from the start of a buffer."""
        view = memoryview(data)
        whole = isinstance(view.obj, mmap.mmap) and len(view) % _PAGE == offset % _PAGE == 0
        if whole and view and self._direct is not None:
            with _refusal_ignored():
                written = os.pwrite(self._direct, view, offset)
                view, offset = view[written:], offset + written
        while view:
            written = os.pwrite(self._plain, view, offset)
            view, offset = view[written:], offset + written

    def sync(self) -> None:
        """Returns when everything written is on the disk."""
        os.fsync(self._plain)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._plain)
        if self._direct is not None:
            os.close(self._direct)


def read_into(path: Path, buffer: mmap.mmap) -> int:
    """Reads a file's start; returns how many bytes were there, at most the buffer's size.

    Raises:
        OSError: as it comes; FileNotFoundError where nothing is there.
    """
    with memoryview(buffer) as view:
        filled, size = _read_direct(path, view)
        if filled == size > 0:
            return filled
        with path.open("rb", buffering=0) as rest:
            rest.seek(filled)
            while filled < len(view) and (read := rest.readinto(view[filled:])):
                filled += read
    return filled


def sync_file_system(path: Path) -> bool:
    """Returns True when the whole file system of `path` is on the disk; False if there is no way.

    The disk is flushed once, where syncing many files flushes it for each.
    """
    if _SYNCFS is None:
        return False
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _SYNCFS(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
    return True


def _read_direct(path: Path, view: memoryview) -> tuple[int, int]:
    """Reads the whole pages of a file's start directly; returns their bytes and the file's."""
    direct = _open_direct(path, os.O_RDONLY | os.O_CLOEXEC)
    if direct is None:
        return 0, 0
    try:
        size = min(os.fstat(direct).st_size, len(view))
        with _refusal_ignored():
            # No further: what lies behind a file's end the kernel would fill with zeros.
            return os.preadv(direct, [view[: size - size % _PAGE]], 0), size
    finally:
        os.close(direct)
    return 0, size


def _open_direct(path: Path, flags: int) -> int | None:
    if _O_DIRECT is None:
        return None
    with _refusal_ignored():
        return os.open(path, flags | _O_DIRECT)
    return None


@contextmanager
def _refusal_ignored() -> Iterator[None]:
    """What the device or file system says of a way that it does not offer."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
