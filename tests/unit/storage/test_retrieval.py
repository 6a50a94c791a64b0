"""Fetching over HTTP from honest gateways and from every kind of dishonest one."""

from __future__ import annotations

import asyncio
import gzip
import os
import threading
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.unit.storage.gateways import PATIENT, QUICK, Counted, Handler, hostile, serving, stalls

from atoll.errors import DiskFull, NotFound, TooLarge
from atoll.storage import (
    DAG_PB,
    Cid,
    Fetcher,
    FetchProgress,
    LocalStore,
    MalformedDag,
)
from atoll.storage.car import encode_car, encode_car_header
from atoll.storage.dagpb import Link, Node, encode_node
from atoll.storage.gateway_client import GatewayClient
from atoll.storage.sources import GatewaySource, SourceBook, normalise_gateway
from atoll.storage.unixfs import FileNode, FileWalk, encode_file_header

MIB = 1 << 20
BOMB = gzip.compress(bytes(256 * MIB), 1)


async def answers_wrong(_: web.Request) -> web.StreamResponse:
    return web.Response(body=b"wrong" * 1000)


async def answers_nothing(_: web.Request) -> web.StreamResponse:
    return web.Response(body=b"")


async def answers_error(_: web.Request) -> web.StreamResponse:
    return web.Response(status=500)


async def redirects_home(request: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": str(request.url)})


async def never_ends(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(bytes(MIB))


async def truncates(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000000"})
    await response.prepare(request)
    await response.write(bytes(10))
    assert request.transport is not None
    request.transport.abort()
    return response


async def inflates(_: web.Request) -> web.StreamResponse:
    return web.Response(body=BOMB, headers={"Content-Encoding": "gzip"})


HOSTILE = [
    answers_wrong,
    answers_nothing,
    answers_error,
    redirects_home,
    stalls,
    never_ends,
    truncates,
    inflates,
]


async def test_a_file_travels(theirs: LocalStore, ours: LocalStore, tmp_path: Path) -> None:
    data = os.urandom(5 * MIB + 3)
    cid = theirs.add_bytes(data)
    async with serving(theirs) as gateway, Fetcher(ours, lambda: [gateway.url]) as fetcher:
        assert await fetcher.get(cid, len(data)) == data
        assert fetcher.bytes_down == gateway.bytes_up > len(data)
        await fetcher.get_file(cid, tmp_path / "out", len(data))
        assert fetcher.bytes_down == gateway.bytes_up < len(data) + 1000
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.parametrize("handler", HOSTILE)
async def test_one_bad_gateway_alone_costs_little(handler: Handler, ours: LocalStore) -> None:
    """Bytes, and time: it ends, with half a second for a block, before the test's own limit."""
    async with hostile(handler) as url, Fetcher(ours, lambda: [url], QUICK) as fetcher:
        with pytest.raises(NotFound):
            await fetcher.get(Cid.of(b"wanted"), MIB)
        assert fetcher.bytes_down <= 3 * MIB
    assert ours.usage().blocks == 0


@pytest.mark.parametrize("handler", HOSTILE)
async def test_one_bad_gateway_among_good_ones_harms_nobody(
    handler: Handler, theirs: LocalStore, ours: LocalStore
) -> None:
    data = os.urandom(4 * MIB)
    cid = theirs.add_bytes(data)
    async with (
        hostile(handler) as bad,
        serving(theirs) as good,
        Fetcher(ours, lambda: [bad, good.url], PATIENT) as fetcher,
    ):
        assert await fetcher.get(cid, len(data), prefer=[bad]) == data


async def test_what_a_library_makes_of_one_gateway_harms_no_other(
    theirs: LocalStore, ours: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever leaves the libraries for one source, such as yarl's IndexError for an address."""
    body = GatewayClient.body

    async def fails_for_the_stranger(
        self: GatewayClient, source: GatewaySource, *how: Any
    ) -> bytes:
        if source.url == "http://stranger":
            raise IndexError("string index out of range")
        return await body(self, source, *how)

    monkeypatch.setattr(GatewayClient, "body", fails_for_the_stranger)
    cid = theirs.add_bytes(b"wanted")
    async with (
        serving(theirs) as good,
        Fetcher(ours, lambda: ["http://stranger", good.url], PATIENT) as fetcher,
    ):
        assert await fetcher.get(cid, 6, prefer=["http://stranger"]) == b"wanted"
        with pytest.raises(NotFound, match="IndexError"):
            await fetcher.get(Cid.of(b"nobody has it"), 100)


async def test_sources_belong_to_whom_they_were_named_for(
    theirs: LocalStore, ours: LocalStore
) -> None:
    """One job's gateways are not asked for another's blocks, though all share the connections."""
    counted = Counted(answers_wrong)
    async with (
        hostile(counted.answer) as stranger,
        serving(theirs) as good,
        Fetcher(ours, tuple, PATIENT) as fetcher,
    ):
        free = fetcher.among(lambda: [stranger], "free")
        paid = fetcher.among(lambda: [good.url], "paid")
        with pytest.raises(NotFound):
            await free.get(theirs.add_bytes(b"free"), 10)
        before = counted.asked
        assert await paid.get(theirs.add_bytes(b"paid"), 10) == b"paid"
        assert (before > 0, counted.asked) == (True, before)
        assert [source.url for source in paid.sources.bad()] == [stranger]
        with pytest.raises(NotFound, match="none is known"):
            await fetcher.get(Cid.of(b"x"), 1)


async def test_a_liar_is_remembered(theirs: LocalStore, ours: LocalStore) -> None:
    counted = Counted(answers_wrong)
    async with (
        hostile(counted.answer) as bad,
        serving(theirs) as good,
        Fetcher(ours, lambda: [bad, good.url]) as fetcher,
    ):
        for i in range(30):
            await fetcher.get(theirs.add_bytes(bytes([i])), 1)
        assert [source.url for source in fetcher.sources.bad()] == [bad]
    assert counted.asked == 1


async def test_blocks_come_from_whoever_has_them(tmp_path: Path, ours: LocalStore) -> None:
    data = os.urandom(6 * MIB)
    async with AsyncExitStack() as stack:
        stores = [LocalStore(tmp_path / str(i), sync=False) for i in range(2)]
        cid = stores[0].add_bytes(data)
        files = sorted(p for p in (stores[0].root / "blocks").rglob("*") if p.is_file())
        for path in files[::2]:
            block = path.read_bytes()
            stores[1].add_block(block)
            path.unlink()
        urls = [(await stack.enter_async_context(serving(s))).url for s in stores]
        fetcher = await stack.enter_async_context(Fetcher(ours, lambda: urls))
        assert await fetcher.get(cid, len(data)) == data


async def test_an_interrupted_fetch_resumes(theirs: LocalStore, ours: LocalStore) -> None:
    data = os.urandom(6 * MIB)
    cid = theirs.add_bytes(data)
    served: set[Cid] = set()

    def first_three(wanted: Cid) -> bool:
        served.add(wanted)
        return len(served) <= 3

    async with (
        serving(theirs, allow=first_three) as gateway,
        Fetcher(ours, lambda: [gateway.url], replace(PATIENT, parallel=1)) as fetcher,
    ):
        with pytest.raises(NotFound, match="does not have it"):
            await fetcher.fetch(cid, len(data))
    async with serving(theirs) as gateway, Fetcher(ours, lambda: [gateway.url]) as fetcher:
        assert await fetcher.get(cid, len(data)) == data
        assert fetcher.bytes_down < 5 * MIB


def folders_of_blocks(store: LocalStore) -> set[int]:
    return {int(folder.name, 16) for folder in (store.root / "blocks").iterdir()}


async def test_what_the_disk_refused_to_settle_is_settled_by_the_next_fetch(
    theirs: LocalStore, ours: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cid, settled = theirs.add_bytes(os.urandom(3 * MIB)), set[bytes]()

    def refuse(_: Iterable[bytes]) -> None:
        raise DiskFull("no room left on the disk")

    async with serving(theirs) as gateway, Fetcher(ours, lambda: [gateway.url], PATIENT) as fetcher:
        monkeypatch.setattr(ours, "settle", refuse)
        with pytest.raises(DiskFull):
            await fetcher.fetch(cid, 3 * MIB)
        monkeypatch.setattr(ours, "settle", settled.update)
        await fetcher.fetch(cid, 3 * MIB)
    assert {digest[0] for digest in settled} == folders_of_blocks(ours)


async def test_what_a_cancelled_fetch_was_settling_is_settled_by_the_next(
    theirs: LocalStore, ours: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cid, settled = theirs.add_bytes(os.urandom(3 * MIB)), set[bytes]()
    begun, end = threading.Event(), threading.Event()

    def wait(_: Iterable[bytes]) -> None:
        begun.set()
        end.wait()

    async with serving(theirs) as gateway, Fetcher(ours, lambda: [gateway.url], PATIENT) as fetcher:
        monkeypatch.setattr(ours, "settle", wait)
        first = asyncio.create_task(fetcher.fetch(cid, 3 * MIB))
        await asyncio.to_thread(begun.wait)
        first.cancel()
        try:
            with pytest.raises(asyncio.CancelledError):
                await first
            monkeypatch.setattr(ours, "settle", settled.update)
            await fetcher.fetch(cid, 3 * MIB)
        finally:
            end.set()
    assert {digest[0] for digest in settled} == folders_of_blocks(ours)


async def test_a_file_over_the_cap_is_refused_at_its_root(
    theirs: LocalStore, ours: LocalStore
) -> None:
    cid = theirs.add_bytes(os.urandom(5 * MIB))
    async with serving(theirs) as gateway, Fetcher(ours, lambda: [gateway.url]) as fetcher:
        with pytest.raises(TooLarge):
            await fetcher.get(cid, 5 * MIB - 1)
        assert fetcher.bytes_down < 1000


async def test_a_tree_whose_sizes_lie_is_refused(theirs: LocalStore, ours: LocalStore) -> None:
    leaf = theirs.add_block(bytes(MIB))
    header = encode_file_header(b"", 10, [10])
    root = theirs.add_block(encode_node(Node([Link(leaf, b"", 10)], header)), DAG_PB)
    async with serving(theirs) as gateway, Fetcher(ours, lambda: [gateway.url]) as fetcher:
        with pytest.raises(MalformedDag):
            await fetcher.get(root, 100)


async def test_leaves_that_are_here_count_like_those_that_come(
    theirs: LocalStore, ours: LocalStore
) -> None:
    leaf = ours.add_block(b"x")
    header = encode_file_header(b"", 1000, [1] * 1000)
    node = theirs.add_block(encode_node(Node([Link(leaf, b"", 1)] * 1000, header)), DAG_PB)
    header = encode_file_header(b"", 8000, [1000] * 8)
    root = theirs.add_block(encode_node(Node([Link(node, b"", 1)] * 8, header)), DAG_PB)
    async with serving(theirs) as gateway, Fetcher(ours, lambda: [gateway.url]) as fetcher:
        with pytest.raises(MalformedDag, match="more nodes"):
            await fetcher.fetch(root, 8000)


async def test_large_nodes_are_decoded_beside_the_loop(
    theirs: LocalStore, ours: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = encode_file_header(b"", 1000, [1] * 1000)
    leaf = theirs.add_block(b"x")
    root = theirs.add_block(encode_node(Node([Link(leaf, b"", 1)] * 1000, header)), DAG_PB)
    visit, threads = FileWalk.visit, {}

    def noting(self: FileWalk, cid: Cid, *told: Any) -> FileNode:
        threads[cid] = threading.current_thread()
        return visit(self, cid, *told)

    monkeypatch.setattr(FileWalk, "visit", noting)
    async with serving(theirs) as gateway, Fetcher(ours, lambda: [gateway.url]) as fetcher:
        await fetcher.fetch(root, 1000)
    assert threads[leaf] is threading.main_thread() is not threads[root]


async def test_no_gateway_is_an_answer_too(ours: LocalStore) -> None:
    async with Fetcher(ours, list, QUICK) as fetcher:
        with pytest.raises(NotFound, match="none is known"):
            await fetcher.get(Cid.of(b"x"), 1)


def car_of(*blocks: bytes) -> bytes:
    named = [(Cid.of(block), block) for block in blocks]
    return b"".join(encode_car([named[0][0]], named))


@pytest.mark.parametrize(
    "car",
    [
        car_of(b"wanted", b"something else"),
        car_of(b"wanted")[:-1],
        encode_car_header([]) + b"\xff\xff\xff\x7f",
        b"\x00" * 100,
        b"\xff" * 100,
        BOMB,
    ],
)
async def test_a_bad_car_costs_little_and_the_blocks_come_otherwise(
    theirs: LocalStore, ours: LocalStore, car: bytes
) -> None:
    cid = theirs.add_bytes(b"wanted")

    async def answers(_: web.Request) -> web.StreamResponse:
        return web.Response(body=car)

    async with (
        hostile(answers) as bad,
        serving(theirs) as good,
        Fetcher(ours, lambda: [good.url], PATIENT) as fetcher,
    ):
        await fetcher.fetch_car(cid, 100, bad)
        assert [source.url for source in fetcher.sources.bad()] == [bad]
    assert ours.read_bytes(cid, 100) == b"wanted"
    assert not ours.has(Cid.of(b"something else"))


async def test_a_car_brings_a_file_in_one_request(theirs: LocalStore, ours: LocalStore) -> None:
    data = os.urandom(MIB) * 3 + os.urandom(5)
    cid = theirs.add_bytes(data)
    async with serving(theirs) as gateway, Fetcher(ours, list, PATIENT) as fetcher:
        await fetcher.fetch_car(cid, len(data), gateway.url)
    assert ours.read_bytes(cid, len(data)) == data


async def test_a_folder_travels(theirs: LocalStore, ours: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "a").write_bytes(b"a")
    (tmp_path / "in" / "deep" / "b").write_bytes(os.urandom(2 * MIB))
    root = theirs.add_path(tmp_path / "in").cid
    async with serving(theirs) as gateway, Fetcher(ours, lambda: [gateway.url]) as fetcher:
        await fetcher.fetch_tree(root, 3 * MIB)
        with pytest.raises(TooLarge):
            await fetcher.fetch_tree(root, MIB)
    assert ours.usage() == theirs.usage()


async def test_progress_is_told(theirs: LocalStore, ours: LocalStore) -> None:
    cid = theirs.add_bytes(os.urandom(3 * MIB))
    seen: list[FetchProgress] = []
    async with serving(theirs) as gateway, Fetcher(ours, lambda: [gateway.url]) as fetcher:
        await fetcher.fetch(cid, 3 * MIB, on_progress=seen.append)
    assert [step.blocks for step in seen] == [1, 2, 3, 4]
    assert (seen[-1].file_bytes, seen[-1].done_bytes) == (3 * MIB, 3 * MIB)
    assert seen[-1].bytes_down > 3 * MIB


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ftp://host",
        "http://",
        "file:///etc/passwd",
        "http://user:secret@host",
        "http://host?x=1",
        "http://host:99999",
        "http://[::1",
        "javascript:alert(1)",
        "http://[::1]@",
        "http://@host",
        "http://host?",
        "http://host#",
        "http://h\u00f6st",
        "http://ho st",
        "http://host\\path",
        "http://" + "a" * 600,
    ],
)
def test_unusable_gateway_addresses_are_ignored(text: str) -> None:
    assert normalise_gateway(text) is None
    assert SourceBook(lambda: 0.0).ranked([text]) == []
