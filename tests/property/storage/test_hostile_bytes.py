"""Whatever bytes arrive, decoding ends in a value or in one of our errors, within its caps."""

from __future__ import annotations

import io
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from libipld import decode_cid, encode_cid

from atoll.errors import CorruptBlock, StorageError, TooLarge
from atoll.protocol.canonical import CidLink, encode
from atoll.storage import DAG_CBOR, DAG_PB, LEGACY, RAW, V1, Cid, MalformedDag
from atoll.storage.block_links import cbor_links, links_of
from atoll.storage.car import CarReader, encode_car
from atoll.storage.dagpb import Link, Node, decode_node, encode_node
from atoll.storage.directory import build_directory, check_name, list_directory
from atoll.storage.scope import Range, blocks_in_scope
from atoll.storage.unixfs import Profile, build_tree, decode_header, iter_file
from atoll.storage.varint import decode_varint, encode_varint

CODECS = st.sampled_from([RAW, DAG_PB, DAG_CBOR])
CIDS = st.builds(Cid.of, st.binary(max_size=8), CODECS)
PROFILES = st.builds(
    lambda base, chunk, links: replace(base, chunk_bytes=chunk, max_links=links),
    st.sampled_from([V1, LEGACY]),
    st.integers(1, 64),
    st.integers(2, 9),
)


def build(data: bytes, profile: Profile) -> tuple[Cid, dict[Cid, bytes]]:
    blocks: dict[Cid, bytes] = {}
    return build_tree(io.BytesIO(data), blocks.__setitem__, profile).cid, blocks


@given(st.integers(0, (1 << 63) - 1), st.binary(max_size=4))
def test_varints_round_trip(value: int, after: bytes) -> None:
    encoded = encode_varint(value)
    assert decode_varint(encoded + after) == (value, len(encoded))


@given(CIDS)
def test_cids_round_trip(cid: Cid) -> None:
    assert Cid.parse(str(cid)) == Cid.from_bytes(cid.to_bytes()) == cid
    assert encode_cid(cid.to_bytes()) == str(cid)
    theirs = decode_cid(str(cid))
    assert (theirs["version"], theirs["codec"]) == (cid.version, cid.codec)
    assert theirs["hash"]["digest"] == cid.digest


@given(st.text(max_size=140) | st.text("abcdefghijklmnopqrstuvwxyz234567", max_size=70))
def test_any_text_is_a_cid_or_a_value_error(text: str) -> None:
    try:
        assert str(Cid.parse(text)) == text or text[0] in "BfFz"
    except ValueError:
        return


@given(st.binary(max_size=60))
def test_any_bytes_are_a_cid_or_a_value_error(data: bytes) -> None:
    try:
        assert Cid.from_bytes(data).to_bytes() == data
    except ValueError:
        return


@given(st.lists(st.builds(Link, CIDS, st.binary(max_size=9), st.integers(0, 1 << 62)), max_size=5),
       st.none() | st.binary(max_size=40))  # fmt: skip
def test_dag_pb_round_trips(links: list[Link], data: bytes | None) -> None:
    node = decode_node(encode_node(Node(links, data)))
    assert (list(node.links), node.data) == (links, data)


@given(st.binary(max_size=200))
def test_any_bytes_as_any_codec(block: bytes) -> None:
    for codec in (DAG_PB, DAG_CBOR):
        cid = Cid.of(block, codec)
        for decode in (
            lambda cid=cid: links_of(cid, block),
            lambda cid=cid: list(list_directory(lambda _: block, cid)),
            lambda cid=cid: b"".join(iter_file(lambda _: block, cid, 1000)),
            lambda: decode_header(block),
        ):
            try:
                decode()
            except (MalformedDag, TooLarge):
                continue


@given(st.binary(max_size=600), PROFILES)
def test_files_read_back_whatever_the_profile(data: bytes, profile: Profile) -> None:
    root, blocks = build(data, profile)
    assert b"".join(iter_file(blocks.__getitem__, root, len(data))) == data


@given(st.binary(max_size=600), PROFILES, st.integers(-700, 700), st.integers(-700, 700))
def test_a_range_of_blocks_reads_that_range(
    data: bytes, profile: Profile, first: int, last: int
) -> None:
    root, blocks = build(data, profile)
    span = Range(first, last)
    sent = dict(blocks_in_scope(blocks.__getitem__, root, "entity", span))
    start, end = span.resolve(len(data))
    assert data[start:end] == _read_range(sent, root, start, end)
    assert sent.keys() <= blocks.keys()


def _read_range(blocks: dict[Cid, bytes], root: Cid, start: int, end: int) -> bytes:
    from atoll.storage.unixfs import decode_file_node

    out, stack = b"", [(root, 0)]
    while stack:
        cid, offset = stack.pop()
        node = decode_file_node(cid, blocks[cid])
        out += node.data[max(start - offset, 0) : max(end - offset, 0)]
        offset += len(node.data)
        below = []
        for child in node.children:
            if max(offset, start) < min(offset + child.file_bytes, end):
                below.append((child.cid, offset))
            offset += child.file_bytes
        stack.extend(reversed(below))
    return out


@given(st.binary(min_size=1, max_size=600), PROFILES, st.data())
def test_one_changed_bit_is_never_believed(
    data: bytes, profile: Profile, draw: st.DataObject
) -> None:
    root, blocks = build(data, profile)
    car = bytearray(b"".join(encode_car([root], blocks.items())))
    position = draw.draw(st.integers(0, len(car) * 8 - 1))
    car[position // 8] ^= 1 << position % 8
    reader = CarReader(1 << 20)
    try:
        for cid, block in reader.feed(bytes(car)):
            assert cid.matches(block)
        reader.finish()
    except (CorruptBlock, TooLarge):
        return


@given(st.binary(max_size=300), PROFILES, st.lists(st.integers(1, 50), max_size=40))
def test_a_car_reads_the_same_however_it_is_cut(
    data: bytes, profile: Profile, cuts: list[int]
) -> None:
    root, blocks = build(data, profile)
    stream = io.BytesIO(b"".join(encode_car([root], blocks.items())))
    reader = CarReader(1 << 20)
    found: list[tuple[Cid, bytes]] = []
    for cut in [*cuts, 1 << 20]:
        found.extend(reader.feed(stream.read(cut)))
    reader.finish()
    assert reader.roots == [root]
    assert found == list(blocks.items())


@given(st.binary(max_size=400))
def test_any_bytes_as_a_car(data: bytes) -> None:
    reader = CarReader(300)
    try:
        list(reader.feed(data))
        reader.finish()
    except (CorruptBlock, TooLarge):
        return


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
    | st.binary(max_size=5) | CIDS.map(lambda cid: CidLink(cid.to_bytes())),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(DOCUMENTS)
def test_links_of_any_document(document: object) -> None:
    def walk(item: object) -> list[str]:
        if isinstance(item, CidLink):
            return [str(Cid.from_bytes(item.cid))]
        inside = item.values() if isinstance(item, dict) else item
        return (
            [found for below in inside for found in walk(below)]
            if isinstance(item, dict | list)
            else []
        )

    encoded = encode(document)
    assert sorted(map(str, cbor_links(encoded))) == sorted(walk(document))


@given(st.binary(max_size=300))
def test_names_are_safe_or_refused(raw: bytes) -> None:
    try:
        name = check_name(raw)
    except MalformedDag:
        return
    assert name not in ("", ".", "..")
    assert not set(name) & set("/\\\0")


@given(st.dictionaries(st.text(max_size=12), st.binary(max_size=20), max_size=6))
def test_folders_list_what_was_put_in(tree: dict[str, bytes]) -> None:
    blocks: dict[Cid, bytes] = {}
    entries = {
        name: build_tree(io.BytesIO(data), blocks.__setitem__, V1) for name, data in tree.items()
    }
    try:
        root = build_directory(entries, blocks.__setitem__, V1).cid
        listed = {e.name: e.cid for e in list_directory(blocks.__getitem__, root)}
    except (StorageError, UnicodeEncodeError):
        return
    assert listed == {name: entry.cid for name, entry in entries.items()}


@settings(max_examples=30)
@given(st.integers(1, 200))
def test_long_lists_of_links_are_kept_in_order(count: int) -> None:
    links = [Link(Cid.of(bytes([i])), b"", i) for i in range(count)]
    assert [link.size for link in decode_node(encode_node(Node(links, None))).links] == list(
        range(count)
    )
