"""Whole files into a store and out of it, several blocks under way at once.

Reading, hashing and writing each leave Python's lock, so threads do them side by side: a file moves
as fast as the slowest of disk and hash, in the memory of a few blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from mmap import mmap
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Final, Self, TypeVar

from atoll.storage.blocks import BlockFolder
from atoll.storage.cid import Cid
from atoll.storage.direct import Buffers, OutFile
from atoll.storage.unixfs import (
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

Part = bytes | Child
LeafReader = Callable[[Child, mmap], int]
Result = TypeVar("Result")
_THREADS: Final = 5  # most of them wait for the disk, which more of them made no faster
_AHEAD: Final = 8  # blocks read or hashed before the first is written: 16 MiB at most
_TOGETHER: Final = 64  # blocks that one sync makes durable, and which then become visible


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
        self._first: tuple[Cid, Buffer, mmap | None] | None = None
        self._buffers = Buffers(_AHEAD, MAX_BLOCK_BYTES)
        self._staged: dict[bytes, Path] = {}
        self._staged_lock = Lock()
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
                if self._first is not None:
                    self._write_from(*self._first)
                for written in self._pending:
                    written.result()
                self._publish(1)
                self._folder.sync_folders(self._touched.values())
        finally:
            self._pool.shutdown(cancel_futures=True)
            self._folder.unstage(self._staged)

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
            self._buffers.release(buffer)
        return builder.finish()

    def _fill(self, stream: Readable, profile: Profile) -> tuple[mmap, int]:
        buffer = self._buffers.acquire()
        return buffer, fill(stream, memoryview(buffer)[: profile.chunk_bytes])

    def _store_leaf(self, buffer: mmap, size: int, profile: Profile) -> Entry:
        try:
            leaf, block = _make_leaf(buffer, size, profile)
            self._write(leaf.cid, block)
        finally:
            self._buffers.release(buffer)
        return leaf

    def _submit(self, cid: Cid, block: Buffer, buffer: mmap | None) -> None:
        self._count(len(block))
        if self.blocks == 1:
            # Most trees are this one block, which no thread writes faster than the caller.
            self._first = (cid, block, buffer)
            return
        if self._first is not None:
            first, self._first = self._first, None
            self._pending.append(self._pool.submit(self._write_from, *first))
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
                self._buffers.release(buffer)

    def _write(self, cid: Cid, block: Buffer) -> None:
        if cid.digest in self._staged:
            return
        partial = self._folder.stage(cid.digest, block)
        if partial is None:
            return
        with self._staged_lock:
            if self._staged.setdefault(cid.digest, partial) is not partial:
                self._folder.unstage({cid.digest: partial})  # another thread came first
        self._publish(_TOGETHER)

    def _publish(self, least: int) -> None:
        with self._staged_lock:
            if len(self._staged) < least:
                return
            staged, self._staged = self._staged, {}
        self._folder.publish(staged)
        self._touched.update((digest[0], digest) for digest in staged)


def _make_leaf(buffer: mmap, size: int, profile: Profile) -> tuple[Entry, Buffer]:
    block, codec = encode_leaf(memoryview(buffer)[:size], profile)
    return Entry(profile.name_block(block, codec), size, len(block)), block


def write_parts(parts: Iterable[Part], out: OutFile, read_leaf: LeafReader) -> int:
    """Writes the parts of a file (see `iter_parts`) to their places; returns the file's size.

    Args:
        parts: in order.
        out: the file.
        read_leaf: reads a leaf into a buffer and checks it; called in several threads.

    Raises:
        As `parts` and `read_leaf`, and OSError.
    """
    buffers = Buffers(_THREADS, MAX_BLOCK_BYTES)

    def write(offset: int, part: Part) -> int:
        if isinstance(part, bytes):
            out.write(part, offset)
            return len(part)
        with buffers.borrowed() as buffer:
            out.write(memoryview(buffer)[: read_leaf(part, buffer)], offset)
        return part.file_bytes

    return sum(_in_order(write, _placed(parts)))


def read_parts(parts: Iterable[Part], read_leaf: LeafReader) -> Iterator[bytes]:
    """The bytes of a file's parts in order, a few leaves read ahead; arguments as `write_parts`."""
    buffers = Buffers(_THREADS, MAX_BLOCK_BYTES)

    def read(_: int, part: Part) -> bytes:
        if isinstance(part, bytes):
            return part
        with buffers.borrowed() as buffer:
            return buffer[: read_leaf(part, buffer)]

    return _in_order(read, _placed(parts))


def _placed(parts: Iterable[Part]) -> Iterator[tuple[int, Part]]:
    offset = 0
    for part in parts:
        yield offset, part
        offset += len(part) if isinstance(part, bytes) else part.file_bytes


def _in_order(
    work: Callable[[int, Part], Result], places: Iterable[tuple[int, Part]]
) -> Iterator[Result]:
    """Does the work of every place in threads, a few ahead; yields the results in order.

    Of a single place there is nothing to do beside it: that takes no thread.
    """
    remaining = iter(places)
    ahead = list(islice(remaining, 2))
    if len(ahead) < 2:
        yield from (work(*place) for place in ahead)
        return
    pool = ThreadPoolExecutor(_THREADS, "atoll-store")
    pending: deque[Future[Result]] = deque()
    try:
        for offset, part in chain(ahead, remaining):
            pending.append(pool.submit(work, offset, part))
            if len(pending) >= _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
