"""Blocks on this machine's disk.

Rule of this file: a block is visible only whole. It is written beside its place, synced, then
renamed into it, so a process killed at any moment leaves at most a stray temporary file, and any
number of processes may share one folder. Names are digests, so two writers of one block agree on
every byte.

    blocks/3f/3f9a…   one file a block, named by its SHA-256 in hex
    tmp/              what is being written
"""

from __future__ import annotations

import errno
import io
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from atoll.errors import CorruptBlock, DiskFull, NotFound, StorageError, TooLarge
from atoll.store.cid import RAW, Cid
from atoll.store.unixfs import MAX_BLOCK_BYTES, V1, Added, Profile, build_tree, iter_file


class LocalStore:
    """The blocks in one folder.

    Args:
        root: the folder; created if it is missing.
        sync: whether a block reaches the disk before it counts as stored. Without it blocks survive
            the end of the process, but the last ones may be lost with the power.
    """

    def __init__(self, root: Path | str, *, sync: bool = True) -> None:
        self.root = Path(root)
        self._sync = sync
        self._blocks = self.root / "blocks"
        self._tmp = self.root / "tmp"
        self._serial = itertools.count()
        with _disk_errors(self.root):
            self._blocks.mkdir(parents=True, exist_ok=True)
            self._tmp.mkdir(exist_ok=True)

    def has(self, cid: Cid) -> bool:
        """Whether the block itself is here (its children may not be)."""
        return self._path(cid).exists()

    def block_bytes(self, cid: Cid) -> int | None:
        """The size of a block that is here, else None."""
        try:
            return self._path(cid).stat().st_size
        except FileNotFoundError:
            return None

    def get_block(self, cid: Cid) -> bytes:
        """Reads one block and checks it.

        Raises:
            NotFound: it is not here.
            CorruptBlock: the disk returned other bytes; the block was removed.
        """
        path = self._path(cid)
        with _disk_errors(self.root):
            try:
                block = path.read_bytes()
            except FileNotFoundError:
                raise NotFound(f"{cid} is not in {self.root}") from None
        if not cid.matches(block):
            path.unlink(missing_ok=True)
            raise CorruptBlock(
                f"{cid} was damaged on disk in {self.root} and has been removed",
                next_step="fetch it again, and check the disk",
            )
        return block

    def put_block(self, cid: Cid, block: bytes) -> None:
        """Stores a block under the name it was asked for.

        Raises:
            CorruptBlock: the bytes are not that block.
            TooLarge: more than `MAX_BLOCK_BYTES`.
            DiskFull: no room; nothing was written.
        """
        if len(block) > MAX_BLOCK_BYTES:
            raise TooLarge(f"a block of {len(block)} bytes exceeds {MAX_BLOCK_BYTES}")
        if not cid.matches(block):
            raise CorruptBlock(f"these {len(block)} bytes are not {cid}")
        self._write(cid, block)

    def add_block(self, block: bytes, codec: int = RAW) -> Cid:
        """Stores bytes as one block of the given codec; returns its CID.

        Raises:
            TooLarge, DiskFull: as `put_block`.
        """
        if len(block) > MAX_BLOCK_BYTES:
            raise TooLarge(f"a block of {len(block)} bytes exceeds {MAX_BLOCK_BYTES}")
        cid = Cid.of(block, codec)
        self._write(cid, block)
        return cid

    def add_stream(self, stream: BinaryIO, profile: Profile = V1) -> Added:
        """Stores everything `stream` yields as one file."""
        blocks = 0

        def write(cid: Cid, block: bytes) -> None:
            nonlocal blocks
            blocks += 1
            self._write(cid, block)

        root = build_tree(stream, write, profile)
        return Added(root.cid, root.file_bytes, blocks)

    def add_bytes(self, data: bytes, profile: Profile = V1) -> Cid:
        """Stores bytes as one file; returns its root."""
        return self.add_stream(io.BytesIO(data), profile).cid

    def add_file(self, path: Path | str, profile: Profile = V1) -> Cid:
        """Stores a file from disk, in constant memory; returns its root.

        Raises:
            NotFound: there is no such file.
        """
        try:
            with Path(path).open("rb") as stream:
                return self.add_stream(stream, profile).cid
        except (FileNotFoundError, IsADirectoryError):
            raise NotFound(f"no file at {path}") from None

    def iter_bytes(self, cid: Cid, max_bytes: int) -> Iterator[bytes]:
        """A file's bytes in order, one leaf at a time.

        Raises:
            TooLarge: the file exceeds `max_bytes`; raised before the first byte.
            NotFound, CorruptBlock: a block is missing or damaged.
            MalformedDag: the blocks are not a file.
        """
        return iter_file(self.get_block, cid, max_bytes)

    def read_bytes(self, cid: Cid, max_bytes: int) -> bytes:
        """A whole file, or a single DAG-CBOR block; raises as `iter_bytes`."""
        return b"".join(self.iter_bytes(cid, max_bytes))

    def read_file_to(self, cid: Cid, path: Path | str, max_bytes: int) -> int:
        """Writes a file to `path`, whole or not at all; returns its size.

        Raises:
            As `iter_bytes`, and DiskFull.
        """
        target = Path(path)
        partial = target.with_name(f".{target.name}.{self._unique()}")
        size = 0
        try:
            with _disk_errors(target), partial.open("wb") as out:
                for piece in self.iter_bytes(cid, max_bytes):
                    size += out.write(piece)
                self._flush(out)
                partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        return size

    def _write(self, cid: Cid, block: bytes) -> None:
        path = self._path(cid)
        if self.block_bytes(cid) == len(block):
            return
        partial = self._tmp / self._unique()
        try:
            with _disk_errors(self.root):
                with partial.open("xb") as out:
                    out.write(block)
                    self._flush(out)
                path.parent.mkdir(exist_ok=True)
                partial.replace(path)
                self._flush_folder(path.parent)
        finally:
            partial.unlink(missing_ok=True)

    def _flush(self, out: BinaryIO) -> None:
        out.flush()
        if self._sync:
            os.fsync(out.fileno())

    def _flush_folder(self, folder: Path) -> None:
        if self._sync:
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _path(self, cid: Cid) -> Path:
        name = cid.digest.hex()
        return self._blocks / name[:2] / name

    def _unique(self) -> str:
        return f"{os.getpid()}-{next(self._serial)}-{os.urandom(4).hex()}"


@contextmanager
def _disk_errors(where: Path) -> Iterator[None]:
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
