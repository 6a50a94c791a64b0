"""Blocks of this machine's folder, each checked against the CID that it was asked for by."""

from __future__ import annotations

from mmap import mmap

from atoll.errors import CorruptBlock, NotFound
from atoll.storage.blocks import BlockFolder
from atoll.storage.cid import Cid
from atoll.storage.unixfs import Buffer, Child, check_leaf


class BlockReader:
    """Reads the blocks of a folder; a damaged one is removed, so that it can be fetched again."""

    def __init__(self, folder: BlockFolder) -> None:
        self._folder = folder

    def size(self, cid: Cid) -> int | None:
        """The size of a block that is here, else None. What its name has is everywhere."""
        return self._folder.size(cid.digest) if cid.inline is None else len(cid.inline)

    def read(self, cid: Cid) -> bytes:
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

    def read_leaf(self, leaf: Child, buffer: mmap) -> int:
        """Reads a raw leaf into `buffer` and checks it; returns its size. Raises as `read`."""
        size = self._folder.read_into(leaf.cid.digest, buffer)
        if size is None:
            raise self._not_here(leaf.cid)
        with memoryview(buffer) as view:
            self._check_read(leaf.cid, view[:size])
        check_leaf(leaf, size)
        return size

    def read_at(self, cid: Cid, offset: int, size: int) -> bytes:
        """At most so many bytes of a block from an offset on, unchecked.

        Raises:
            NotFound: it is not here.
        """
        portion = self._folder.read_at(cid.digest, offset, size)
        if portion is None:
            raise self._not_here(cid)
        return portion

    def _check_read(self, cid: Cid, block: Buffer) -> None:
        if not cid.matches(block):
            self._folder.discard(cid.digest)
            error = CorruptBlock(
                f"{cid} was damaged on disk in {self._folder.root} and has been removed",
                next_step="fetch it again, and check the disk",
            )
            error.lost = str(cid)
            raise error

    def _not_here(self, cid: Cid) -> NotFound:
        error = NotFound(f"{cid} is not in {self._folder.root}")
        error.lost = str(cid)
        return error
