"""Which blocks answer a request for part of a DAG: `dag-scope` and `entity-bytes` of gateways."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from atoll.storage.block_links import check_pending, walk_dag
from atoll.storage.cid import DAG_PB, Cid
from atoll.storage.dagpb import decode_node
from atoll.storage.directory import list_directory
from atoll.storage.errors import MalformedDag
from atoll.storage.unixfs import BlockSource, UnixFsKind, decode_file_node, decode_header

SCOPES = ("block", "entity", "all")
_RANGE = re.compile(r"(-?[0-9]{1,18}):(\*|-?[0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a file's bytes, both ends included.

    Negative numbers count from the file's end; `last` None means the end.
    """

    first: int
    last: int | None

    @classmethod
    def parse(cls, text: str) -> Range:
        """Reads `from:to`, where `to` may be `*`.

        Raises:
            ValueError: neither.
        """
        match = _RANGE.fullmatch(text)
        if match is None:
            raise ValueError(f"not a range of bytes: {text[:40]!r}")
        first, last = match.groups()
        return cls(int(first), None if last == "*" else int(last))

    def resolve(self, size: int) -> tuple[int, int]:
        """The half-open range of a file of `size` bytes; empty where nothing of it is inside."""
        first = self.first if self.first >= 0 else max(0, size + self.first)
        last = size - 1 if self.last is None else self.last
        last = last if last >= 0 else size + last
        return first, max(first, min(last + 1, size))


def blocks_in_scope(
    get_block: BlockSource, cid: Cid, scope: str, span: Range | None, *, repeats: bool = False
) -> Iterator[tuple[Cid, bytes]]:
    """The blocks of a scope, depth first: each once, or as often as it occurs.

    Raises:
        MalformedDag: the blocks are not what their CIDs say.
        NotFound, CorruptBlock: from `get_block`.
    """
    if scope == "all":
        yield from walk_dag(get_block, [cid], repeats=repeats)
        return
    kind = _kind(get_block, cid) if scope == "entity" else None
    if kind is UnixFsKind.FILE:
        yield from _blocks_of_file(get_block, cid, span, repeats)
    elif kind is UnixFsKind.HAMT:
        yield from _blocks_of_shards(get_block, cid)
    elif cid.inline is None:
        yield cid, get_block(cid)


def _kind(get_block: BlockSource, cid: Cid) -> UnixFsKind | None:
    if cid.codec != DAG_PB:
        return None
    kind = decode_header(decode_node(get_block(cid)).data)[0]
    return UnixFsKind.FILE if kind is UnixFsKind.RAW else kind


def _blocks_of_file(
    get_block: BlockSource, root: Cid, span: Range | None, repeats: bool
) -> Iterator[tuple[Cid, bytes]]:
    size = decode_file_node(root, get_block(root)).file_bytes
    first, end = (span or Range(0, None)).resolve(size)
    sent: set[bytes] = set()
    seen: set[tuple[bytes, int, int]] = set()
    stack = [(root, 0, size)]
    while stack:
        cid, offset, size = stack.pop()
        # A repeated subtree is opened once for each different part of it that is wanted.
        part = (cid.digest, max(first - offset, 0), min(end - offset, size))
        if part in seen and not repeats:
            continue
        seen.add(part)
        block = get_block(cid)
        node = decode_file_node(cid, block)
        # Of one node with many sizes every one would be a part of its own, and opened.
        if node.file_bytes != size:
            raise MalformedDag(f"{cid} holds {node.file_bytes} bytes, its parent says {size}")
        if cid.inline is None and (repeats or cid.digest not in sent):
            sent.add(cid.digest)
            yield cid, block
        offset += len(node.data)
        below = []
        for child in node.children:
            if max(offset, first) < min(offset + child.file_bytes, end):
                below.append((child.cid, offset, child.file_bytes))
            offset += child.file_bytes
        stack.extend(reversed(below))
        check_pending(cid, len(stack))


def _blocks_of_shards(get_block: BlockSource, root: Cid) -> Iterator[tuple[Cid, bytes]]:
    """The blocks of a sharded directory, without what its entries name."""
    visited: dict[Cid, bytes] = {}

    def remembering(cid: Cid) -> bytes:
        block = get_block(cid)
        if cid.inline is None:
            visited[cid] = block
        return block

    for _ in list_directory(remembering, root):
        yield from visited.items()
        visited.clear()
    yield from visited.items()
