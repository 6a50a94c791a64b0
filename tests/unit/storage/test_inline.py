"""Blocks in their own names (`ipfs add --inline`): read, never asked for, never kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from aiohttp import web
from tests.unit.storage.gateways import PATIENT, hostile, serving

from atoll.storage import DAG_PB, RAW, Cid, Fetcher, LocalStore, MalformedDag
from atoll.storage.block_links import walk_dag
from atoll.storage.cid import MAX_INLINE_BYTES
from atoll.storage.dagpb import Link, Node, decode_node, encode_field, encode_node
from atoll.storage.directory import list_directory, resolve_path, walk_files
from atoll.storage.unixfs import UnixFsKind, encode_file_header
from atoll.storage.varint import encode_varint

BODY, TAIL = b"a" * 1000, b"tail"


def binary(data: bytes, codec: int = RAW, hash_code: int = 0, size: int | None = None) -> bytes:
    """An identity CID as Kubo writes it, or what is nearly one."""
    parts = (1, codec, hash_code, len(data) if size is None else size)
    return b"".join(map(encode_varint, parts)) + data


def inlined(data: bytes, codec: int = RAW) -> Cid:
    return Cid.from_link(binary(data, codec))


def node(*children: tuple[Cid, int]) -> bytes:
    """A file's node, of children and their bytes."""
    sizes = [size for _, size in children]
    header = encode_file_header(b"", sum(sizes), sizes)
    return encode_node(Node([Link(cid, b"", size) for cid, size in children], header))


def file_in(store: LocalStore) -> tuple[Cid, bytes]:
    """A file with a block in its name at its end, wrapped and plain in its middle, and one that
    links to a block."""
    body, deep = store.add_block(BODY), store.add_block(b"deep")
    wrapped = encode_node(Node([], encode_file_header(b"wrapped", 7, [])))
    linking = node((deep, 4))
    parts = [
        (body, 1000),
        (inlined(b"plain"), 5),
        (inlined(wrapped, DAG_PB), 7),
        (inlined(linking, DAG_PB), 4),
        (inlined(TAIL), 4),
    ]
    return store.add_block(node(*parts), DAG_PB), BODY + b"plain" + b"wrapped" + b"deep" + TAIL


def test_a_files_bytes_are_read_also_those_in_names(
    theirs: LocalStore,
    tmp_path: Path,
) -> None:
    root, data = file_in(theirs)
    assert theirs.read_bytes(root, 2000) == data
    assert theirs.read_file_to(root, tmp_path / "out", 2000) == len(data)
    assert (tmp_path / "out").read_bytes() == data
    found = [cid for cid, _ in walk_dag(theirs.get_block, [root])]
    assert found == [root, Cid.of(BODY), Cid.of(b"deep")]
    assert theirs.verify().missing == ()
    with pytest.raises(MalformedDag, match="bytes outside of raw leaves"):
        theirs.leaves(root, 2000)  # of words, which everybody lays out alike


@pytest.mark.parametrize("way", ["fetch", "fetch_car", "fetch_tree"])
async def test_nobody_is_asked_for_what_a_name_has(
    way: str,
    theirs: LocalStore,
    ours: LocalStore,
) -> None:
    root, data = file_in(theirs)
    async with serving(theirs) as gateway:
        async with Fetcher(ours, lambda: [gateway.url], PATIENT) as fetcher:
            if way == "fetch_car":
                await fetcher.fetch_car(root, 2000, gateway.url)
            else:
                await getattr(fetcher, way)(root, 2000)
            assert not list(fetcher.sources.bad())
        assert ours.read_bytes(root, 2000) == data
        assert {cid for cid, _ in walk_dag(ours.get_block, [root])} == {
            root,
            Cid.of(BODY),
            Cid.of(b"deep"),
        }
        assert ours.usage() == theirs.usage()


async def test_a_gateway_gets_no_request_for_a_name(
    theirs: LocalStore,
    ours: LocalStore,
) -> None:
    root, data = file_in(theirs)
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        asked.append(name)
        return web.Response(body=theirs.get_block(Cid.parse(name)))

    async with hostile(answer) as url, Fetcher(ours, lambda: [url], PATIENT) as fetcher:
        assert await fetcher.get(root, 2000) == data
    assert {name for name in asked if name.startswith("baf")} == {
        str(root),
        str(Cid.of(BODY)),
        str(Cid.of(b"deep")),
    }


async def test_a_folder_has_files_in_names(
    theirs: LocalStore,
    ours: LocalStore,
) -> None:
    small = inlined(b"small")
    inner = encode_node(Node([Link(small, b"b", 5)], encode_field(1, UnixFsKind.DIRECTORY.value)))
    links = [Link(small, b"a", 5), Link(inlined(inner, DAG_PB), b"deep", 5)]
    folder = encode_node(Node(links, encode_field(1, UnixFsKind.DIRECTORY.value)))
    root = theirs.add_block(folder, DAG_PB)
    assert next(entry.cid for entry in list_directory(theirs.get_block, root)) == small
    found, _ = resolve_path(theirs.get_block, root, "deep/b")
    assert theirs.read_bytes(found, 10) == b"small"
    async with serving(theirs) as gateway, Fetcher(ours, lambda: [gateway.url]) as fetcher:
        await fetcher.fetch_tree(root, 100)
    files: dict[tuple[str, ...], bytes] = {}

    def visit(path: tuple[str, ...], cid: Cid) -> None:
        files[path] = ours.read_bytes(cid, 10)

    walk_files(ours.get_block, root, visit)
    assert files == {("a",): b"small", ("deep", "b"): b"small"}


def test_a_name_has_as_much_as_kubo_lets_it_have() -> None:
    most = bytes(MAX_INLINE_BYTES)
    assert inlined(most).inline == most
    assert inlined(b"").inline == b""
    assert Cid.from_link(inlined(most, DAG_PB).to_bytes()) == inlined(most, DAG_PB)
    with pytest.raises(ValueError, match="129"):
        inlined(most + b"\0")
    body = encode_field(1, binary(most + b"\0")) + encode_field(2, b"") + encode_field(3, 129)
    with pytest.raises(MalformedDag, match="identity CID"):
        decode_node(encode_field(2, body))


REFUSED = {
    "another hash": binary(b"x" * 32, hash_code=0x13),
    "SHA-1": binary(b"x" * 20, hash_code=0x11),
    "a short SHA-256": binary(b"x" * 20, hash_code=0x12),
    "more than it says": binary(b"xy", size=1),
    "less than it says": binary(b"x", size=2),
    "another codec": binary(b"x", codec=0x51),
    "another version": b"\x02" + binary(b"x")[1:],
    "nothing": b"",
    "a version alone": b"\x01",
}


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_else_is_a_name(name: str) -> None:
    with pytest.raises(ValueError):
        Cid.from_link(REFUSED[name])


def test_outside_of_links_a_name_is_of_sha_256() -> None:
    """What a chain, a manifest, a pin or a person names is one block under one name."""
    raw = binary(b"tail")
    with pytest.raises(ValueError, match="SHA-256 only"):
        Cid.from_bytes(raw)
    with pytest.raises(ValueError, match="SHA-256 only"):
        Cid.read(raw)
    with pytest.raises(ValueError, match="SHA-256 only"):
        Cid.parse(str(Cid.from_link(raw)))
    with pytest.raises(ValueError, match="digest"):
        Cid(RAW, bytes(32), inline=b"tail")
    assert Cid.from_link(Cid.of(b"x").to_bytes()) == Cid.of(b"x")


def test_a_name_that_spells_anothers_digest_hides_nothing_from_a_pin(
    theirs: LocalStore,
) -> None:
    """A stranger's file that is pinned must not have the owner's own blocks collected."""
    own = theirs.add_block(node((theirs.add_block(b"own leaf"), 8)), DAG_PB)
    spelling = inlined(own.digest, DAG_PB)
    assert spelling.digest == hashlib.sha256(own.digest).digest() != own.digest
    root = theirs.add_block(node((spelling, 1)), DAG_PB)
    theirs.pin(root, "stranger")
    theirs.pin(own, "own")
    theirs.collect(grace_s=-1e9)
    assert theirs.read_bytes(own, 10) == b"own leaf"


def test_names_cost_no_more_than_a_files_size_lets_them(theirs: LocalStore) -> None:
    """A block of 8,000 names of nodes, which each name two more, ends at the walk's bounds."""
    leaf = theirs.add_block(b"x")
    pair = inlined(node((leaf, 1), (leaf, 1)), DAG_PB)
    many = theirs.add_block(node(*[(pair, 2)] * 8000), DAG_PB)
    with pytest.raises(MalformedDag, match="more nodes than a file of its size needs"):
        theirs.read_bytes(many, 1 << 20)
