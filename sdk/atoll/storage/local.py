"""This machine's content: blocks on disk, files made of them, and what must be kept."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from atoll.errors import CorruptBlock, NotFound, TooLarge
from atoll.storage.block_reader import BlockReader
from atoll.storage.blocks import BlockFolder, disk_errors
from atoll.storage.bulk import BulkWriter, read_parts, write_parts
from atoll.storage.cid import RAW, Cid
from atoll.storage.directory import build_path
from atoll.storage.errors import MalformedDag
from atoll.storage.garbage_collection import GRACE_S, Checked, GarbageCollected, GarbageCollector
from atoll.storage.pins import Pin, PinnedCopy, Pins
from atoll.storage.quota import Quota, Usage
from atoll.storage.unixfs import (
    MAX_BLOCK_BYTES,
    V1,
    Added,
    Buffer,
    Child,
    Entry,
    FileBuilder,
    Profile,
    Readable,
    decode_file_node,
    iter_parts,
)


class LocalStore:
    """The content in one folder; any number of threads and processes may use it at once.

    Args:
        root: the folder; created if it is missing.
        sync: whether content reaches the disk before it counts as stored. Without it content
            survives the end of the process, but the last of it may be lost with the power.
        quota_bytes: how much the blocks may take; None for what `set_quota` says.
    """

    def __init__(
        self, root: Path | str, *, sync: bool = True, quota_bytes: int | None = None
    ) -> None:
        self.root = Path(root)
        self._folder = BlockFolder(self.root, sync=sync)
        self._pins = Pins(self.root / "pins.db", sync=sync)
        self._blocks = BlockReader(self._folder)
        self._collector = GarbageCollector(self._folder, self._pins, self._blocks)
        self._quota = Quota(self._folder, self._collector, quota_bytes)

    # -- blocks ----------------------------------------------------------------------------------

    def has(self, cid: Cid) -> bool:
        """Whether the block itself is here (its children may not be)."""
        return self.block_bytes(cid) is not None

    def block_bytes(self, cid: Cid) -> int | None:
        """The size of a block that is here, else None. What its name has is everywhere."""
        return self._blocks.size(cid)

    def get_block(self, cid: Cid) -> bytes:
        """Reads one block and checks it.

        Raises:
            NotFound: it is not here.
            CorruptBlock: the disk returned other bytes; the block was removed.
        """
        return self._blocks.read(cid)

    def put_block(self, cid: Cid, block: bytes, *, settle: bool = True) -> None:
        """Stores a block under the name it was asked for.

        With `settle` False, the caller calls `settle` before it relies on the block.

        Raises:
            CorruptBlock: the bytes are not that block.
            TooLarge: more than `MAX_BLOCK_BYTES`.
            DiskFull: no room on the disk or in the quota; nothing was written.
        """
        _check_size(block)
        if not cid.matches(block):
            raise CorruptBlock(f"these {len(block)} bytes are not {cid}")
        self._quota.make_room(len(block))
        self._folder.write(cid.digest, block, folder_sync=settle)

    def settle(self, digests: Iterable[bytes]) -> None:
        """Makes what `put_block` left open survive a power cut."""
        self._folder.sync_folders(digests)

    def add_block(self, block: bytes, codec: int = RAW) -> Cid:
        """Stores bytes as one block of the given codec; returns its CID.

        Raises:
            TooLarge, DiskFull: as `put_block`.
        """
        _check_size(block)
        cid = Cid.of(block, codec)
        self._quota.make_room(len(block))
        self._folder.write(cid.digest, block)
        return cid

    # -- files -----------------------------------------------------------------------------------

    def add_stream(self, stream: Readable, profile: Profile = V1) -> Added:
        """Stores everything `stream` yields as one file, in constant memory.

        Raises:
            DiskFull: no room; blocks already written stay until they are collected.
        """
        with self._writing() as writer:
            root = writer.add_file(stream, profile)
        return Added(root.cid, root.file_bytes, writer.blocks)

    def add_bytes(self, data: bytes, profile: Profile = V1) -> Cid:
        """Stores bytes as one file; returns its root."""
        return self.add_stream(io.BytesIO(data), profile).cid

    def add_pieces(self, pieces: Iterable[bytes | memoryview], profile: Profile = V1) -> Cid:
        """Stores the pieces one after another as one file, in constant memory; returns its root.

        Raises:
            DiskFull: as `add_stream`.
        """
        return self.add_stream(_Pieces(pieces), profile).cid

    def add_file(self, path: Path | str, profile: Profile = V1) -> Cid:
        """Stores a file from disk, in constant memory; returns its root.

        Raises:
            NotFound: there is no such file.
            DiskFull: as `add_stream`.
        """
        try:
            with Path(path).open("rb") as stream:
                return self.add_stream(stream, profile).cid
        except (FileNotFoundError, IsADirectoryError):
            raise NotFound(f"no file at {path}") from None

    def add_path(self, path: Path | str, profile: Profile = V1) -> Added:
        """Stores a file, or a folder with everything below it.

        Raises:
            NotFound: nothing is there.
            StorageError: a symbolic link or a device is below.
            DiskFull: as `add_stream`.
        """
        with self._writing() as writer:
            root = build_path(
                Path(path), writer.put, profile, lambda stream: writer.add_file(stream, profile)
            )
        return Added(root.cid, root.file_bytes, writer.blocks)

    def file_bytes(self, cid: Cid) -> int:
        """The size of a file, as its root says.

        Raises:
            NotFound, CorruptBlock: the root is missing or damaged.
            MalformedDag: it is not a file.
        """
        return decode_file_node(cid, self.get_block(cid)).file_bytes

    def iter_bytes(self, cid: Cid, max_bytes: int) -> Iterator[bytes]:
        """A file's bytes in order, a leaf at a time; the next few are read meanwhile.

        Raises:
            TooLarge: the file exceeds `max_bytes`; raised before the first byte.
            NotFound, CorruptBlock: a block is missing or damaged.
            MalformedDag: the blocks are not a file.
        """
        return read_parts(iter_parts(self.get_block, cid, max_bytes), self._blocks.read_leaf)

    def read_bytes(self, cid: Cid, max_bytes: int) -> bytes:
        """A whole file, or a single DAG-CBOR block; raises as `iter_bytes`."""
        return b"".join(self.iter_bytes(cid, max_bytes))

    def leaves(self, cid: Cid, max_bytes: int) -> list[Child]:
        """The leaves of a file of raw leaves of a MiB, in order; of several none is read.

        They are no more than twice what a file of its size has: a few nodes that name a small block
        again and again would fill the memory.

        Raises:
            TooLarge: the file exceeds `max_bytes`.
            NotFound, CorruptBlock: a node, or the only leaf, is missing or damaged.
            MalformedDag: the blocks are not a file, or it has other leaves, or more of them.
        """
        if cid.codec == RAW:
            # No node says its size; that of the file on this disk is what a torn write left.
            size = len(self.get_block(cid))
            if size > max_bytes:
                raise TooLarge(f"{cid} holds {size} bytes, more than the {max_bytes} allowed")
            return [Child(cid, size)]
        children: list[Child] = []
        for part in iter_parts(self.get_block, cid, max_bytes, V1.chunk_bytes):
            if isinstance(part, bytes):
                raise MalformedDag(f"{cid} has bytes outside of raw leaves")
            children.append(part)
        return children

    def read_at(self, cid: Cid, offset: int, size: int) -> bytes:
        """At most so many bytes of a block from an offset on, unchecked.

        Raises:
            NotFound: it is not here.
        """
        return self._blocks.read_at(cid, offset, size)

    def join_leaves(self, leaves: Iterable[Child], profile: Profile = V1) -> Cid:
        """Stores the nodes of a file whose raw leaves are here; returns its root.

        The file is the one that `add_stream` makes of the same bytes where the leaves are the
        profile's chunks.

        Raises:
            DiskFull: as `put_block`.
        """

        def put(cid: Cid, block: Buffer) -> None:
            self.put_block(cid, bytes(block))

        builder = FileBuilder(put, profile)
        for leaf in leaves:
            builder.add_leaf(Entry(leaf.cid, leaf.file_bytes, leaf.file_bytes))
        return builder.finish().cid

    def read_file_to(self, cid: Cid, path: Path | str, max_bytes: int) -> int:
        """Writes a file to `path`, whole or not at all; returns its size.

        Raises:
            As `iter_bytes`, and DiskFull.
        """
        target = Path(path)
        partial = target.with_name(f".{target.name}.{self._folder.unique_name()}")
        try:
            with disk_errors(target), self._folder.creating(partial) as out:
                out.reserve(min(self.file_bytes(cid), max_bytes))
                parts = iter_parts(self.get_block, cid, max_bytes)
                size = write_parts(parts, out, self._blocks.read_leaf)
            with disk_errors(target):
                partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        return size

    # -- keeping ---------------------------------------------------------------------------------

    def pin(self, cid: Cid, reason: str) -> None:
        """Keeps `cid` and all below it until `reason` ends; it may be pinned before it arrives."""
        with self._folder.locked(shared=True):
            self._pins.add(cid, reason)

    def unpin(self, reason: str, cid: Cid | None = None) -> int:
        """Ends a reason, or one CID's part of it; returns how many pins went."""
        return self._pins.remove(reason, cid)

    def is_pinned(self, cid: Cid) -> bool:
        """Whether any reason keeps it."""
        return self._pins.has(cid)

    def note_copy(self, cid: Cid, place: str) -> None:
        """As `Pins.note_copy`."""
        self._pins.note_copy(cid, place)

    def spare_copies(self, place: str) -> tuple[PinnedCopy, ...]:
        """As `Pins.spare_copies`."""
        return self._pins.spare_copies(place)

    def end_copy(self, copy: PinnedCopy) -> bool:
        """As `Pins.end_copy`."""
        return self._pins.end_copy(copy)

    def drop(self, cid: Cid) -> int:
        """Removes what is below `cid` and reached by no pin, though it was just used; bytes freed.

        For content that only this process knows: what others are about to use may go with it.
        """
        return self._collector.drop(cid)

    def has_room(self, size: int) -> bool:
        """Whether so many bytes fit on the disk, and in the quota, for which it may collect."""
        return self._quota.has_room(size)

    def pins(self) -> list[Pin]:
        """Every pin, oldest first."""
        return self._pins.list()

    def set_quota(self, quota_bytes: int | None) -> None:
        """Bounds what the blocks may take, for everyone who opens this folder from now on.

        A quota that is already exceeded is enforced by the next addition. None is no bound.
        """
        self._quota.set(quota_bytes)

    @property
    def quota_bytes(self) -> int | None:
        """How much the blocks may take; None for no bound."""
        return self._quota.limit

    def usage(self) -> Usage:
        """Counts blocks and their bytes; reads the whole folder's listing."""
        return self._quota.usage()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Marks work in progress: until it ends, no process collects what was used since."""
        with self._folder.holding():
            yield

    def claim(self, cid: Cid) -> int | None:
        """The size of a block that is here, which now counts as just used, else None."""
        return self._folder.claim(cid.digest) if cid.inline is None else len(cid.inline)

    def collect(self, keep_bytes: int = 0, grace_s: float = GRACE_S) -> GarbageCollected:
        """Removes unpinned blocks, longest unused first, until at most `keep_bytes` remain.

        Never removed: what a pin reaches, what was used in the last `grace_s` seconds or since any
        work in progress began (see `holding`). A crash leaves each block whole or gone.
        """
        return self._collector.collect(keep_bytes, grace_s)

    def verify(self) -> Checked:
        """Reads and checks every block; removes damaged ones, so that they can be fetched again."""
        return self._collector.verify()

    # -- inside ----------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[BulkWriter]:
        with self.holding(), BulkWriter(self._folder, self._quota.make_room) as writer:
            yield writer


class _Pieces:
    """Pieces as a file is read."""

    def __init__(self, pieces: Iterable[bytes | memoryview]) -> None:
        self._pieces, self._piece = iter(pieces), memoryview(b"")

    def readinto(self, buffer: memoryview, /) -> int:
        while not self._piece.nbytes:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = memoryview(piece).cast("B")
        portion = self._piece[: buffer.nbytes]
        buffer[: portion.nbytes] = portion
        self._piece = self._piece[portion.nbytes :]
        return portion.nbytes


def _check_size(block: bytes) -> None:
    if len(block) > MAX_BLOCK_BYTES:
        raise TooLarge(f"a block of {len(block)} bytes exceeds {MAX_BLOCK_BYTES}")
