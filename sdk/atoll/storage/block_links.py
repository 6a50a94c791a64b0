"""Which blocks a block names, for every codec we keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from atoll.storage.cid import DAG_CBOR, DAG_PB, Cid
from atoll.storage.dagpb import decode_node
from atoll.storage.errors import MalformedDag
from atoll.storage.unixfs import BlockSource

MAX_PENDING: Final = 1 << 16
"""Links of opened blocks that a walk may still have to follow: nine full folders, one in the other,
are fewer."""
MAX_ITEMS: Final = 1 << 18
"""Of one DAG-CBOR block: twice as many as one that is full of links has. One of two million numbers
would hold a thread for seconds."""
_CID_TAG: Final = 42
_UINT, _NINT, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_SIMPLE_BYTES: Final = {20: 0, 21: 0, 22: 0, 27: 8}  # false, true, null, float64
_ARGUMENT_BYTES: Final = {24: 1, 25: 2, 26: 4, 27: 8}


def links_of(cid: Cid, block: bytes) -> list[Cid]:
    """The CIDs in a block, in order, repeats included.

    Raises:
        MalformedDag: the bytes are not of the codec that the CID says.
    """
    if cid.codec == DAG_PB:
        return [link.cid for link in decode_node(block).links]
    if cid.codec == DAG_CBOR:
        try:
            return list(cbor_links(block))
        except ValueError as error:
            raise MalformedDag(f"malformed DAG-CBOR block: {error}") from error
    return []


def cbor_links(data: bytes) -> Iterator[Cid]:
    """The CIDs of a DAG-CBOR item (https://ipld.io/specs/codecs/dag-cbor/spec/), without recursion.

    Raises:
        ValueError: not well-formed, indefinite lengths, unknown tags, bytes after the item, or more
            than `MAX_ITEMS`.
    """
    offset, items, tagged, read = 0, 1, False, 0
    while items:
        items, read = items - 1, read + 1
        if read > MAX_ITEMS:
            raise ValueError(f"more than {MAX_ITEMS} items")
        major, argument, offset = _read_head(data, offset)
        if tagged and major != _BYTES:
            raise ValueError("a CID must be a byte string")
        if major in (_BYTES, _TEXT):
            end = offset + argument
            if end > len(data):
                raise ValueError("truncated string")
            if tagged:
                if data[offset : offset + 1] != b"\0":
                    raise ValueError("a CID must start with the identity multibase")
                yield Cid.from_bytes(data[offset + 1 : end])
            offset = end
        elif major in (_ARRAY, _MAP):
            items += argument * (2 if major == _MAP else 1)
            if items > len(data) - offset:
                raise ValueError("truncated array or map")
        elif major == _TAG:
            items += 1
        tagged = major == _TAG
        if tagged and argument != _CID_TAG:
            raise ValueError(f"unknown tag {argument}")
    if offset != len(data):
        raise ValueError("bytes after the item")


def _read_head(data: bytes, offset: int) -> tuple[int, int, int]:
    """Major type, argument, and the offset after them (for a float: after its bits)."""
    if offset >= len(data):
        raise ValueError("truncated item")
    major, info = data[offset] >> 5, data[offset] & 31
    offset += 1
    if major == _SIMPLE:
        if info not in _SIMPLE_BYTES:
            raise ValueError(f"unsupported simple value {info}")
        size = _SIMPLE_BYTES[info]
    else:
        if info < 24:
            return major, info, offset
        if info not in _ARGUMENT_BYTES:
            raise ValueError("indefinite length")
        size = _ARGUMENT_BYTES[info]
    if offset + size > len(data):
        raise ValueError("truncated head")
    return major, int.from_bytes(data[offset : offset + size], "big"), offset + size


def walk_dag(
    get_block: BlockSource, roots: Iterable[Cid], *, repeats: bool = False
) -> Iterator[tuple[Cid, bytes]]:
    """Each block reachable from `roots`, depth first, links in order: once, or with its repeats.

    What lies in its own name is looked into and not given: nobody stores it.

    Raises:
        MalformedDag: as `links_of`, or more links in nested blocks than anyone would make.
        NotFound, CorruptBlock: from `get_block`.
    """
    seen: set[Cid] = set()
    stack = list(roots)[::-1]
    while stack:
        cid = stack.pop()
        if not repeats:
            if cid.to_v1() in seen:
                continue
            seen.add(cid.to_v1())
        block = get_block(cid)
        if cid.inline is None:
            yield cid, block
        stack.extend(reversed(links_of(cid, block)))
        check_pending(cid, len(stack))


def check_pending(cid: Cid, pending: int) -> None:
    """Raises MalformedDag where a walk that opened `cid` has too many links left to follow."""
    if pending > MAX_PENDING:
        raise MalformedDag(f"{cid} lies below more links than anyone would make")
