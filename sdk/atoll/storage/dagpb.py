"""DAG-PB, the protobuf that links blocks: https://ipld.io/specs/codecs/dag-pb/spec/."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from atoll.storage.cid import Cid
from atoll.storage.errors import MalformedDag
from atoll.storage.varint import decode_varint, encode_varint

MAX_LINKS: Final = 8192
"""Of one block. A folder that nobody shards has 7,000 at most, a node of a file 1,024, and a few
more in trickle layout."""
_MAX_FIELDS: Final = MAX_LINKS + 16  # of one message: a field a link, and those that occur once
_VARINT, _BYTES = 0, 2
_NODE_DATA, _NODE_LINK = 1, 2
_LINK_HASH, _LINK_NAME, _LINK_TSIZE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Link:
    """An edge to a child block.

    Attributes:
        cid: the child.
        name: the entry's name in a directory, empty in a file; UTF-8 bytes, any others kept as is.
        size: bytes of all blocks below the edge, the child's included, as the maker claims.
    """

    cid: Cid
    name: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Node:
    """A DAG-PB block: links, and data that UnixFS gives a meaning."""

    links: Sequence[Link]
    data: bytes | None

    @property
    def tree_size(self) -> int:
        """Bytes of this block and of every link below, as `Link.size` counts them."""
        return len(encode_node(self)) + sum(link.size for link in self.links)


def encode_field(field: int, value: int | bytes | memoryview) -> bytes:
    """One protobuf field: a varint for an int, length-delimited for bytes."""
    if isinstance(value, int):
        return encode_varint(field << 3 | _VARINT) + encode_varint(value)
    return encode_varint(field << 3 | _BYTES) + encode_varint(len(value)) + bytes(value)


def decode_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The protobuf fields of `data` in order: (number, int or bytes).

    Raises:
        ValueError: truncated, a wire type other than varint and bytes, or more fields than a block
            of `MAX_LINKS` has.
    """
    offset = count = 0
    while offset < len(data):
        count += 1
        if count > _MAX_FIELDS:
            raise ValueError(f"more than {_MAX_FIELDS} fields")
        key, offset = decode_varint(data, offset)
        value, offset = decode_varint(data, offset)
        if key & 7 == _VARINT:
            yield key >> 3, value
        elif key & 7 == _BYTES:
            if value > len(data) - offset:
                raise ValueError("truncated protobuf field")
            yield key >> 3, data[offset : offset + value]
            offset += value
        else:
            raise ValueError(f"unsupported protobuf wire type {key & 7}")


def encode_node(node: Node) -> bytes:
    """The canonical block: links first, then data."""
    out = bytearray()
    for link in node.links:
        body = (
            encode_field(_LINK_HASH, link.cid.to_bytes())
            + encode_field(_LINK_NAME, link.name)
            + encode_field(_LINK_TSIZE, link.size)
        )
        out += encode_field(_NODE_LINK, body)
    if node.data is not None:
        out += encode_field(_NODE_DATA, node.data)
    return bytes(out)


def decode_node(block: bytes) -> Node:
    """Decodes a DAG-PB block.

    Raises:
        MalformedDag: not DAG-PB, more than `MAX_LINKS` links, or a link whose CID is of an
            unsupported kind.
    """
    links: list[Link] = []
    data: bytes | None = None
    try:
        for field, value in decode_fields(block):
            if field == _NODE_LINK and isinstance(value, bytes) and len(links) < MAX_LINKS:
                links.append(_decode_link(value))
            elif field == _NODE_DATA and isinstance(value, bytes) and data is None:
                data = value
            else:
                raise ValueError(f"unexpected DAG-PB field {field}")
    except ValueError as error:
        raise MalformedDag(f"malformed DAG-PB block: {error}") from error
    return Node(links, data)


def _decode_link(body: bytes) -> Link:
    fields: dict[int, int | bytes] = {}
    for field, value in decode_fields(body):
        if field in fields or field not in (_LINK_HASH, _LINK_NAME, _LINK_TSIZE):
            raise ValueError(f"unexpected link field {field}")
        fields[field] = value
    cid = fields.pop(_LINK_HASH, None)
    name = fields.pop(_LINK_NAME, b"")
    size = fields.pop(_LINK_TSIZE, 0)
    if not (isinstance(cid, bytes) and isinstance(name, bytes) and isinstance(size, int)):
        raise ValueError("a link has a hash, a name and a size")
    return Link(Cid.from_link(cid), name, size)
