"""Files as trees of blocks, the same tree whoever builds it.

UnixFS 1 (https://specs.ipfs.tech/unixfs/), balanced layout. `V1` is what Atoll publishes: CIDv1,
raw leaves of 1 MiB, 1024 links a node. `LEGACY` is what Kubo has long produced by default: CIDv0,
leaves of 256 KiB wrapped in DAG-PB, 174 links a node. Reading accepts any balanced or trickle file
of known codecs.

Both directions stream: memory is one chunk and one open node a level, whatever the file's size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Protocol

from atoll.errors import TooLarge
from atoll.storage.cid import DAG_CBOR, DAG_PB, RAW, Cid
from atoll.storage.dagpb import (
    MAX_LINKS,
    Link,
    Node,
    decode_fields,
    decode_node,
    encode_field,
    encode_node,
)
from atoll.storage.errors import MalformedDag
from atoll.storage.varint import decode_varint

MAX_BLOCK_BYTES = 2 << 20  # what Bitswap and public gateways carry
MAX_DEPTH = 32  # a balanced file of 2 links a node this deep exceeds 2**52 bytes
_NODE_BYTES = 128  # at most, of a node without its data: a link to it, its size, its own header

Buffer = bytes | memoryview
BlockSink = Callable[[Cid, Buffer], None]
BlockSource = Callable[[Cid], bytes]


class Readable(Protocol):
    """What a file is read from: any binary file object."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Reads into the buffer; returns how many bytes, 0 at the end."""


class UnixFsKind(IntEnum):
    """UnixFS node types."""

    RAW = 0
    DIRECTORY = 1
    FILE = 2
    METADATA = 3
    SYMLINK = 4
    HAMT = 5


@dataclass(frozen=True, slots=True)
class Profile:
    """The parameters on which a file's CID depends."""

    name: str
    chunk_bytes: int
    max_links: int
    raw_leaves: bool
    cid_version: int

    def name_block(self, block: Buffer, codec: int) -> Cid:
        """The CID of a block that is made by this profile."""
        return Cid(codec, hashlib.sha256(block).digest(), self.cid_version)


V1 = Profile("v1", 1 << 20, 1024, raw_leaves=True, cid_version=1)
LEGACY = Profile("legacy", 1 << 18, 174, raw_leaves=False, cid_version=0)
PROFILES = {profile.name: profile for profile in (V1, LEGACY)}


@dataclass(frozen=True, slots=True)
class Added:
    """A file or folder as it was written: root, file bytes, and blocks it took, repeats counted."""

    cid: Cid
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A subtree as its parent sees it: file bytes below, and encoded bytes below (`Link.size`)."""

    cid: Cid
    file_bytes: int
    tree_bytes: int


@dataclass(frozen=True, slots=True)
class Child:
    """A child of a file node, and the file bytes its parent says lie below it."""

    cid: Cid
    file_bytes: int


@dataclass(frozen=True, slots=True)
class FileNode:
    """One decoded node of a file: its own bytes come before its children's."""

    data: bytes
    children: tuple[Child, ...]

    @property
    def file_bytes(self) -> int:
        """File bytes at and below this node."""
        return len(self.data) + sum(child.file_bytes for child in self.children)


class FileBuilder:
    """Builds a file's tree from its chunks, giving each finished block to `sink`."""

    def __init__(self, sink: BlockSink, profile: Profile = V1) -> None:
        self._sink = sink
        self._profile = profile
        self._levels: list[list[Entry]] = [[]]

    def add_leaf(self, leaf: Entry) -> None:
        """Appends the file's next leaf, which the caller made of its next chunk."""
        self._push(0, leaf)

    def finish(self) -> Entry:
        """Closes every open node; returns the root. A file has at least one leaf."""
        level = 0
        while len(self._levels[level]) > 1 or level + 1 < len(self._levels):
            self._push(level + 1, self._close(level))
            level += 1
        return self._levels[level][0]

    def _push(self, level: int, entry: Entry) -> None:
        if level == len(self._levels):
            self._levels.append([])
        if len(self._levels[level]) == self._profile.max_links:
            self._push(level + 1, self._close(level))
        self._levels[level].append(entry)

    def _close(self, level: int) -> Entry:
        entries, self._levels[level] = self._levels[level], []
        size = sum(entry.file_bytes for entry in entries)
        header = encode_file_header(b"", size, [entry.file_bytes for entry in entries])
        block = encode_node(Node([Link(e.cid, b"", e.tree_bytes) for e in entries], header))
        cid = self._profile.name_block(block, DAG_PB)
        self._sink(cid, block)
        return Entry(cid, size, len(block) + sum(entry.tree_bytes for entry in entries))


def root_of(leaves: Iterable[Child], profile: Profile = V1) -> Cid:
    """The CID of the file with these raw leaves; nothing of it is stored."""
    builder = FileBuilder(lambda *_: None, profile)
    for leaf in leaves:
        builder.add_leaf(Entry(leaf.cid, leaf.file_bytes, leaf.file_bytes))
    return builder.finish().cid


def encode_leaf(chunk: Buffer, profile: Profile) -> tuple[Buffer, int]:
    """The block that holds a file's chunk, and its codec."""
    if profile.raw_leaves:
        return chunk, RAW
    return encode_node(Node([], encode_file_header(chunk, len(chunk), []))), DAG_PB


def build_tree(stream: Readable, sink: BlockSink, profile: Profile = V1) -> Entry:
    """Reads `stream` to its end and gives every block of its tree to `sink`, children first."""
    builder = FileBuilder(sink, profile)
    buffer, first = memoryview(bytearray(profile.chunk_bytes)), True
    while (size := fill(stream, buffer)) or first:
        block, codec = encode_leaf(bytes(buffer[:size]), profile)
        cid = profile.name_block(block, codec)
        sink(cid, block)
        builder.add_leaf(Entry(cid, size, len(block)))
        first = False
    return builder.finish()


def fill(stream: Readable, buffer: memoryview) -> int:
    """Fills the buffer, less only at the stream's end (pipes give less); returns the bytes read."""
    filled = 0
    while filled < len(buffer) and (read := stream.readinto(buffer[filled:])):
        filled += read
    return filled


def encode_file_header(data: Buffer, file_bytes: int, sizes: Iterable[int]) -> bytes:
    """The UnixFS message of a file node: its data, bytes in all, and each child's bytes."""
    body = encode_field(1, UnixFsKind.FILE.value)
    if data:
        body += encode_field(2, data)
    body += encode_field(3, file_bytes)
    return body + b"".join(encode_field(4, size) for size in sizes)


def decode_header(data: bytes | None) -> tuple[UnixFsKind, bytes, int | None, list[int]]:
    """Decodes a UnixFS message: (kind, data, file bytes if given, bytes of each child).

    Raises:
        MalformedDag: not UnixFS.
    """
    fields: dict[int, int | bytes] = {}
    sizes: list[int] = []
    try:
        for field, value in decode_fields(data or b""):
            if field == 4:
                given = iter([value]) if isinstance(value, int) else _unpack(value)
                sizes.extend(islice(given, MAX_LINKS + 1 - len(sizes)))
                if len(sizes) > MAX_LINKS:
                    raise ValueError(f"more than {MAX_LINKS} sizes")
            elif field in fields:
                raise ValueError(f"field {field} twice")
            else:
                fields[field] = value
        kind, content, file_bytes = fields.get(1), fields.get(2, b""), fields.get(3)
        if not isinstance(kind, int) or isinstance(content, int) or isinstance(file_bytes, bytes):
            raise ValueError("no kind, or a field of another type")
        return UnixFsKind(kind), content, file_bytes, sizes
    except ValueError as error:
        raise MalformedDag(f"malformed UnixFS node: {error}") from error


def _unpack(packed: bytes) -> Iterator[int]:
    offset = 0
    while offset < len(packed):
        size, offset = decode_varint(packed, offset)
        yield size


def decode_file_node(cid: Cid, block: bytes) -> FileNode:
    """Decodes one block of a file; a DAG-CBOR document counts as a file of its own bytes.

    Raises:
        MalformedDag: not a file, or its sizes contradict each other.
    """
    if cid.codec in (RAW, DAG_CBOR):
        return FileNode(block, ())
    node = decode_node(block)
    kind, data, file_bytes, sizes = decode_header(node.data)
    if kind not in (UnixFsKind.FILE, UnixFsKind.RAW):
        raise MalformedDag(f"{cid} is a {kind.name.lower()}, not a file")
    if len(sizes) != len(node.links):
        raise MalformedDag(f"{cid} has {len(node.links)} links and {len(sizes)} sizes")
    if 0 in sizes:
        raise MalformedDag(f"{cid} links to an empty child")
    children = tuple(Child(link.cid, size) for link, size in zip(node.links, sizes, strict=True))
    decoded = FileNode(data, children)
    if file_bytes is not None and file_bytes != decoded.file_bytes:
        raise MalformedDag(f"{cid} claims {file_bytes} bytes and holds {decoded.file_bytes}")
    return decoded


class FileWalk:
    """Checks a file's nodes as they arrive, in any order, against what their parents claimed.

    One walk is one file. It bounds what a hostile tree can cost: file bytes by `max_bytes`; nodes,
    raw leaves among them, by the file's size, since a tree may repeat one tiny block without end;
    and what nodes hold beside file bytes by their number. Repeats count each time.

    Args:
        root: the file.
        max_bytes: how much it may have.
        leaf_bytes: that each of its leaves has, save the last; None where they may be shorter, a
            KiB on average.
    """

    def __init__(self, root: Cid, max_bytes: int, leaf_bytes: int | None = None) -> None:
        self.root = root
        self._max_bytes = max_bytes
        self._leaf_bytes = leaf_bytes
        self._nodes_left = 0
        self._bytes_left = 0

    def visit(self, cid: Cid, block: bytes, claimed_bytes: int | None, depth: int) -> FileNode:
        """Decodes and checks one node.

        Args:
            cid: the node's CID.
            block: its bytes, already checked against `cid`.
            claimed_bytes: the file bytes its parent gave it; None for the root.
            depth: edges from the root.

        Raises:
            TooLarge: the file exceeds `max_bytes`.
            MalformedDag: not a file, or a tree that no importer builds.
        """
        node = decode_file_node(cid, block)
        if claimed_bytes is None:
            if node.file_bytes > self._max_bytes:
                raise TooLarge(
                    f"{cid} holds {node.file_bytes} bytes, more than the {self._max_bytes} allowed"
                )
            self._nodes_left = self._most_nodes(node.file_bytes)
            self._bytes_left = _NODE_BYTES * (1 + self._nodes_left)
        elif node.file_bytes != claimed_bytes:
            raise MalformedDag(
                f"{cid} holds {node.file_bytes} bytes, its parent says {claimed_bytes}"
            )
        self._nodes_left -= len(node.children)
        self._bytes_left -= len(block) - len(node.data)
        if min(self._nodes_left, self._bytes_left) < 0 or depth > MAX_DEPTH:
            raise MalformedDag(f"{self.root} has more nodes than a file of its size needs")
        return node

    def _most_nodes(self, file_bytes: int) -> int:
        """Below a root; a node above the leaves has two below it, save at the file's end."""
        if self._leaf_bytes is not None:
            return 2 * -(-file_bytes // self._leaf_bytes) + MAX_DEPTH
        # A leaf has a byte at least.
        return min(2 * file_bytes + MAX_DEPTH, 1024 + file_bytes // 1024)


def iter_parts(
    get_block: BlockSource, root: Cid, max_bytes: int, leaf_bytes: int | None = None
) -> Iterator[bytes | Child]:
    """A file's parts in order: bytes, or a raw leaf that has not been looked at.

    Whoever reads such a leaf refuses it where it has not the bytes that its parent claims.

    Args:
        get_block: gives the nodes.
        root, max_bytes, leaf_bytes: as `FileWalk` has them.

    Raises:
        TooLarge, MalformedDag, NotFound, CorruptBlock: as `iter_file`.
    """
    walk = FileWalk(root, max_bytes, leaf_bytes)
    stack: list[tuple[Child | None, int]] = [(None, 0)]
    while stack:
        child, depth = stack.pop()
        if child is not None and child.cid.codec == RAW and child.cid.inline is None:
            yield child
            continue
        cid, claimed = (root, None) if child is None else (child.cid, child.file_bytes)
        node = walk.visit(cid, get_block(cid), claimed, depth)
        if node.data:
            yield node.data
        stack.extend((below, depth + 1) for below in reversed(node.children))


def check_leaf(leaf: Child, size: int) -> None:
    """Raises MalformedDag where a raw leaf of `size` bytes is not what its parent says."""
    if size != leaf.file_bytes:
        raise MalformedDag(f"{leaf.cid} holds {size} bytes, its parent says {leaf.file_bytes}")


def iter_file(get_block: BlockSource, root: Cid, max_bytes: int) -> Iterator[bytes]:
    """Yields a file's bytes in order, one leaf at a time.

    Raises:
        TooLarge: the file exceeds `max_bytes`; raised before anything is yielded.
        MalformedDag: not a file.
        NotFound, CorruptBlock: from `get_block`.
    """
    for part in iter_parts(get_block, root, max_bytes):
        if isinstance(part, Child):
            block = get_block(part.cid)
            check_leaf(part, len(block))
            yield block
        else:
            yield part
