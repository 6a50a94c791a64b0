"""What a gateway knows of files that it expects, and what whoever made one can have it do."""

from __future__ import annotations

import io
import os
from hashlib import sha256
from pathlib import Path

import pytest

from atoll.storage import LEGACY, V1, LocalStore, MalformedDag, Profile
from atoll.storage.cid import DAG_PB, RAW, Cid
from atoll.storage.dagpb import Link, Node, encode_node
from atoll.storage.pushed_files import LEAF_BYTES, LOOKS_PER_S, PushedFiles
from atoll.storage.unixfs import Entry, FileBuilder, build_tree, encode_file_header

MIB = 1 << 20
JUNK = Cid.of(b"of no file")


class CountingStore(LocalStore):
    """Notes how often it is asked for a block."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, sync=False)
        self.asked = 0

    def has(self, cid: Cid) -> bool:
        self.asked += 1
        return super().has(cid)


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(tmp_path)


def node_of(children: list[tuple[Cid, int]]) -> tuple[Cid, bytes]:
    sizes = [size for _, size in children]
    links = [Link(cid, b"", size) for cid, size in children]
    block = encode_node(Node(links, encode_file_header(b"", sum(sizes), sizes)))
    return Cid.of(block, DAG_PB), block


def absent(count: int, codec: int = DAG_PB) -> list[Cid]:
    return [Cid(codec, sha256(b"%d" % n).digest()) for n in range(count)]


def bring(files: PushedFiles, cid: Cid, block: bytes) -> None:
    wanted = files.block(cid, len(block))
    assert wanted is not None
    files.put(wanted, block)


def test_nodes_that_never_come_are_looked_for_a_few_at_a_time(store: CountingStore) -> None:
    """Each block that no file has makes the gateway look, and others' blocks wait for that."""
    now, nodes = 0.0, absent(5000)
    cid, root = node_of([(each, MIB) for each in nodes])
    files = PushedFiles(store, lambda: now)
    files.expect({cid: 5000 * MIB})
    bring(files, cid, root)
    store.asked = 0
    for _ in range(100):
        assert files.block(JUNK, 8) is None
    assert store.asked <= LOOKS_PER_S
    now += 1.0
    for _ in range(100):
        assert files.block(JUNK, 8) is None
    assert store.asked <= 2 * LOOKS_PER_S


def test_each_node_has_its_turn_to_be_looked_for(store: CountingStore) -> None:
    now = 0.0
    leaf = Cid(RAW, sha256(b"a leaf").digest())
    last, block = node_of([(leaf, MIB)])
    cid, root = node_of([(each, MIB) for each in (*absent(3 * LOOKS_PER_S), last)])
    files = PushedFiles(store, lambda: now)
    files.expect({cid: (3 * LOOKS_PER_S + 1) * MIB})
    bring(files, cid, root)
    store.put_block(last, block)  # it was fetched
    seconds = 0
    while files.block(leaf, MIB) is None:
        now, seconds = now + 1.0, seconds + 1
        assert seconds <= 4


def test_a_file_that_may_be_longer_is_looked_at_anew(store: CountingStore) -> None:
    """Another job named it with fewer bytes, by which it can be none."""
    leaf = Cid(RAW, sha256(b"a leaf").digest())
    cid, root = node_of([(leaf, MIB)])
    files = PushedFiles(store)
    files.expect({cid: 1000})
    with pytest.raises(MalformedDag):
        bring(files, cid, root)
    files.expect({cid: 1000})
    assert files.block(cid, len(root)) is None
    files.expect({cid: MIB})
    bring(files, cid, root)
    assert files.block(leaf, MIB) is not None


@pytest.mark.parametrize("codec", [RAW, DAG_PB])
def test_a_file_of_small_nodes_is_not_taken(store: CountingStore, codec: int) -> None:
    """Each that is named costs memory, whether it comes or not."""
    cid, root = node_of([(each, 1024) for each in absent(5000, codec)])
    files = PushedFiles(store)
    files.expect({cid: 5000 * 1024})
    with pytest.raises(MalformedDag, match="more nodes"):
        bring(files, cid, root)


@pytest.mark.parametrize("profile", [V1, LEGACY], ids=lambda profile: profile.name)
@pytest.mark.parametrize("size", [1, LEAF_BYTES, MIB + 1, 47 * MIB + 5])
def test_files_are_taken_as_they_are_laid_out(
    store: CountingStore, profile: Profile, size: int
) -> None:
    blocks: dict[Cid, bytes] = {}
    data = os.urandom(MIB) * (size // MIB) + os.urandom(size % MIB)
    root = build_tree(io.BytesIO(data), lambda cid, b: blocks.update({cid: bytes(b)}), profile).cid
    files = PushedFiles(store)
    files.expect({root: size})
    for cid in reversed(blocks):  # a node before what it names
        bring(files, cid, blocks[cid])
    assert store.read_bytes(root, size) == data


@pytest.mark.parametrize("profile", [V1, LEGACY], ids=lambda profile: profile.name)
def test_files_of_many_leaves_are_taken(store: CountingStore, profile: Profile) -> None:
    nodes: dict[Cid, bytes] = {}
    builder = FileBuilder(lambda cid, block: nodes.update({cid: bytes(block)}), profile)
    codec = RAW if profile.raw_leaves else DAG_PB
    size, leaves = profile.chunk_bytes, absent(70000, codec)
    for leaf in leaves:
        builder.add_leaf(Entry(leaf, size, size))
    root = builder.finish().cid
    files = PushedFiles(store)
    files.expect({root: 70000 * size})
    for cid in reversed(nodes):
        bring(files, cid, nodes[cid])
    assert files.block(leaves[-1], size) is not None
