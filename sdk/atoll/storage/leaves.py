"""A file's raw leaves on the disk, of which spans are read that are what the leaves' CIDs say.

A leaf is checked against its CID when it is first read. What the disk, or whoever writes to it,
turns afterwards would go unseen if the leaf were only read again, and a single bit of it makes
honest work false. So every later span is held against check sums of its pages, taken from the very
bytes whose CID was checked. CRC-32 tells every change of up to 32 bits in a row from none, and any
other with all but one chance in 2^32 (Peterson and Brown, 1961); the disk is no adversary: who can
write to it can write to this process.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from atoll.storage.local import LocalStore
from atoll.storage.unixfs import Child, check_leaf

PAGE: Final = 4096
"""Bytes that one check sum is over."""


class Leaves:
    """Spans of a file's raw leaves; nothing of them is held but four bytes a page.

    Args:
        store: where they are.
        leaves: in order, as `LocalStore.leaves` gives them.
    """

    def __init__(self, store: LocalStore, leaves: Sequence[Child]) -> None:
        self._store = store
        self._leaves = leaves
        self._sums: dict[int, array[int]] = {}

    def __len__(self) -> int:
        return len(self._leaves)

    def __getitem__(self, index: int) -> Child:
        return self._leaves[index]

    def read(self, index: int) -> bytes:
        """A whole leaf, checked against its CID.

        Raises:
            NotFound, CorruptBlock: it is missing, or the disk returned other bytes.
            MalformedDag: it has another size than its file says.
        """
        leaf = self._leaves[index]
        block = self._store.get_block(leaf.cid)
        check_leaf(leaf, len(block))
        self._sums[index] = _sums(block)
        return block

    def span(self, index: int, begin: int, end: int) -> bytes:
        """The bytes of a leaf from `begin` to `end`. Raises as `read`."""
        sums = self._sums.get(index)
        if sums is None:
            return self.read(index)[begin:end]
        first, last = begin // PAGE, -(-end // PAGE)
        pages = self._store.read_at(self._leaves[index].cid, first * PAGE, (last - first) * PAGE)
        if _sums(pages) != sums[first:last]:
            return self.read(index)[begin:end]
        return pages[begin - first * PAGE : end - first * PAGE]


def _sums(block: bytes) -> array[int]:
    view = memoryview(block)
    return array("I", (crc32(view[at : at + PAGE]) for at in range(0, len(view), PAGE)))
