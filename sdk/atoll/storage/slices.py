"""A file in the store as a sequence of bytes of which slices are read, none of it held."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from atoll.storage.cid import Cid
from atoll.storage.errors import MalformedDag
from atoll.storage.leaves import Leaves
from atoll.storage.local import LocalStore
from atoll.storage.unixfs import V1, Child, root_of


class FileSlices:
    """A file's bytes where they lie; every slice is what the CID says (`Leaves`).

    Args:
        store: where the file is.
        cid: the file.
        max_bytes: how much it may have.

    The same bytes have many CIDs, of which some readers understand more than others. Here they have
    one, so that whoever has the blocks says the same of them.

    Raises:
        NotFound, CorruptBlock: a block is missing or damaged, found now or when it is read.
        TooLarge: the file exceeds `max_bytes`.
        MalformedDag: the blocks are not a file, or not laid out as `V1` does it; found now or when
            they are read.
    """

    def __init__(self, store: LocalStore, cid: Cid, max_bytes: int) -> None:
        leaves = store.leaves(cid, max_bytes)
        if not _is_plain(cid, leaves):
            raise MalformedDag(f"{cid} is not laid out as everybody lays out these bytes")
        self._leaves = Leaves(store, leaves)
        self._ends = list(accumulate(leaf.file_bytes for leaf in leaves))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, span: slice, /) -> bytes:
        """A copy of the bytes of a span without a step; raises as the class does."""
        at, stop, step = span.indices(len(self))
        if step != 1:
            raise ValueError("bytes are read in their order, one after another")
        parts = []
        while at < stop:
            index = bisect_right(self._ends, at)
            end = self._ends[index]
            begin = end - self._leaves[index].file_bytes
            parts.append(self._leaves.span(index, at - begin, min(stop, end) - begin))
            at = min(stop, end)
        return b"".join(parts)


def _is_plain(cid: Cid, leaves: list[Child]) -> bool:
    """Whether the file's bytes have this CID wherever they are added, as far as its leaves say."""
    if not leaves:  # what is empty has an empty leaf, and is no node without any
        return False
    *full, last = leaves
    chunk = V1.chunk_bytes
    is_cut_alike = all(leaf.file_bytes == chunk for leaf in full) and last.file_bytes <= chunk
    return is_cut_alike and (last.file_bytes > 0 or not full) and root_of(leaves) == cid
