"""File trees: known CIDs, shape at every boundary, and hostile trees."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from atoll.errors import TooLarge
from atoll.storage import DAG_CBOR, DAG_PB, LEGACY, V1, Cid, MalformedDag, block_links
from atoll.storage.dagpb import MAX_LINKS, Link, Node, decode_node, encode_field, encode_node
from atoll.storage.scope import blocks_in_scope
from atoll.storage.unixfs import Profile, build_tree, decode_header, encode_file_header, iter_file

SMALL_V1 = replace(V1, chunk_bytes=4, max_links=3)
SMALL_LEGACY = replace(LEGACY, chunk_bytes=4, max_links=3)


def build(data: bytes, profile: Profile) -> tuple[Cid, dict[Cid, bytes]]:
    blocks: dict[Cid, bytes] = {}
    added = build_tree(io.BytesIO(data), blocks.__setitem__, profile)
    assert added.file_bytes == len(data)
    return added.cid, blocks


def test_empty_file() -> None:
    assert str(build(b"", V1)[0]) == "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
    assert str(build(b"", LEGACY)[0]) == "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH"


def test_kubos_hello_world() -> None:
    legacy = build(b"hello world\n", LEGACY)[0]
    assert str(legacy) == "QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o"


@pytest.mark.parametrize("profile", [SMALL_V1, SMALL_LEGACY])
@pytest.mark.parametrize("size", [*range(60), 4 * 27, 4 * 27 + 1, 4 * 81, 4 * 82])
def test_every_size_reads_back(profile: Profile, size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    root, blocks = build(data, profile)
    assert b"".join(iter_file(blocks.__getitem__, root, size)) == data
    with pytest.raises(TooLarge):
        next(iter_file(blocks.__getitem__, root, size - 1), None)


def test_short_reads_do_not_change_the_tree() -> None:
    class Pipe(io.BytesIO):
        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            return super().readinto(buffer[:3])

    data = bytes(range(200))
    assert build_tree(Pipe(data), lambda *_: None, SMALL_V1).cid == build(data, SMALL_V1)[0]


def file_node(children: list[tuple[Cid, int]], total: int | None = None) -> bytes:
    sizes = [size for _, size in children]
    header = encode_file_header(b"", sum(sizes) if total is None else total, sizes)
    return encode_node(Node([Link(cid, b"", size) for cid, size in children], header))


def read_all(root: Cid, blocks: dict[Cid, bytes], max_bytes: int = 1 << 30) -> bytes:
    return b"".join(iter_file(blocks.__getitem__, root, max_bytes))


def test_refuses_a_size_that_lies() -> None:
    leaf = Cid.of(b"leaf")
    for block in (file_node([(leaf, 5)]), file_node([(leaf, 4)], total=3), file_node([(leaf, 0)])):
        root = Cid.of(block, DAG_PB)
        with pytest.raises(MalformedDag):
            read_all(root, {root: block, leaf: b"leaf"})


def test_refuses_a_small_file_of_endless_nodes() -> None:
    blocks = {(cid := Cid.of(b"x")): b"x"}
    for _ in range(200):  # a chain: one byte under 200 nodes
        block = file_node([(cid, 1)])
        cid = Cid.of(block, DAG_PB)
        blocks[cid] = block
    with pytest.raises(MalformedDag):
        read_all(cid, blocks)


def test_refuses_repeating_one_byte_a_million_times() -> None:
    blocks, size = {(cid := Cid.of(b"x")): b"x"}, 1
    for _ in range(5):
        block = file_node([(cid, size)] * 16)
        cid, size = Cid.of(block, DAG_PB), size * 16
        blocks[cid] = block
    with pytest.raises(MalformedDag):
        read_all(cid, blocks)


def test_refuses_leaves_that_repeat_beyond_the_files_size() -> None:
    leaf = Cid.of(b"x")
    node = file_node([(leaf, 1)] * 1000)
    below = Cid.of(node, DAG_PB)
    root = file_node([(below, 1000)] * 8)
    cid = Cid.of(root, DAG_PB)
    with pytest.raises(MalformedDag, match="more nodes"):
        read_all(cid, {cid: root, below: node, leaf: b"x"})


def test_refuses_nodes_that_hold_much_beside_the_file() -> None:
    leaf = Cid.of(b"x")
    root = encode_node(Node([Link(leaf, b"n" * 10_000, 1)], encode_file_header(b"", 1, [1])))
    cid = Cid.of(root, DAG_PB)
    with pytest.raises(MalformedDag, match="more nodes"):
        read_all(cid, {cid: root, leaf: b"x"})


@pytest.mark.parametrize(
    "field", [encode_field(1, 2), encode_field(2, b"x"), encode_field(3, 1), encode_field(7, 420)]
)
def test_refuses_a_field_that_comes_twice(field: bytes) -> None:
    once = encode_field(1, 2) if field[0] != 8 else b""
    assert decode_header(once + field)[0] == 2
    with pytest.raises(MalformedDag, match="twice"):
        decode_header(once + field + field)


def test_a_node_has_so_many_links_and_no_more() -> None:
    link = Link(Cid.of(b"x"), b"", 1)
    for count in (MAX_LINKS, MAX_LINKS + 1):
        is_one_too_many = count > MAX_LINKS
        block = encode_node(Node([link] * count, encode_field(1, 2)))
        sizes = encode_file_header(b"", count, [1] * count)
        packed = encode_field(1, 2) + encode_field(4, bytes([1]) * count)
        for decode, data in ((decode_node, block), (decode_header, sizes), (decode_header, packed)):
            if is_one_too_many:
                with pytest.raises(MalformedDag):
                    decode(data)
            else:
                decode(data)


@pytest.mark.parametrize(
    "block",
    [
        encode_field(2, b"".join(encode_field(number, 1) for number in range(1, 9))),
        encode_field(1, encode_field(1, 2) + encode_field(4, b"") * (MAX_LINKS + 20)),
        encode_field(1, encode_field(1, 2) + encode_field(4, bytes([1]) * MAX_LINKS) * 2),
    ],
    ids=["a link of other fields", "endless fields", "two lists of sizes"],
)
def test_refuses_fields_that_nobody_needs(block: bytes) -> None:
    root = Cid.of(block, DAG_PB)
    with pytest.raises(MalformedDag, match="malformed"):
        read_all(root, {root: block})


@pytest.mark.parametrize("scope", ["all", "entity"])
def test_a_walk_holds_so_many_links_and_no_more(
    scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node of a chain leaves its other links to be followed later."""
    monkeypatch.setattr(block_links, "MAX_PENDING", 100)
    blocks = {(leaf := Cid.of(b"x")): b"x"}
    cid, size, walked = leaf, 1, []
    for depth in range(1, 13):
        block = file_node([(cid, size), *[(leaf, 1)] * 9])
        cid, size = Cid.of(block, DAG_PB), size + 9
        blocks[cid] = block
        walked.append(cid)
        if depth <= 11:
            assert len(dict(blocks_in_scope(blocks.__getitem__, cid, scope, None))) == depth + 1
    with pytest.raises(MalformedDag, match="more links"):
        list(blocks_in_scope(blocks.__getitem__, cid, scope, None))


@pytest.mark.parametrize("extra", [0, 1])
def test_a_cbor_block_has_so_many_items_and_no_more(extra: int) -> None:
    """The array is one of them; the rest are numbers of one byte."""
    numbers = block_links.MAX_ITEMS - 1 + extra
    block = b"\x9a" + numbers.to_bytes(4, "big") + bytes(numbers)
    if extra:
        with pytest.raises(MalformedDag, match="more than 262144 items"):
            block_links.links_of(Cid.of(block, DAG_CBOR), block)
    else:
        assert block_links.links_of(Cid.of(block, DAG_CBOR), block) == []


def test_refuses_directories_and_noise() -> None:
    for block in (b"\x0a\x02\x08\x01", b"\xff\xff", b"", b"\x0a\x02\x08\x63", b"\x12\x01\x00"):
        root = Cid.of(block, DAG_PB)
        with pytest.raises(MalformedDag):
            read_all(root, {root: block})


def test_reads_packed_sizes() -> None:
    assert decode_header(b"\x08\x02\x22\x03\x01\x02\x03")[3] == [1, 2, 3]
