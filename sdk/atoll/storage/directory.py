"""Folders as trees of blocks: UnixFS directories, and paths through them.

A directory block lists its entries by name in byte order. Directories whose names and CIDs together
exceed 256 KiB would be sharded by every IPFS importer; they are read here, and not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from atoll.errors import NotFound, StorageError, TooLarge
from atoll.storage.cid import DAG_PB, Cid
from atoll.storage.dagpb import Link, Node, decode_node, encode_field, encode_node
from atoll.storage.errors import MalformedDag
from atoll.storage.unixfs import (
    BlockSink,
    BlockSource,
    Entry,
    Profile,
    Readable,
    UnixFsKind,
    build_tree,
    decode_header,
)

FileMaker = Callable[[Readable], Entry]

SHARDING_BYTES: Final = 1 << 18  # where Kubo begins to, so that the same folder has one CID
MAX_NAME_BYTES: Final = 255  # of every common file system
MAX_FOLDER_DEPTH: Final = 64
_SHARD_PREFIX: Final = (
    2  # hexadecimal digits before each name in a sharded directory of 256 buckets
)


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name in a directory.

    Attributes:
        name: safe as a file name: one component, neither `.` nor `..`, no separator or NUL.
        cid: what it names.
        tree_bytes: bytes of all blocks below, as the directory's maker claims.
    """

    name: str
    cid: Cid
    tree_bytes: int


def build_directory(entries: dict[str, Entry], sink: BlockSink, profile: Profile) -> Entry:
    """Writes one directory block; `file_bytes` of the result is the sum of its entries'.

    Raises:
        TooLarge: so many names that importers would shard it.
    """
    links = [Link(e.cid, name.encode(), e.tree_bytes) for name, e in entries.items()]
    links.sort(key=lambda link: link.name)
    if sum(len(link.name) + len(link.cid.to_bytes()) for link in links) > SHARDING_BYTES:
        raise TooLarge(
            f"a folder of {len(links)} entries needs a sharded directory",
            next_step="put the files into several folders",
        )
    block = encode_node(Node(links, encode_field(1, UnixFsKind.DIRECTORY.value)))
    cid = profile.name_block(block, DAG_PB)
    sink(cid, block)
    tree_bytes = len(block) + sum(link.size for link in links)
    return Entry(cid, sum(entry.file_bytes for entry in entries.values()), tree_bytes)


def build_path(
    path: Path, sink: BlockSink, profile: Profile, build_file: FileMaker | None = None
) -> Entry:
    """Writes a file, or a folder with everything below it.

    Args:
        path: where it is.
        sink: takes the blocks.
        profile: decides the CIDs.
        build_file: writes one file; None does it as `build_tree`.

    Raises:
        NotFound: nothing is there.
        StorageError: a symbolic link or a device is below.
        TooLarge: a folder that needs sharding.
    """
    if path.is_dir():
        inside = sorted(path.iterdir())
        for below in inside:
            if below.is_symlink():
                raise StorageError(f"{below} is a symbolic link; only files and folders are stored")
        entries = {below.name: build_path(below, sink, profile, build_file) for below in inside}
        return build_directory(entries, sink, profile)
    if path.exists() and not path.is_file():
        raise StorageError(f"{path} is neither a file nor a folder")
    try:
        with path.open("rb") as stream:
            return build_file(stream) if build_file else build_tree(stream, sink, profile)
    except FileNotFoundError:
        raise NotFound(f"no file at {path}") from None


def is_directory(cid: Cid, block: bytes) -> bool:
    """Whether a block is the root of a directory, sharded or not."""
    if cid.codec != DAG_PB:
        return False
    return decode_header(decode_node(block).data)[0] in (UnixFsKind.DIRECTORY, UnixFsKind.HAMT)


def list_links(cid: Cid, block: bytes) -> list[Cid]:
    """What one directory block names: entries, and further shards of it.

    Raises:
        MalformedDag: not DAG-PB.
    """
    return [link.cid for link in decode_node(block).links] if cid.codec == DAG_PB else []


def list_directory(get_block: BlockSource, root: Cid) -> Iterator[DirectoryEntry]:
    """The entries of a directory, in the order of its blocks: depth first, links in order.

    Raises:
        MalformedDag: not a directory, a name that is no file name or occurs twice, endless shards.
        NotFound, CorruptBlock: from `get_block`.
    """
    return (entry for entry, _ in _list_shards(get_block, root))


def _list_shards(
    get_block: BlockSource, root: Cid
) -> Iterator[tuple[DirectoryEntry, tuple[Cid, ...]]]:
    """The entries of a directory, each with the blocks that lead to it, `root` first."""
    names: set[str] = set()
    opened: set[Cid] = set()
    shards: list[tuple[Cid, ...]] = [(root,)]
    while shards:
        chain = shards.pop()
        cid, depth = chain[-1], len(chain) - 1
        if cid in opened:
            raise MalformedDag(f"{root} holds a shard twice")
        opened.add(cid)
        node = decode_node(get_block(cid))
        kind, _, _, _ = decode_header(node.data)
        if kind not in (UnixFsKind.DIRECTORY, UnixFsKind.HAMT) or (
            depth and kind is UnixFsKind.DIRECTORY
        ):
            raise MalformedDag(f"{cid} is a {kind.name.lower()}, not a directory")
        if depth > MAX_FOLDER_DEPTH:
            raise MalformedDag(f"{root} has endless shards")
        prefix = _SHARD_PREFIX if kind is UnixFsKind.HAMT else 0
        below = []
        for link in node.links:
            if prefix and len(link.name) <= prefix:
                below.append((*chain, link.cid))
                continue
            name = check_name(link.name[prefix:])
            if name in names:
                raise MalformedDag(f"{root} has two entries of one name")
            names.add(name)
            yield DirectoryEntry(name, link.cid, link.size), chain
        shards.extend(reversed(below))


def check_name(raw: bytes) -> str:
    """A directory entry's name as text that is safe to use as a file's name.

    Raises:
        MalformedDag: it is not.
    """
    try:
        name = raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedDag("a directory entry's name is not UTF-8") from error
    if not 1 <= len(raw) <= MAX_NAME_BYTES or name in (".", "..") or set(name) & set("/\\\0"):
        raise MalformedDag(f"a directory entry cannot be called {name[:40]!r}")
    return name


def resolve_path(get_block: BlockSource, root: Cid, path: str) -> tuple[Cid, dict[Cid, bytes]]:
    """Follows `a/b/c` down from `root`; returns the CID it ends at and the blocks it led through.

    Of a sharded directory only the shards on the way to the name are among them.

    Raises:
        NotFound: a component does not exist.
        MalformedDag: a component leads through something that is not a directory.
    """
    through: dict[Cid, bytes] = {}
    for name in filter(None, path.split("/")):
        listed = _list_shards(get_block, root)
        entry = next(((e.cid, chain) for e, chain in listed if e.name == name), None)
        if entry is None:
            raise NotFound(f"{root} has no entry {name!r}")
        root, chain = entry
        through |= {cid: get_block(cid) for cid in chain if cid.inline is None}
    return root, through


def walk_files(
    get_block: BlockSource, root: Cid, visit: Callable[[tuple[str, ...], Cid], None]
) -> None:
    """Calls `visit(path components, cid)` for each file below a directory, folders in order.

    Raises:
        MalformedDag: as `list_directory`, or folders nested deeper than any file system allows.
    """
    stack: list[tuple[tuple[str, ...], Cid]] = [((), root)]
    while stack:
        path, cid = stack.pop()
        if not is_directory(cid, get_block(cid)):
            visit(path, cid)
            continue
        if len(path) > MAX_FOLDER_DEPTH:
            raise MalformedDag(f"{root} nests folders too deep")
        stack.extend(((*path, e.name), e.cid) for e in list_directory(get_block, cid))
