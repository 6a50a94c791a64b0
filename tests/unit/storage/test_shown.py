"""A gateway shows members pieces of a file, and who asks believes what is proved alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from threading import Event, Lock
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.unit.storage.gateways import PATIENT, hostile, serving

from atoll.errors import CorruptBlock, NotFound, StorageError, TooLarge
from atoll.numerics.pieces import root_of_update
from atoll.numerics.shown_pieces import MOST_SHOWN, checked_pieces, shown_length
from atoll.service.shown_files import LACKING_SECONDS, ShownFiles
from atoll.storage import RAW, Cid, Fetcher, LocalStore
from atoll.storage.cid import DAG_PB
from atoll.storage.dagpb import Node, encode_node
from atoll.storage.download import Asked
from atoll.storage.gateway import Gateway
from atoll.storage.shown import MOST_PIECES
from atoll.storage.unixfs import encode_file_header

SIZE = (1 << 20) + 300 * 1024 + 7
MEMBER = {"Authorization": "member"}
ANY = Cid(RAW, bytes(32))
EMPTY = encode_node(Node([], encode_file_header(b"", 0, [])))
"""What is no file as everybody lays out no bytes."""


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "theirs", sync=False)


def showing(store: LocalStore, *files: Cid, **options: Any) -> ShownFiles:
    shown = ShownFiles(store, **options)
    shown.expect(dict.fromkeys(files, SIZE))
    return shown


@pytest.fixture
async def gateway(store: LocalStore) -> AsyncIterator[Gateway]:
    members = {"recognise": lambda header: header if header.startswith("member") else None}
    async with serving(store, **members) as gateway:
        yield gateway


class Reader:
    """Who knows an update's root, and takes what leads to it."""

    def __init__(self, data: bytes, numbers: Sequence[int]) -> None:
        self.data, self.numbers, self.pieces = data, numbers, dict[int, bytes]()

    def accept(self, _cid: Cid, shown: bytes) -> None:
        root = root_of_update(self.data)
        self.pieces = checked_pieces(shown, self.numbers, len(self.data), root)

    def asked(self, cid: Cid) -> Asked:
        most = shown_length(self.numbers, len(self.data))
        return Asked(cid, self.accept, self.numbers, most)


def fetcher_of(tmp_path: Path, *urls: str, member: bool = True) -> Fetcher:
    ours = LocalStore(tmp_path / "ours", sync=False)
    config = PATIENT.__class__(passes=1, greet=(lambda _: "member") if member else None)
    return Fetcher(ours, lambda: list(urls), config)


async def ask(gateway: Gateway, name: str, headers: dict[str, str]) -> tuple[int, bytes]:
    where = f"{gateway.url}/pieces/{name}"
    async with aiohttp.ClientSession(headers=headers) as http, http.get(where) as answer:
        return answer.status, await answer.read()


def test_both_sides_know_how_many_are_shown_at_once() -> None:
    assert MOST_PIECES == MOST_SHOWN


async def test_few_bytes_of_a_file_are_had_for_few(
    tmp_path: Path, store: LocalStore, gateway: Gateway
) -> None:
    data, numbers = os.urandom(SIZE), [0, 5, 6, 7, 1000, 1324]
    cid, reader = store.add_bytes(data), Reader(data, numbers)
    gateway.pieces.shows = showing(store, cid)
    async with fetcher_of(tmp_path, gateway.url) as fetcher:
        await fetcher.show(reader.asked(cid))
        assert fetcher.bytes_down == shown_length(numbers, SIZE) < 6 * 1024 + 6 * 11 * 32
    assert all(piece == data[n * 1024 : n * 1024 + 1024] for n, piece in reader.pieces.items())


async def test_who_shows_something_else_is_passed_over(
    tmp_path: Path, store: LocalStore, gateway: Gateway
) -> None:
    data, numbers = os.urandom(SIZE), [3]
    cid = store.add_bytes(data)
    gateway.pieces.shows = showing(store, cid)

    async def lies(_: web.Request) -> web.StreamResponse:
        return web.Response(body=bytes(shown_length(numbers, SIZE)))

    async with hostile(lies) as liar, fetcher_of(tmp_path, liar, gateway.url) as fetcher:
        reader = Reader(data, numbers)
        await fetcher.show(reader.asked(cid), [liar])
        assert reader.pieces and [s.url for s in fetcher.sources.bad()] == [liar]
    async with hostile(lies) as liar, fetcher_of(tmp_path, liar) as fetcher:
        with pytest.raises(NotFound, match="do not lead"):
            await fetcher.show(Reader(data, numbers).asked(cid))


async def test_more_than_what_was_asked_for_is_not_read(tmp_path: Path) -> None:
    async def floods(_: web.Request) -> web.StreamResponse:
        return web.Response(body=bytes(5000))

    async with hostile(floods) as url, fetcher_of(tmp_path, url) as fetcher:
        with pytest.raises(NotFound, match="sent more than"):
            await fetcher.show(Reader(bytes(1500), [0]).asked(ANY))


@pytest.mark.parametrize(
    ("query", "status", "why"),
    [
        ("", 400, "ascending numbers and ranges"),
        ("?numbers=", 400, "ascending"),
        ("?numbers=3,3", 400, "ascending"),
        ("?numbers=4,3", 400, "ascending"),
        ("?numbers=5-4", 400, "ascending"),
        ("?numbers=-1", 400, "ascending"),
        ("?numbers=1,,2", 400, "ascending"),
        ("?numbers=x", 400, "ascending"),
        ("?numbers=%C2%B2", 400, "ascending"),
        ("?numbers=" + "9" * 13, 400, "ascending"),
        ("?numbers=" + ",".join(map(str, range(1100))), 400, "ascending"),
        ("?numbers=0-256", 400, "at most 256 pieces"),
        ("?numbers=0-999999999999", 400, "at most 256 pieces"),
        ("?numbers=1-255,257-258", 400, "at most 256 pieces"),
        ("?numbers=1324,1325", 416, "piece 1325 of 1325"),
        ("?numbers=0-255", 200, ""),
    ],
)
async def test_a_request_that_is_none_is_told_so(
    store: LocalStore, gateway: Gateway, query: str, status: int, why: str
) -> None:
    cid = store.add_bytes(bytes(SIZE))
    gateway.pieces.shows = showing(store, cid)
    answer_status, body = await ask(gateway, f"{cid}{query}", MEMBER)
    assert answer_status == status
    assert why.encode() in body


@pytest.mark.parametrize(
    "what",
    ["nothing", "a leaf is gone", "no file", "an empty node", "another's", "strangers", "a name"],
)
async def test_what_is_not_here_is_not_shown(
    store: LocalStore, gateway: Gateway, what: str
) -> None:
    data = os.urandom(SIZE)
    cid = store.add_bytes(data)
    name = {"nothing": str(ANY), "a name": "x"}.get(what, str(cid))
    if what == "a leaf is gone":
        store.drop(store.leaves(cid, SIZE)[1].cid)
    if what == "no file":
        name = str(store.add_bytes(b""))
    if what == "an empty node":
        name = str(store.add_block(EMPTY, DAG_PB))
    if what != "another's":
        gateway.pieces.shows = showing(store, cid, *[] if what == "a name" else [Cid.parse(name)])
    headers = {} if what == "strangers" else MEMBER
    status, _ = await ask(gateway, f"{name}?numbers=0", headers)
    assert status == {"strangers": 403, "a name": 400}.get(what, 404)


def test_trees_take_no_more_than_they_may_and_a_file_is_read_once(store: LocalStore) -> None:
    files = [store.add_bytes(os.urandom(70 * 1024)) for _ in range(3)]
    shown = showing(store, *files, most=2 * 200)
    answers = [shown.show(cid, [69]) for cid in files]
    for cid in files:
        store.drop(cid)
    assert [shown.is_read(cid) for cid in files] == [False, True, True]
    assert len(answers[0]) == shown_length([69], 70 * 1024)
    with pytest.raises(NotFound):
        shown.show(files[0], [69])


def test_nothing_is_read_of_a_file_that_is_not_expected_or_has_more_bytes(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(3000)
    cid, other = store.add_bytes(data), store.add_bytes(data[1:])
    shown = showing(store, cid)
    assert len(shown.show(cid, [0])) == shown_length([0], 3000)
    shown.expect({cid: 2999, other: 2999})
    with pytest.raises(TooLarge):
        shown.show(cid, [0])
    shown.expect({other: 2999})
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "get_block", None)
        for each in (cid, ANY):
            with pytest.raises(NotFound, match="are shown"):
                shown.show(each, [0])
    assert len(shown.show(other, [0])) == shown_length([0], 2999)


def test_a_file_that_is_none_is_read_once_and_one_that_may_come_again(store: LocalStore) -> None:
    now, data = [0.0], os.urandom(3000)
    nodes = store.add_block(EMPTY, DAG_PB)
    absent = Cid.of(data)
    shown = showing(store, nodes, absent, clock=lambda: now[0])
    reads = list[Cid]()
    read = LocalStore.get_block

    def counted(self: LocalStore, cid: Cid) -> bytes:
        reads.append(cid)
        return read(self, cid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStore, "get_block", counted)
        for _ in range(3):
            for cid in (nodes, absent):
                with pytest.raises(StorageError):
                    shown.show(cid, [0])
        assert reads == [nodes, absent]
        assert store.add_bytes(data) == absent
        now[0] += LACKING_SECONDS
        assert len(shown.show(absent, [0])) == shown_length([0], 3000)
        with pytest.raises(StorageError):
            shown.show(nodes, [0])
        assert nodes not in reads[2:]
    shown.expect({})
    assert not (shown._refused or shown._trees)


async def until(happened: Callable[[], object]) -> None:
    for _ in range(6000):
        if happened():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it never happened")


class Held:
    """What shows pieces, and reads files for as long as a test likes."""

    def __init__(self) -> None:
        self.known, self.go = set[Cid](), Event()
        self.begun, self.at_once, self.most = 0, 0, 0
        self._counting = Lock()

    def is_read(self, cid: Cid) -> bool:
        return cid in self.known

    def show(self, cid: Cid, _numbers: Sequence[int]) -> bytes:
        if cid not in self.known:
            with self._counting:
                self.begun += 1
                self.at_once += 1
                self.most = max(self.most, self.at_once)
            self.go.wait(60)
            with self._counting:
                self.at_once -= 1
        return b"pieces"


async def test_who_has_files_read_keeps_nobody_else_waiting(
    store: LocalStore, gateway: Gateway
) -> None:
    gateway.pieces.shows = held = Held()
    files = [store.add_bytes(os.urandom(1000)) for _ in range(40)]
    held.known = {files[-1]}
    tasks = [
        asyncio.create_task(ask(gateway, f"{cid}?numbers=0", {"Authorization": f"member {n}"}))
        for n, cid in enumerate(files[:-1])
    ]
    try:
        async with asyncio.timeout(60):
            await until(lambda: held.begun)
            # All threads of asyncio's own executor are free, and so is who was read before.
            assert await asyncio.to_thread(lambda: "free") == "free"
            assert await ask(gateway, f"{files[-1]}?numbers=0", MEMBER) == (200, b"pieces")
            held.go.set()
            assert {status for status, _ in await asyncio.gather(*tasks)} == {200}
    finally:
        held.go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert (held.begun, held.most) == (39, 1)


async def test_of_a_party_one_question_is_in_a_thread(store: LocalStore, gateway: Gateway) -> None:
    """Else it has all others wait behind as many as it likes."""
    gateway.pieces.shows = held = Held()
    files = [store.add_bytes(os.urandom(1000)) for _ in range(9)]
    of_party = [asyncio.create_task(ask(gateway, f"{c}?numbers=0", MEMBER)) for c in files[:-1]]
    try:
        async with asyncio.timeout(60):
            await until(lambda: held.begun and gateway._requests == len(of_party))
            other = {"Authorization": "member too"}
            last = asyncio.create_task(ask(gateway, f"{files[-1]}?numbers=0", other))
            await until(lambda: gateway._requests > len(of_party))
            await until(gateway.pieces._reads._work_queue.qsize)
            assert gateway.pieces._reads._work_queue.qsize() == 1
            held.go.set()
            assert {s for s, _ in await asyncio.gather(last, *of_party)} == {200}
    finally:
        held.go.set()
        await asyncio.gather(*of_party, return_exceptions=True)


async def test_a_lying_check_sum_is_no_answer(tmp_path: Path) -> None:
    def refuses(_cid: Cid, _shown: bytes) -> None:
        raise CorruptBlock("never")

    async def answers(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b"anything")

    async with hostile(answers) as url, fetcher_of(tmp_path, url) as fetcher:
        with pytest.raises(NotFound, match="never"):
            await fetcher.show(Asked(ANY, refuses, [1, 2, 9], 100))
