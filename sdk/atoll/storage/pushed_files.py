"""Which blocks a gateway takes from whoever brings them: those of files that it was told to expect.

Nobody has to be recognised for that: a block is named by its hash, and a file's root names all the
others. Rule of this file: a block is written only if it belongs to an expected file, within the
bytes that the file may have, and matches its name.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from atoll.errors import CorruptBlock, NotFound, TooLarge
from atoll.storage.cid import DAG_PB, RAW, Cid
from atoll.storage.errors import MalformedDag
from atoll.storage.local import LocalStore
from atoll.storage.unixfs import MAX_BLOCK_BYTES, PROFILES, FileWalk

LEAF_BYTES: Final = min(profile.chunk_bytes for profile in PROFILES.values())
"""Of a file that is taken: each node that it names costs memory, whether it comes or not."""
LOOKS_PER_S: Final = 256
"""Nodes of a file of which it is looked whether they came some other way: whoever made it may have
named tens of thousands that never come, and others' blocks wait meanwhile.
"""


@dataclass(frozen=True, slots=True)
class ExpectedBlock:
    """A block that belongs to an expected file.

    Attributes:
        cid: as its parent names it.
        file_bytes: what its parent says of it; None of a root.
        depth: edges from the root.
        most: bytes that the block itself may have.
    """

    cid: Cid
    file_bytes: int | None
    depth: int
    most: int

    @property
    def is_leaf(self) -> bool:
        """Whether it names no further ones."""
        return self.cid.codec == RAW

    def fits(self, size: int) -> bool:
        """Whether it can have so many bytes; of a leaf whose parent is known they are exact."""
        return size == self.file_bytes if self._is_sized else 0 < size <= self.most

    @property
    def _is_sized(self) -> bool:
        return self.is_leaf and self.file_bytes is not None


@dataclass(slots=True)
class _File:
    """What is known of one file.

    Attributes:
        most: bytes that it may have.
        unopened: nodes whose links are not read yet; those looked for longest ago come first.
        looks: how many nodes may be looked for, as of `looked_at`.
    """

    most: int
    walk: FileWalk
    looked_at: float
    looks: float = LOOKS_PER_S
    known: dict[bytes, ExpectedBlock] = field(default_factory=dict)
    unopened: OrderedDict[bytes, ExpectedBlock] = field(default_factory=OrderedDict)

    def next_to_look_for(self, now: float) -> ExpectedBlock | None:
        """An unopened node, and each in its turn; None where enough were looked for lately."""
        earned = (now - self.looked_at) * LOOKS_PER_S
        self.looks, self.looked_at = min(float(LOOKS_PER_S), self.looks + earned), now
        if self.looks < 1 or not self.unopened:
            return None
        self.looks -= 1
        digest = next(iter(self.unopened))
        self.unopened.move_to_end(digest)
        return self.unopened[digest]


class PushedFiles:
    """The files that are expected now, and what is known of their blocks.

    Nothing of it has to last: what a file's nodes name is read again from the store, where blocks
    may also come by other ways.

    Args:
        store: where the blocks go. Methods may be called in any thread.
        clock: seconds, monotonic.
    """

    def __init__(self, store: LocalStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._files: dict[Cid, _File] = {}
        self._lock = threading.Lock()

    def expect(self, files: Mapping[Cid, int]) -> None:
        """Takes these files from now on and no others, each of at most so many bytes."""
        with self._lock:
            before, now = self._files, self._clock()
            self._files = {
                cid: file
                if (file := before.get(cid)) is not None and file.most == most
                else _beginning(cid, most, now)
                for cid, most in files.items()
            }

    def block(self, cid: Cid, size: int) -> ExpectedBlock | None:
        """What a file says of a block that it has; None where it belongs to none.

        Files may say different things of one block, and whoever made one of them lie: what is said
        is that of a file by which it can have so many bytes, if there is one.
        """
        with self._lock:
            known = self._known(cid)
            if not any(each.fits(size) for each in known):
                for root, file in list(self._files.items()):
                    self._open_what_came(root, file)
                known = self._known(cid)
        return next((each for each in known if each.fits(size)), known[0] if known else None)

    def has(self, block: ExpectedBlock) -> bool:
        """Whether it is here, with as many bytes as it has to have."""
        size = self._store.block_bytes(block.cid)
        return size is not None and block.fits(size)

    def put(self, block: ExpectedBlock, body: bytes) -> None:
        """Stores a block.

        Raises:
            CorruptBlock: the bytes are not that block.
            MalformedDag: it, or what it names, is more than the file may have.
            DiskFull: no room; nothing was written.
        """
        if not block.fits(len(body)):
            raise MalformedDag(f"{block.cid} may not have {len(body)} bytes")
        if not block.cid.matches(body):
            raise CorruptBlock(f"these {len(body)} bytes are not {block.cid}")
        with self._lock:
            self._open_in_all(block.cid, body)  # before it is written: it may be refused
        self._store.put_block(block.cid, body)

    def _known(self, cid: Cid) -> list[ExpectedBlock]:
        known = (file.known.get(cid.digest) for file in self._files.values())
        return [each for each in known if each is not None and each.cid.codec == cid.codec]

    def _open_in_all(self, cid: Cid, body: bytes) -> None:
        """Raises MalformedDag where no file can have the node."""
        refused: MalformedDag | None = None
        for root, file in list(self._files.items()):
            if (block := file.unopened.get(cid.digest)) is not None:
                try:
                    self._open(root, file, block, body)
                except MalformedDag as error:
                    refused = error
        if refused is not None and not self._known(cid):
            raise refused

    def _open_what_came(self, root: Cid, file: _File) -> None:
        """Reads the nodes that are in the store by now, as far as its turn to be looked at goes."""
        now, left = self._clock(), len(file.unopened)
        while left > 0 and (each := file.next_to_look_for(now)) is not None:
            left -= 1
            if not self._store.has(each.cid):
                continue
            others = len(file.unopened) - 1
            try:
                self._open(root, file, each, self._store.get_block(each.cid))
            except MalformedDag:
                return
            except (NotFound, CorruptBlock):  # it is gone again, and may be brought
                continue
            left += len(file.unopened) - others

    def _open(self, root: Cid, file: _File, block: ExpectedBlock, body: bytes) -> None:
        """Learns what a node names; a file that cannot be one is expected no longer."""
        try:
            node = file.walk.visit(block.cid, body, block.file_bytes, block.depth)
        except (MalformedDag, TooLarge) as error:
            file.known.clear()
            file.unopened.clear()
            raise MalformedDag(f"{root} is no file that is expected: {error}") from error
        file.unopened.pop(block.cid.digest, None)
        for child in node.children:
            self._learn(root, file, _child(child.cid, child.file_bytes, block.depth + 1))

    def _learn(self, root: Cid, file: _File, block: ExpectedBlock) -> None:
        if block.cid.inline is not None:  # it lies in its own name, and nobody sends it
            self._open(root, file, block, block.cid.inline)
        elif block.cid.digest not in file.known:
            file.known[block.cid.digest] = block
            if not block.is_leaf:
                file.unopened[block.cid.digest] = block


def _beginning(root: Cid, most: int, now: float) -> _File:
    """A file of which nothing but its name is known."""
    # Above leaves, a node has bytes of its own; any other root is the file.
    largest = MAX_BLOCK_BYTES if root.codec == DAG_PB else min(most, MAX_BLOCK_BYTES)
    first = ExpectedBlock(root, None, 0, largest)
    file = _File(most, FileWalk(root, most, LEAF_BYTES), now)
    if root.inline is None:
        file.known[root.digest] = first
        if not first.is_leaf:
            file.unopened[root.digest] = first
    return file


def _child(cid: Cid, file_bytes: int, depth: int) -> ExpectedBlock:
    return ExpectedBlock(cid, file_bytes, depth, MAX_BLOCK_BYTES)
