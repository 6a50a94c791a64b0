"""Which blocks of a store may go, and how they go.

Rule of this file: what a pin reaches stays, and so does what others are about to use. A crash
leaves each block whole or gone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from atoll.errors import CorruptBlock, NotFound
from atoll.storage.block_links import links_of
from atoll.storage.block_reader import BlockReader
from atoll.storage.blocks import BlockFile, BlockFolder
from atoll.storage.cid import RAW, Cid
from atoll.storage.errors import MalformedDag
from atoll.storage.pins import Pin, Pins

GRACE_S: Final = 3600.0  # between what was fetched and its pin other processes may do much
STRAY_S: Final = 86400.0  # no write takes a day: what is older nobody does any more
SPARE: Final = "/spare"
"""A part of the reasons of pins that end where quota or disk is full: what they keep can be made
again.
"""
_REMOVALS_AT_ONCE: Final = 64


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


class GarbageCollector:
    """Removes blocks of a store that nothing keeps."""

    def __init__(self, folder: BlockFolder, pins: Pins, blocks: BlockReader) -> None:
        self._folder, self._pins, self._blocks = folder, pins, blocks

    def collect(self, keep_bytes: int, grace_s: float) -> GarbageCollected:
        """Removes unpinned blocks, longest unused first, until at most `keep_bytes` remain.

        Never removed: what a pin reaches, what was used in the last `grace_s` seconds or since any
        work in progress began.
        """
        unused_since = min(self._folder.now() - grace_s, self._folder.held_since())
        self._folder.clear_stray(STRAY_S)
        marks = _Marks(self._pins, self._blocks)
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

    def drop(self, cid: Cid) -> int:
        """Removes what is below `cid` and reached by no pin, used just now or not; bytes freed."""
        return self._drop([cid], lambda _: True)

    def drop_spare(self, needed: int) -> int:
        """Removes what can be made again, and then ends its pins, which takes room; bytes freed.

        What was used since any work in progress began may be about to be pinned, and goes only
        where the rest is less than `needed`: work that takes long must not keep others from theirs.
        """
        unused_since = min(self._folder.now(), self._folder.held_since())
        spare = [pin for pin in self._pins.list() if _is_spare(pin)]
        roots = [pin.cid for pin in spare]
        freed = self._drop(roots, lambda pin: not _is_spare(pin), unused_since)
        if freed < needed:
            freed += self._drop(roots, lambda pin: not _is_spare(pin))
        for pin in spare:
            self._pins.remove(pin.reason, pin.cid)
        return freed

    def verify(self) -> Checked:
        """Reads and checks every block; removes damaged ones, so that they can be fetched again."""
        blocks = size = 0
        damaged: list[str] = []
        for file in self._folder.scan():
            block = self._folder.read(file.digest)
            if block is None:
                continue
            if hashlib.sha256(block).digest() != file.digest:
                self._folder.discard(file.digest)
                damaged.append(file.digest.hex())
                continue
            blocks, size = blocks + 1, size + len(block)
        marks = _Marks(self._pins, self._blocks)
        marks.follow_new_pins()
        return Checked(blocks, size, tuple(damaged), tuple(marks.missing()))

    def _drop(
        self, roots: Sequence[Cid], keeps: Callable[[Pin], bool], unused_since: float = math.inf
    ) -> int:
        """Removes what is below these and reached by no pin that keeps it; bytes freed."""
        blocks = _Marks(self._pins, self._blocks)
        blocks.follow(roots)
        with self._folder.locked(shared=False):
            marks = _Marks(self._pins, self._blocks)
            marks.follow(pin.cid for pin in self._pins.list() if keeps(pin))
            spare = blocks.kept - marks.kept
            return sum(self._folder.remove(digest, unused_since) for digest in spare)


def _is_spare(pin: Pin) -> bool:
    return f"{SPARE}/" in pin.reason


class _Marks:
    """What pins reach."""

    def __init__(self, pins: Pins, blocks: BlockReader) -> None:
        self._pins, self._blocks = pins, blocks
        self._last_serial = 0
        self._opened: set[bytes] = set()
        self._wanted: dict[bytes, Cid] = {}
        self.kept: set[bytes] = set()

    def follow_new_pins(self) -> None:
        """Marks everything that pins made since the last call reach."""
        new = [pin for pin in self._pins.list() if pin.serial > self._last_serial]
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
                    stack.extend(links_of(cid, self._blocks.read(cid)))

    def missing(self) -> Iterator[Cid]:
        """Blocks that are pinned and not here."""
        return (cid for cid in self._wanted.values() if self._blocks.size(cid) is None)


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
