"""Whole files into a store and out of it, several blocks under way at once.

Reading, hashing and writing each leave Python's lock, so threads do them side by side: a file moves
as fast as the slowest of disk and hash, in the memory of a few blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from mmap import mmap
from types import TracebackType
from typing import Final, Self

from atoll.store.blocks import BlockFolder
from atoll.store.cid import Cid
from atoll.store.direct import Buffers, OutFile
from atoll.store.unixfs import (
    MAX_BLOCK_BYTES,
    Buffer,
    Child,
    Entry,
    FileBuilder,
    Profile,
    Readable,
    encode_leaf,
    fill,
)

_THREADS: Final = 5  # most of them wait for the disk, which more of them made no faster
_AHEAD: Final = 8


class BulkWriter:
    """Stores the blocks of trees, writing behind its caller.

    All of them are stored when its context ends without an error.

    Args:
        folder: where the blocks go.
        make_room: called with the bytes of each block before it is written.
    """

    def __init__(self, folder: BlockFolder, make_room: Callable[[int], None]) -> None:
        self._folder = folder
        self._make_room = make_room
        self._pool = ThreadPoolExecutor(_THREADS, "atoll-store")
        self._pending: deque[Future[None]] = deque()
        self._buffers = Buffers(_AHEAD, MAX_BLOCK_BYTES)
        self._touched: dict[int, bytes] = {}  # of each folder with new names, one of them
        self.blocks = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                for written in self._pending:
                    written.result()
                # One by one, two hundred folders would wait for the disk longer than their files.
                list(self._pool.map(self._folder.sync_folder, list(self._touched.values())))
        finally:
            self._pool.shutdown(cancel_futures=True)

    def put(self, cid: Cid, block: Buffer) -> None:
        """Stores one block of a tree; errors as `add_file`, also those of earlier blocks."""
        self._submit(cid, block, None)

    def add_file(self, stream: Readable, profile: Profile) -> Entry:
        """Stores everything `stream` yields as one file.

        Raises:
            DiskFull: no room.
            OSError: the stream cannot be read.
        """
        builder = FileBuilder(self.put, profile)
        leaves: deque[Future[Entry]] = deque()
        buffer, size = self._fill(stream, profile)
        first = size < profile.chunk_bytes
        while size == profile.chunk_bytes:
            self._count(size)
            leaves.append(self._pool.submit(self._store_leaf, buffer, size, profile))
            while leaves[0].done() and len(leaves) > 1:
                builder.add_leaf(leaves.popleft().result())
            buffer, size = self._fill(stream, profile)
        for leaf in leaves:
            builder.add_leaf(leaf.result())
        if size or first:
            # Hashed here, so that of many small files none waits for the disk of the one before.
            last, block = _make_leaf(buffer, size, profile)
            builder.add_leaf(last)
            self._submit(last.cid, block, buffer)
        else:
            self._buffers.give(buffer)
        return builder.finish()

    def _fill(self, stream: Readable, profile: Profile) -> tuple[mmap, int]:
        buffer = self._buffers.take()
        return buffer, fill(stream, memoryview(buffer)[: profile.chunk_bytes])

    def _store_leaf(self, buffer: mmap, size: int, profile: Profile) -> Entry:
        try:
            leaf, block = _make_leaf(buffer, size, profile)
            self._write(leaf.cid, block)
        finally:
            self._buffers.give(buffer)
        return leaf

    def _submit(self, cid: Cid, block: Buffer, buffer: mmap | None) -> None:
        self._count(len(block))
        while self._pending and (len(self._pending) >= _AHEAD or self._pending[0].done()):
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self._write_from, cid, block, buffer))

    def _count(self, size: int) -> None:
        self._make_room(size)
        self.blocks += 1

    def _write_from(self, cid: Cid, block: Buffer, buffer: mmap | None) -> None:
        try:
            self._write(cid, block)
        finally:
            if buffer is not None:
                self._buffers.give(buffer)

    def _write(self, cid: Cid, block: Buffer) -> None:
        self._folder.write(cid.digest, block, folder_sync=False)
        self._touched[cid.digest[0]] = cid.digest


def _make_leaf(buffer: mmap, size: int, profile: Profile) -> tuple[Entry, Buffer]:
    block, codec = encode_leaf(memoryview(buffer)[:size], profile)
    return Entry(profile.name_block(block, codec), size, len(block)), block


def write_parts(
    parts: Iterable[bytes | Child], out: OutFile, read_leaf: Callable[[Child, mmap], int]
) -> int:
    """Writes the parts of a file (see `iter_parts`) to their places; returns the file's size.

    Args:
        parts: in order.
        out: the file.
        read_leaf: reads a leaf into a buffer and checks it; called in several threads.

    Raises:
        As `parts` and `read_leaf`, and OSError.
    """
    buffers = Buffers(_THREADS, MAX_BLOCK_BYTES)

    def copy(leaf: Child, offset: int) -> None:
        with buffers.borrowed() as buffer:
            out.write(memoryview(buffer)[: read_leaf(leaf, buffer)], offset)

    offset = 0
    pending: deque[Future[None]] = deque()
    pool = ThreadPoolExecutor(_THREADS, "atoll-store")
    try:
        for part in parts:
            if isinstance(part, Child):
                pending.append(pool.submit(copy, part, offset))
                offset += part.file_bytes
            else:
                out.write(part, offset)
                offset += len(part)
            if len(pending) >= _AHEAD:
                pending.popleft().result()
        for written in pending:
            written.result()
    finally:
        pool.shutdown(cancel_futures=True)
    return offset
