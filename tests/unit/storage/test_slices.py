"""A file in the store as bytes of which slices are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atoll.errors import CorruptBlock, NotFound, TooLarge
from atoll.storage.cid import DAG_PB, RAW, Cid
from atoll.storage.dagpb import Link, Node, encode_node
from atoll.storage.errors import MalformedDag
from atoll.storage.local import LocalStore
from atoll.storage.slices import FileSlices
from atoll.storage.unixfs import LEGACY, Child, Profile, encode_file_header

MIB = 1 << 20
DATA = os.urandom(2 * MIB + 300_001)
SPANS = [
    slice(0, None), slice(0, 0), slice(0, 1), slice(MIB - 1, MIB + 1), slice(MIB, 2 * MIB),
    slice(5, 2 * MIB + 7), slice(-3, None), slice(len(DATA), None), slice(9, 3),
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.mark.parametrize("data", [DATA, DATA[: 2 * MIB], DATA[:MIB], b"x", b""], ids=len)
def test_slices_are_those_of_the_bytes(store: LocalStore, data: bytes) -> None:
    file = FileSlices(store, store.add_bytes(data), len(DATA))
    assert len(file) == len(data)
    for span in SPANS:
        assert file[span] == data[span], span


@pytest.mark.parametrize(
    "profile",
    [
        LEGACY,
        Profile("shorter leaves", MIB // 2, 1024, raw_leaves=True, cid_version=1),
        Profile("longer leaves", 2 * MIB, 1024, raw_leaves=True, cid_version=1),
        Profile("narrower nodes", MIB, 2, raw_leaves=True, cid_version=1),
        Profile("wrapped leaves", MIB, 1024, raw_leaves=False, cid_version=1),
    ],
    ids=lambda profile: profile.name,
)
def test_the_same_bytes_in_another_layout_are_refused(store: LocalStore, profile: Profile) -> None:
    other = store.add_bytes(DATA, profile)
    assert b"".join(store.iter_bytes(other, len(DATA))) == DATA
    with pytest.raises(MalformedDag, match=r"laid out|outside of raw leaves|links to an empty"):
        FileSlices(store, other, len(DATA))


def test_a_file_with_an_empty_leaf_at_its_end_is_refused(store: LocalStore) -> None:
    cid = store.add_bytes(DATA[:MIB])
    empty = store.add_bytes(b"")
    longer = store.join_leaves([Child(cid, MIB), Child(empty, 0)])
    with pytest.raises(MalformedDag):
        FileSlices(store, longer, len(DATA))


def repeating(store: LocalStore, leaf: bytes, links: int, depth: int) -> tuple[Cid, int]:
    """A file of one leaf that each node names again and again, and the bytes that it claims."""
    cid, size = store.add_block(leaf), len(leaf)
    for _ in range(depth):
        header = encode_file_header(b"", size * links, [size] * links)
        cid = store.add_block(encode_node(Node([Link(cid, b"", size)] * links, header)), DAG_PB)
        size *= links
    return cid, size


@pytest.mark.parametrize("leaf", [b"x" * 4096, b"x" * (MIB // 4)], ids=len)
def test_no_list_is_made_of_what_a_few_nodes_name_again_and_again(
    store: LocalStore, leaf: bytes
) -> None:
    cid, size = repeating(store, leaf, 256, 2)
    with pytest.raises(MalformedDag, match="more nodes than a file of its size needs"):
        store.leaves(cid, size)
    with pytest.raises(MalformedDag, match="more nodes than a file of its size needs"):
        FileSlices(store, cid, size)


def test_a_node_without_children_is_no_file_that_everybody_lays_out_so(store: LocalStore) -> None:
    cid = store.add_block(encode_node(Node([], encode_file_header(b"", 0, []))), DAG_PB)
    assert store.read_bytes(cid, 100) == b""
    with pytest.raises(MalformedDag, match="laid out"):
        FileSlices(store, cid, 100)


def test_slices_have_no_steps(store: LocalStore) -> None:
    with pytest.raises(ValueError, match="one after another"):
        FileSlices(store, store.add_bytes(DATA), len(DATA))[::2]


def test_what_is_too_large_no_file_or_not_here_is_refused(store: LocalStore) -> None:
    cid = store.add_bytes(DATA)
    with pytest.raises(TooLarge):
        FileSlices(store, cid, len(DATA) - 1)
    with pytest.raises(NotFound):
        FileSlices(store, Cid.of(b"elsewhere", RAW), 100)
    folder = encode_node(Node((Link(cid, b"name", 5),), b"\x08\x01"))
    with pytest.raises(MalformedDag):
        FileSlices(store, store.add_block(folder, 0x70), 100)


def test_a_damaged_leaf_is_found_when_it_is_read(store: LocalStore) -> None:
    cid = store.add_bytes(DATA)
    last = store.leaves(cid, len(DATA))[-1]
    (place,) = (p for p in store.root.rglob("*") if p.is_file() and p.stat().st_size == 300_001)
    raw = bytearray(place.read_bytes())
    raw[7] ^= 1
    place.chmod(0o600)
    place.write_bytes(raw)
    file = FileSlices(store, cid, len(DATA))
    assert file[: 2 * MIB] == DATA[: 2 * MIB]
    with pytest.raises(CorruptBlock):
        file[2 * MIB :]
    assert not store.has(last.cid)


@pytest.mark.parametrize("left", [b"", DATA[:9], DATA[:1000] + b"more"], ids=len)
def test_an_only_leaf_that_was_torn_is_damaged_and_not_another_file(
    store: LocalStore, left: bytes
) -> None:
    cid = store.add_bytes(DATA[:1000])
    place = next(store.root.rglob(cid.digest.hex()))
    place.chmod(0o600)
    place.write_bytes(left)
    with pytest.raises(CorruptBlock):
        FileSlices(store, cid, 1000)
    assert not store.has(cid)


def turn_bit(store: LocalStore, leaf: Child, at: int) -> None:
    """Turns the lowest bit of a byte of a block where it lies."""
    place = next(store.root.rglob(leaf.cid.digest.hex()))
    with place.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("at", [0, 4095, 4096, 300_000])
def test_a_bit_that_turns_after_the_first_read_is_found(store: LocalStore, at: int) -> None:
    cid = store.add_bytes(DATA)
    last = store.leaves(cid, len(DATA))[-1]
    file, begin = FileSlices(store, cid, len(DATA)), 2 * MIB
    assert file[:] == DATA
    turn_bit(store, last, at)
    other = begin + (at + 8192) % 300_001  # of a page that nobody touched
    assert file[other : other + 1] == DATA[other : other + 1]
    with pytest.raises(CorruptBlock):
        file[begin + at : begin + at + 1]
    assert not store.has(last.cid)


def test_what_is_written_anew_is_read_as_before(store: LocalStore) -> None:
    """A turned bit costs nothing where somebody has put the block right meanwhile."""
    cid = store.add_bytes(DATA)
    leaf = store.leaves(cid, len(DATA))[0]
    file = FileSlices(store, cid, len(DATA))
    assert file[:9] == DATA[:9]
    turn_bit(store, leaf, 5)
    store.put_block(leaf.cid, DATA[:MIB])
    assert file[:9] == DATA[:9]
