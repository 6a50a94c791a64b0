"""This machine's content: blocks on disk, files made of them, and what must be kept."""

from __future__ import annotations

import hashlib
import io
import math
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Final

from atoll.errors import CorruptBlock, DiskFull, NotFound, TooLarge
from atoll.storage.block_links import links_of
from atoll.storage.blocks import BlockFile, BlockFolder, disk_errors
from atoll.storage.bulk import BulkWriter, read_parts, write_parts
from atoll.storage.cid import RAW, Cid
from atoll.storage.directory import build_path
from atoll.storage.errors import MalformedDag
from atoll.storage.pins import Pin, PinnedCopy, Pins
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
    check_leaf,
    decode_file_node,
    iter_parts,
)

GRACE_S: Final = 3600.0  # between what was fetched and its pin other processes may do much
SPARE: Final = "/spare"
"""A part of the reasons of pins that end where quota or disk is full: what they keep can be made
again.
"""
QUOTA_GRACE_S: Final = 60.0  # the same, where the alternative is that nothing more fits
STRAY_S: Final = 86400.0  # no write takes a day: what is older nobody does any more
_REMOVALS_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Usage:
    """What a store holds."""

    blocks: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GarbageCollected:
    """What a collection did; bytes of blocks, and what stays."""

    freed_bytes: int
    kept_bytes: int
    pinned_blocks: int


@dataclass(frozen=True, slots=True)
class Checked:
    """What `verify` found: damaged blocks were removed, missing ones are pinned and not here."""

    blocks: int
    bytes: int
    damaged: tuple[str, ...]
    missing: tuple[Cid, ...]


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
        self.quota_bytes = quota_bytes or self._folder.quota()
        self._pins = Pins(self.root / "pins.db", sync=sync)
        self._room = 0  # bytes that may be written before the folder is looked at again
        self._room_lock = threading.Lock()

    # -- blocks ----------------------------------------------------------------------------------

    def has(self, cid: Cid) -> bool:
        """Whether the block itself is here (its children may not be)."""
        return self.block_bytes(cid) is not None

    def block_bytes(self, cid: Cid) -> int | None:
        """The size of a block that is here, else None. What its name has is everywhere."""
        return self._folder.size(cid.digest) if cid.inline is None else len(cid.inline)

    def get_block(self, cid: Cid) -> bytes:
        """Reads one block and checks it.

        Raises:
            NotFound: it is not here.
            CorruptBlock: the disk returned other bytes; the block was removed.
        """
        if cid.inline is not None:
            return cid.inline
        block = self._folder.read(cid.digest)
        if block is None:
            raise self._not_here(cid)
        self._check_read(cid, block)
        return block

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
        self._make_room(len(block))
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
        self._make_room(len(block))
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
        return read_parts(iter_parts(self.get_block, cid, max_bytes), self._read_leaf)

    def read_bytes(self, cid: Cid, max_bytes: int) -> bytes:
        """A whole file, or a single DAG-CBOR block; raises as `iter_bytes`."""
        return b"".join(self.iter_bytes(cid, max_bytes))

    def leaves(self, cid: Cid, max_bytes: int) -> list[Child]:
        """The leaves of a file of raw leaves, in order; of several none is read.

        Raises:
            TooLarge: the file exceeds `max_bytes`.
            NotFound, CorruptBlock: a node, or the only leaf, is missing or damaged.
            MalformedDag: the blocks are not a file, or it has other leaves.
        """
        if cid.codec == RAW:
            # No node says its size; that of the file on this disk is what a torn write left.
            size = len(self.get_block(cid))
            if size > max_bytes:
                raise TooLarge(f"{cid} holds {size} bytes, more than the {max_bytes} allowed")
            return [Child(cid, size)]
        found: list[Child] = []
        for part in iter_parts(self.get_block, cid, max_bytes):
            if isinstance(part, bytes):
                raise MalformedDag(f"{cid} has bytes outside of raw leaves")
            found.append(part)
        return found

    def read_at(self, cid: Cid, offset: int, size: int) -> bytes:
        """At most so many bytes of a block from an offset on, unchecked.

        Raises:
            NotFound: it is not here.
        """
        found = self._folder.read_at(cid.digest, offset, size)
        if found is None:
            raise self._not_here(cid)
        return found

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
                size = write_parts(parts, out, self._read_leaf)
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
        return self._drop([cid], lambda _: True)

    def has_room(self, size: int) -> bool:
        """Whether so many bytes fit on the disk, and in the quota, for which it may collect."""
        if not self._fits_after_collection(size):
            return False
        if self.quota_bytes is None or self.usage().bytes + size <= self.quota_bytes:
            return True
        kept = self.collect(self.quota_bytes * 7 // 8 - size, QUOTA_GRACE_S).kept_bytes
        return kept + size <= self.quota_bytes

    def pins(self) -> list[Pin]:
        """Every pin, oldest first."""
        return self._pins.list()

    def set_quota(self, quota_bytes: int | None) -> None:
        """Bounds what the blocks may take, for everyone who opens this folder from now on.

        A quota that is already exceeded is enforced by the next addition. None is no bound.
        """
        self._folder.set_quota(quota_bytes)
        self.quota_bytes = quota_bytes

    def usage(self) -> Usage:
        """Counts blocks and their bytes; reads the whole folder's listing."""
        sizes = [block.size for block in self._folder.scan()]
        return Usage(len(sizes), sum(sizes))

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
        unused_since = min(self._folder.now() - grace_s, self._folder.held_since())
        self._folder.clear_stray(STRAY_S)
        marks = _Marks(self)
        marks.follow_new_pins()
        blocks = list(self._folder.scan())
        held = sum(block.size for block in blocks)
        spare = [b for b in blocks if b.digest not in marks.kept and b.used_at < unused_since]
        freed = 0
        for batch in _batches(sorted(spare, key=lambda b: b.used_at), held - keep_bytes):
            with self._folder.locked(shared=False):
                marks.follow_new_pins()  # nobody can pin or claim while the lock is held
                digests = [b.digest for b in batch if b.digest not in marks.kept]
                freed += sum(self._folder.remove(digest, unused_since) for digest in digests)
        return GarbageCollected(freed, held - freed, len(marks.kept))

    def verify(self) -> Checked:
        """Reads and checks every block; removes damaged ones, so that they can be fetched again."""
        blocks = size = 0
        damaged: list[str] = []
        for found in self._folder.scan():
            block = self._folder.read(found.digest)
            if block is None:
                continue
            if hashlib.sha256(block).digest() != found.digest:
                self._folder.discard(found.digest)
                damaged.append(found.digest.hex())
                continue
            blocks, size = blocks + 1, size + len(block)
        marks = _Marks(self)
        marks.follow_new_pins()
        return Checked(blocks, size, tuple(damaged), tuple(marks.missing()))

    # -- inside ----------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[BulkWriter]:
        with self.holding(), BulkWriter(self._folder, self._make_room) as writer:
            yield writer

    def _read_leaf(self, leaf: Child, buffer: mmap) -> int:
        """Reads a raw leaf into `buffer` and checks it; returns its size."""
        size = self._folder.read_into(leaf.cid.digest, buffer)
        if size is None:
            raise self._not_here(leaf.cid)
        with memoryview(buffer) as view:
            self._check_read(leaf.cid, view[:size])
        check_leaf(leaf, size)
        return size

    def _check_read(self, cid: Cid, block: Buffer) -> None:
        if not cid.matches(block):
            self._folder.discard(cid.digest)
            error = CorruptBlock(
                f"{cid} was damaged on disk in {self.root} and has been removed",
                next_step="fetch it again, and check the disk",
            )
            error.lost = str(cid)
            raise error

    def _not_here(self, cid: Cid) -> NotFound:
        error = NotFound(f"{cid} is not in {self.root}")
        error.lost = str(cid)
        return error

    def _make_room(self, size: int) -> None:
        """Counts `size` bytes against the quota, collecting when it is reached.

        Each process looks at the folder again after writing a sixteenth of the quota, so several
        together may overshoot by that much each. Where the disk is full, the same gives way; what
        does not fit then, the disk refuses.
        """
        with self._room_lock:
            if not self._fits_after_collection(size):
                self._drop_spare(size - self._free())
            if self.quota_bytes is None:
                return
            if self._room < size:
                held = self.usage().bytes
                if held + size > self.quota_bytes:
                    held = self.collect(self.quota_bytes * 7 // 8 - size, QUOTA_GRACE_S).kept_bytes
                if held + size > self.quota_bytes:
                    held -= self._drop_spare(held + size - self.quota_bytes)
                if held + size > self.quota_bytes:
                    raise DiskFull(
                        f"the store's quota of {self.quota_bytes} bytes is full of pinned content",
                        next_step="raise the quota, or end pins: see `atoll store pin`",
                    )
                self._room = max(size, min(self.quota_bytes - held, self.quota_bytes // 16))
            self._room -= size

    def _fits_after_collection(self, size: int) -> bool:
        """Whether the disk has so many bytes, for which it collects."""
        free = self._free()
        if size <= free:
            return True
        held = self.usage().bytes
        if size > free + held:  # whatever went, it would go for nothing
            return False
        self.collect(held * 7 // 8 - size, QUOTA_GRACE_S)
        return size <= self._free()

    def _free(self) -> int:
        with disk_errors(self.root):
            return shutil.disk_usage(self.root).free

    def _drop_spare(self, needed: int) -> int:
        """Removes what can be made again, and then ends its pins, which takes room; bytes freed.

        What was used since any work in progress began may be about to be pinned, and goes only
        where the rest is less than `needed`: work that takes long must not keep others from theirs.
        """
        unused_since = min(self._folder.now(), self._folder.held_since())
        spare = [pin for pin in self.pins() if _is_spare(pin)]
        roots = [pin.cid for pin in spare]
        freed = self._drop(roots, lambda pin: not _is_spare(pin), unused_since)
        if freed < needed:
            freed += self._drop(roots, lambda pin: not _is_spare(pin))
        for pin in spare:
            self.unpin(pin.reason, pin.cid)
        return freed

    def _drop(
        self, roots: Sequence[Cid], keeps: Callable[[Pin], bool], unused_since: float = math.inf
    ) -> int:
        """Removes what is below these and reached by no pin that keeps it; bytes freed."""
        blocks = _Marks(self)
        blocks.follow(roots)
        with self._folder.locked(shared=False):
            marks = _Marks(self)
            marks.follow(pin.cid for pin in self.pins() if keeps(pin))
            spare = blocks.kept - marks.kept
            return sum(self._folder.remove(digest, unused_since) for digest in spare)


def _is_spare(pin: Pin) -> bool:
    return f"{SPARE}/" in pin.reason


class _Marks:
    """What the pins of a store reach."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._last_serial = 0
        self._opened: set[bytes] = set()
        self._wanted: dict[bytes, Cid] = {}
        self.kept: set[bytes] = set()

    def follow_new_pins(self) -> None:
        """Marks everything that pins made since the last call reach."""
        new = [pin for pin in self._store.pins() if pin.serial > self._last_serial]
        self._last_serial = max((pin.serial for pin in new), default=self._last_serial)
        self.follow(pin.cid for pin in new)

    def follow(self, roots: Iterable[Cid]) -> None:
        """Marks these and everything below them."""
        stack = list(roots)
        while stack:
            cid = stack.pop()
            self.kept.add(cid.digest)
            self._wanted.setdefault(cid.digest, cid)
            if cid.codec != RAW and cid.digest not in self._opened:
                self._opened.add(cid.digest)
                # A pinned block may still be on its way, or be anything if strangers made it.
                with suppress(NotFound, CorruptBlock, MalformedDag):
                    stack.extend(links_of(cid, self._store.get_block(cid)))

    def missing(self) -> Iterator[Cid]:
        """Blocks that are pinned and not here."""
        return (cid for cid in self._wanted.values() if not self._store.has(cid))


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


def _batches(blocks: Sequence[BlockFile], surplus: int) -> Iterator[list[BlockFile]]:
    """Splits the first blocks, of at least `surplus` bytes together, into short lists."""
    batch: list[BlockFile] = []
    for block in blocks:
        if surplus <= 0:
            break
        batch.append(block)
        surplus -= block.size
        if len(batch) == _REMOVALS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _check_size(block: bytes) -> None:
    if len(block) > MAX_BLOCK_BYTES:
        raise TooLarge(f"a block of {len(block)} bytes exceeds {MAX_BLOCK_BYTES}")
