"""Blocks as files in a folder that several processes share.

Rule of this file: a block is visible only whole. It is written beside its place, synced, then
renamed into it, so a process killed at any moment leaves at most a stray temporary file. Names are
digests, so two writers of one block agree on every byte.

    blocks/3f/3f9a…   one file a block, named by its SHA-256 in hex
    tmp/              what is being written; marks of work in progress, locked by whoever does it
    quota             bytes that all blocks may take, in decimal; absent for no bound
    gc.lock           held shared while a block is claimed, exclusively while some are removed
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import math
import mmap
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from atoll.errors import DiskFull, StorageError
from atoll.files import durable_rename, sync_path
from atoll.storage.direct import Buffers, OutFile, read_into, sync_file_system

_DIGEST_HEX: Final = 64
_BUFFERS: Final = 8  # as many blocks as one fetch has under way
_BUFFER_BYTES: Final = 2 << 20  # the largest block
_MANY: Final = 8  # files that are synced sooner together with all others than one by one


@dataclass(frozen=True, slots=True)
class BlockFile:
    """A block on disk: digest, size in bytes, and when it was last written, claimed or read."""

    digest: bytes
    size: int
    used_at: float


class BlockFolder:
    """The files of one folder.

    Args:
        root: the folder; created if it is missing.
        sync: whether a block reaches the disk before `write` returns.
    """

    def __init__(self, root: Path, *, sync: bool) -> None:
        self.root = root
        self._sync = sync
        self._blocks = root / "blocks"
        self._tmp = root / "tmp"
        self._buffers = Buffers(_BUFFERS, _BUFFER_BYTES)
        self._mark = os.urandom(4).hex()
        self._serial = itertools.count()
        with disk_errors(root):
            self._blocks.mkdir(parents=True, exist_ok=True)
            self._tmp.mkdir(exist_ok=True)
            (root / "gc.lock").touch()

    def size(self, digest: bytes) -> int | None:
        """The size of a block that is here, else None."""
        with disk_errors(self.root):
            try:
                return self._path(digest).stat().st_size
            except FileNotFoundError:
                return None

    def claim(self, digest: bytes) -> int | None:
        """The size of a block that is here, which now counts as just used, else None."""
        path = self._path(digest)
        if not os.path.exists(path):  # noqa: PTH110 (pathlib takes five times as long)
            return None
        with self.locked(shared=True), disk_errors(self.root):
            try:
                os.utime(path)
                return path.stat().st_size
            except FileNotFoundError:
                return None

    def read(self, digest: bytes) -> bytes | None:
        """The bytes of a block, unchecked, or None where it is not here."""
        with disk_errors(self.root):
            try:
                return self._path(digest).read_bytes()
            except FileNotFoundError:
                return None

    def read_at(self, digest: bytes, offset: int, size: int) -> bytes | None:
        """At most so many bytes of a block, unchecked, or None where it is not here."""
        with disk_errors(self.root):
            try:
                file = os.open(self._path(digest), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                return os.pread(file, size, offset)
            finally:
                os.close(file)

    def read_into(self, digest: bytes, buffer: mmap.mmap) -> int | None:
        """Reads a block, unchecked; its size, cut to the buffer's, or None where it is not here."""
        with disk_errors(self.root):
            try:
                return read_into(self._path(digest), buffer)
            except FileNotFoundError:
                return None

    def write(self, digest: bytes, block: bytes | memoryview, *, folder_sync: bool = True) -> bool:
        """Makes a block visible; returns whether it was new.

        With `folder_sync` False the caller calls `sync_folders` before it relies on the block.

        Raises:
            DiskFull: no room; nothing was left behind.
        """
        partial = self.stage(digest, block)
        if partial is None:
            return False
        self.publish({digest: partial})
        if folder_sync:
            self.sync_folders([digest])
        return True

    def stage(self, digest: bytes, block: bytes | memoryview) -> Path | None:
        """Writes a block beside its place, for `publish`; None where the block is here already.

        What is here and was damaged, or torn by a power cut, is replaced: whoever has the bytes
        is not to find out later, when they are gone, that the disk has others.

        Raises:
            DiskFull: as `write`.
        """
        if self.claim(digest) == len(block) and self.read(digest) == bytes(block):
            return None
        partial = self._tmp / self.unique_name()
        with disk_errors(self.root):
            try:
                with closing(OutFile(partial)) as out:
                    self._write_block(out, block)
            except BaseException:  # cancelled or out of room: no part of a block stays
                partial.unlink(missing_ok=True)
                raise
        return partial

    def publish(self, staged: Mapping[bytes, Path]) -> None:
        """Makes staged blocks visible once they are on the disk; what fails is removed.

        The caller calls `sync_folders` before it relies on them.
        """
        with disk_errors(self.root):
            try:
                self._sync_paths(list(staged.values()))
                for digest, partial in staged.items():
                    self._move(partial, self._path(digest))
            except BaseException:
                self.unstage(staged)
                raise

    def unstage(self, staged: Mapping[bytes, Path]) -> None:
        """Removes staged blocks that are not to become visible."""
        for partial in staged.values():
            partial.unlink(missing_ok=True)

    def remove(self, digest: bytes, unused_since: float) -> int:
        """Removes a block not used since the given time; returns the bytes freed, else 0.

        The caller holds `locked(shared=False)`, so nobody can claim the block meanwhile.
        """
        path = self._path(digest)
        with disk_errors(self.root), suppress(FileNotFoundError):
            status = path.stat()
            if _used_at(status) < unused_since:
                path.unlink()
                return status.st_size
        return 0

    def discard(self, digest: bytes) -> None:
        """Removes a block that is known to be damaged."""
        with disk_errors(self.root):
            self._path(digest).unlink(missing_ok=True)

    def scan(self) -> Iterator[BlockFile]:
        """Every block, in no particular order; blocks that come or go meanwhile may be missed."""
        with disk_errors(self.root):
            for folder in sorted(self._blocks.iterdir()):
                with os.scandir(folder) as files:
                    for file in files:
                        # Removed since it was listed, or a name that is none of ours.
                        with suppress(FileNotFoundError, ValueError):
                            if len(file.name) == _DIGEST_HEX:
                                status = file.stat()
                                digest = bytes.fromhex(file.name)
                                yield BlockFile(digest, status.st_size, _used_at(status))

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Marks work in progress: `held_since` tells every process when the oldest began."""
        unlocked = self._tmp / self.unique_name()
        marker = unlocked.with_suffix(".holding")
        with disk_errors(self.root):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(unlocked, flags, 0o666)
        try:
            with disk_errors(self.root):
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # until the work or this process ends
                unlocked.rename(marker)  # so that a marker without a lock is of work that ended
            yield
        finally:
            for path in (unlocked, marker):
                path.unlink(missing_ok=True)
            os.close(descriptor)

    def now(self) -> float:
        """The time as the file system stamps it, which lags the system's clock by some ticks."""
        probe = self._tmp / self.unique_name()
        with disk_errors(self.root):
            try:
                probe.touch()
                return probe.stat().st_mtime
            finally:
                probe.unlink(missing_ok=True)

    def held_since(self) -> float:
        """When the oldest work in progress began; infinity if there is none.

        What a killed process had in progress is not.
        """
        with disk_errors(self.root):
            markers = filter(_is_locked, self._tmp.glob("*.holding"))
            return min(map(_modified_at, markers), default=math.inf)

    def quota(self) -> int | None:
        """What `set_quota` was last told by any process.

        Raises:
            StorageError: the file says no number.
        """
        with disk_errors(self.root):
            try:
                return int((self.root / "quota").read_text(encoding="ascii"))
            except FileNotFoundError:
                return None
            except ValueError as error:
                raise StorageError(
                    f"{self.root / 'quota'} does not hold a number of bytes",
                    next_step="correct it, or remove it for no quota",
                ) from error

    def set_quota(self, quota_bytes: int | None) -> None:
        """Remembers the quota for every process; None for no bound."""
        path, partial = self.root / "quota", self._tmp / self.unique_name()
        with disk_errors(self.root):
            if quota_bytes is None:
                path.unlink(missing_ok=True)
                return
            partial.write_text(str(quota_bytes), encoding="ascii")
            durable_rename(partial, path)  # a torn one would be refused at every start

    def clear_stray(self, older_than_s: float) -> None:
        """Removes what killed processes left in `tmp/`; work may be in progress for longer."""
        with disk_errors(self.root):
            for path in self._tmp.iterdir():
                is_old = _modified_at(path) <= time.time() - older_than_s
                if is_old and not _is_locked(path):
                    path.unlink(missing_ok=True)

    @contextmanager
    def locked(self, *, shared: bool) -> Iterator[None]:
        """Holds `gc.lock`, against other threads as well as other processes."""
        descriptor = os.open(self.root / "gc.lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def creating(self, path: Path) -> Iterator[OutFile]:
        """A new file; where this folder syncs, it is on the disk when the context ends."""
        out = OutFile(path)
        try:
            yield out
            if self._sync:
                out.sync()
        finally:
            out.close()

    def sync_folders(self, digests: Iterable[bytes]) -> None:
        """Makes the names of blocks, and of those beside them, durable where this folder syncs."""
        with disk_errors(self.root):
            self._sync_paths(list({self._path(digest).parent for digest in digests}))

    def unique_name(self) -> str:
        """A file name no other thread or process uses."""
        return f"{os.getpid()}-{self._mark}-{next(self._serial)}"

    def _sync_paths(self, paths: Sequence[Path]) -> None:
        if not self._sync:
            return
        if len(paths) < _MANY or not sync_file_system(self.root):
            for path in paths:
                sync_path(path)

    def _write_block(self, out: OutFile, block: bytes | memoryview) -> None:
        buffer = self._buffers.aligned(block)
        if buffer is None:
            out.write(block, 0)
            return
        try:
            out.write(memoryview(buffer)[: len(block)], 0)
        finally:
            self._buffers.release(buffer)

    @staticmethod
    def _move(partial: Path, path: Path) -> None:
        try:
            partial.replace(path)
        except FileNotFoundError:  # the first block of its folder
            path.parent.mkdir(exist_ok=True)
            partial.replace(path)

    def _path(self, digest: bytes) -> Path:
        name = digest.hex()
        return self._blocks / name[:2] / name


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _is_locked(path: Path) -> bool:
    """Whether anybody has a file's lock, this process included."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _used_at(status: os.stat_result) -> float:
    return max(status.st_mtime, status.st_atime)


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turns the operating system's refusals into ours."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"no room left on the disk of {where}",
                next_step="free some space, or run `atoll store gc`",
            ) from error
        raise StorageError(f"cannot use {where}: {error.strerror}") from error
