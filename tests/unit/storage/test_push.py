"""Files are brought to gateways by who made them, whom nobody can ask for anything."""

from __future__ import annotations

import asyncio
import math
import os
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.unit.storage.gateways import serving

from atoll.errors import DiskFull
from atoll.storage import FetchConfig, Fetcher, Gateway, LocalStore
from atoll.storage.cid import DAG_PB, RAW, Cid
from atoll.storage.connection_limiter import Budget
from atoll.storage.dagpb import Link, Node, encode_node
from atoll.storage.gateway import GatewayConfig
from atoll.storage.gateway_client import Sending
from atoll.storage.push import IN_VAIN_S, Receivers
from atoll.storage.push_requests import MOST_OF_MEMBERS, MOST_OF_PARTY, MOST_OF_STRANGERS
from atoll.storage.pushed_files import PushedFiles
from atoll.storage.sources import GatewaySource
from atoll.storage.spread import Spread, in_turn
from atoll.storage.unixfs import encode_file_header

MIB = 1 << 20
NEVER = 3600.0
PATIENT = FetchConfig(
    connect_timeout_s=60.0,
    block_timeout_s=60.0,
    hedge_min_s=60.0,
    hedge_max_s=60.0,
    relay_min_s=60.0,
    relay_max_s=60.0,
)
"""A slow machine is no reason to ask anybody else."""


@dataclass(frozen=True)
class Committee:
    """Gateways that need a file, with their stores."""

    stores: Sequence[LocalStore]
    gateways: Sequence[Gateway]

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(gateway.url for gateway in self.gateways)

    def expect(self, cid: Cid, most: int) -> None:
        for gateway in self.gateways:
            gateway.pushed.expect({cid: most})

    def have(self, cid: Cid) -> int:
        return sum(store.has(cid) for store in self.stores)


@asynccontextmanager
async def committee_of(folder: Path, count: int) -> AsyncIterator[Committee]:
    stores = [LocalStore(folder / f"member {i}", sync=False) for i in range(count)]
    async with AsyncExitStack() as stack:
        yield Committee(
            stores, [await stack.enter_async_context(serving(store)) for store in stores]
        )


async def hand_on(
    committee: Committee, cid: Cid, most: int, asked: Sequence[str] | None = None
) -> None:
    """Each gets what is brought to the others from them, as members do."""
    relays = asked or committee.urls
    async with AsyncExitStack() as stack:
        fetchers = [
            await stack.enter_async_context(Fetcher(store, lambda: committee.urls, PATIENT))
            for store in committee.stores
        ]
        spreads = [Spread.of("", relays, url) for url in committee.urls]
        await asyncio.gather(
            *(f.fetch_spread(cid, most, s) for f, s in zip(fetchers, spreads, strict=True))
        )


async def test_who_made_a_file_brings_each_block_about_once(
    tmp_path: Path, ours: LocalStore
) -> None:
    data = os.urandom(9 * MIB + 3)
    cid = ours.add_bytes(data)
    async with committee_of(tmp_path, 4) as committee, Fetcher(ours, tuple, PATIENT) as fetcher:
        committee.expect(cid, len(data))
        pushing = fetcher.pusher().push(cid, Receivers(committee.urls, 4, NEVER))
        await asyncio.gather(pushing, hand_on(committee, cid, len(data)))
        assert all(store.read_bytes(cid, len(data)) == data for store in committee.stores)
        assert len(data) <= fetcher.bytes_up < 1.01 * len(data)
        assert sum(gateway.bytes_up for gateway in committee.gateways) >= 3 * len(data)


async def test_what_was_brought_is_not_brought_again(tmp_path: Path, ours: LocalStore) -> None:
    data = os.urandom(3 * MIB)
    cid = ours.add_bytes(data)
    async with committee_of(tmp_path, 1) as committee, Fetcher(ours, tuple, PATIENT) as fetcher:
        committee.expect(cid, len(data))
        for leaf in ours.leaves(cid, len(data))[:2]:
            committee.stores[0].put_block(leaf.cid, ours.get_block(leaf.cid))
        await fetcher.pusher().push(cid, Receivers(committee.urls, 1, NEVER))
        assert MIB <= fetcher.bytes_up < 1.01 * MIB
        await fetcher.pusher().push(cid, Receivers(committee.urls, 1, NEVER))
        assert fetcher.bytes_up < 1.01 * MIB
    assert committee.stores[0].read_bytes(cid, len(data)) == data


async def test_the_second_of_a_lot_gets_it_where_the_first_is_gone(
    tmp_path: Path, ours: LocalStore
) -> None:
    data = os.urandom(4 * MIB)
    cid = ours.add_bytes(data)
    gone = "http://127.0.0.1:1"
    async with committee_of(tmp_path, 2) as committee, Fetcher(ours, tuple, PATIENT) as fetcher:
        committee.expect(cid, len(data))
        to = Receivers((*committee.urls, gone), 2, 0.4)
        await asyncio.gather(
            fetcher.pusher().push(cid, to),
            hand_on(committee, cid, len(data), asked=[*committee.urls, gone]),
        )
        assert all(store.read_bytes(cid, len(data)) == data for store in committee.stores)


async def test_a_slow_line_brings_no_block_twice(tmp_path: Path, ours: LocalStore) -> None:
    """However long a file takes, nobody gets what another is still to get."""
    data = os.urandom(9 * MIB)
    cid = ours.add_bytes(data)
    async with committee_of(tmp_path, 3) as committee, Fetcher(ours, tuple, PATIENT) as fetcher:
        committee.expect(cid, len(data))
        pusher, put = fetcher.pusher(), fetcher.pusher().client.put
        now = pusher.sources.clock()

        async def slow_put(cid: Cid, sending: Sending, source: GatewaySource) -> bool:
            nonlocal now
            now += 0.7  # the first of a lot takes its next block within three of these
            return await put(cid, sending, source)

        pusher.client.put = slow_put  # type: ignore[method-assign]
        pusher.clock = lambda: now
        to = Receivers(committee.urls, 3, 4.0 * 3)
        await asyncio.gather(pusher.push(cid, to), hand_on(committee, cid, len(data)))
        assert now > pusher.sources.clock()
        assert fetcher.bytes_up < 1.01 * len(data)


async def test_a_receiver_that_lies_about_what_it_has_holds_nothing_up(
    tmp_path: Path, ours: LocalStore
) -> None:
    """It is the first of the only block's lot, says to have it and hands it on to nobody."""
    liar, data = LocalStore(tmp_path / "liar", sync=False), os.urandom(1000)
    cid = ours.add_bytes(data)
    liar.put_block(cid, data)
    async with (
        committee_of(tmp_path, 3) as committee,
        serving(liar) as lying,
        Fetcher(ours, tuple, PATIENT) as fetcher,
    ):
        urls = (*committee.urls, lying.url)
        committee.expect(cid, len(data))
        await fetcher.pusher().push(cid, Receivers(urls, 3, 0.2))
        assert committee.have(cid) >= 2


async def test_who_asks_for_bytes_over_and_over_takes_no_more_than_a_few_copies(
    tmp_path: Path, ours: LocalStore
) -> None:
    data = os.urandom(MIB)
    cid = ours.add_bytes(data)

    async def takes_and_forgets(request: web.Request) -> web.StreamResponse:
        if request.method == "PUT":
            await request.content.read()
        return web.Response(status=404)

    app = web.Application(client_max_size=2 * MIB)
    app.router.add_route("*", "/{path:.*}", takes_and_forgets)
    async with (
        TestServer(app) as greedy,
        committee_of(tmp_path, 2) as committee,
        Fetcher(ours, tuple, PATIENT) as fetcher,
    ):
        committee.expect(cid, MIB)
        urls = (*committee.urls, str(greedy.make_url("")).rstrip("/"))
        began = time.monotonic()
        await fetcher.pusher().push(cid, Receivers(urls, 2, 2.0))
        tries = math.log2(1 + (time.monotonic() - began) / IN_VAIN_S) + 1
        assert fetcher.bytes_up <= (2 + tries) * MIB
    assert committee.have(cid) == 2


async def test_bytes_that_no_reveal_names_are_not_stored(
    ours: LocalStore, theirs: LocalStore
) -> None:
    blocks = [os.urandom(MIB) for _ in range(8)]
    async with serving(theirs) as gateway, aiohttp.ClientSession() as session:
        gateway.pushed.expect({Cid.of(b"another"): 7})
        for block in blocks:
            assert await put(session, gateway, Cid.of(block), block) == 409
        assert gateway.pushes.bytes_in == 0  # nor is any of it read
    assert theirs.usage().blocks == 0


async def test_a_block_is_taken_while_its_file_is_expected(theirs: LocalStore) -> None:
    """In the wrong round, or once a reorg has taken its reveal away, it is refused."""
    block = os.urandom(5000)
    cid = Cid.of(block)
    async with serving(theirs) as gateway, aiohttp.ClientSession() as session:
        assert await put(session, gateway, cid, block) == 409
        gateway.pushed.expect({cid: 5000})
        gateway.pushed.expect({})
        assert await put(session, gateway, cid, block) == 409
        gateway.pushed.expect({cid: 4999})
        assert await put(session, gateway, cid, block) == 413
        gateway.pushed.expect({})
        gateway.pushed.expect({cid: 5000})
        assert await put(session, gateway, cid, block) == 201
        assert await put(session, gateway, cid, block) == 200
        assert theirs.get_block(cid) == block


async def test_other_bytes_under_a_wanted_name_are_not_stored(theirs: LocalStore) -> None:
    block = os.urandom(5000)
    async with serving(theirs) as gateway, aiohttp.ClientSession() as session:
        gateway.pushed.expect({Cid.of(block): 5000})
        assert await put(session, gateway, Cid.of(block), os.urandom(5000)) == 400
    assert theirs.usage().blocks == 0


async def test_a_leaf_comes_after_what_names_it_and_by_any_way(
    ours: LocalStore, theirs: LocalStore
) -> None:
    cid = ours.add_bytes(os.urandom(2 * MIB))
    first, second = ours.leaves(cid, 2 * MIB)
    async with serving(theirs) as gateway, aiohttp.ClientSession() as session:
        gateway.pushed.expect({cid: 2 * MIB})
        leaf = ours.get_block(first.cid)
        assert await put(session, gateway, first.cid, leaf) == 409
        theirs.put_block(cid, ours.get_block(cid))  # another process of ours has fetched the root
        assert await put(session, gateway, first.cid, leaf) == 201
        assert await put(session, gateway, second.cid, leaf[:-1]) == 413


@pytest.mark.parametrize("claims", ["more than the file may have", "another sum"])
async def test_a_root_that_claims_too_much_is_refused_with_all_it_names(
    theirs: LocalStore, claims: str
) -> None:
    leaf = Cid.of(os.urandom(100))
    count, size = (10, 100) if claims == "another sum" else (11, 100)
    total = 999 if claims == "another sum" else count * size
    header = encode_file_header(b"", total, [size] * count)
    root = encode_node(Node([Link(leaf, b"", size)] * count, header))
    cid = Cid.of(root, DAG_PB)
    async with serving(theirs) as gateway, aiohttp.ClientSession() as session:
        gateway.pushed.expect({cid: 1000})
        assert await put(session, gateway, cid, root) == 400
        assert await put(session, gateway, leaf, bytes(size)) == 409
        assert await put(session, gateway, cid, root) == 409
    assert theirs.usage().blocks == 0


async def test_two_who_bring_one_file_store_it_once(ours: LocalStore, theirs: LocalStore) -> None:
    data = os.urandom(5 * MIB)
    cid = ours.add_bytes(data)
    async with (
        serving(theirs) as gateway,
        Fetcher(ours, tuple, PATIENT) as one,
        Fetcher(ours, tuple, PATIENT) as other,
    ):
        gateway.pushed.expect({cid: len(data)})
        to = Receivers((gateway.url,), 1, NEVER)
        await asyncio.gather(one.pusher().push(cid, to), other.pusher().push(cid, to))
    assert theirs.read_bytes(cid, len(data)) == data
    assert theirs.usage().blocks == 6


async def test_who_drips_a_body_is_given_up_and_keeps_nobody_out(
    ours: LocalStore, theirs: LocalStore
) -> None:
    block = os.urandom(MIB)
    cid = ours.add_bytes(block)
    slow = GatewayConfig(budget=Budget(patience_s=1.0, least_bytes_per_s=float(MIB)))
    async with serving(theirs, config=slow) as gateway, Fetcher(ours, tuple, PATIENT) as fetcher:
        gateway.pushed.expect({cid: MIB})
        host, port = gateway.url.removeprefix("http://").split(":")
        head = f"PUT /ipfs/{cid} HTTP/1.1\r\nHost: x\r\nContent-Length: {MIB}\r\n\r\n"
        dripping = [
            await asyncio.open_connection(host, int(port)) for _ in range(MOST_OF_PARTY + 1)
        ]
        for _, writer in dripping:
            writer.write(head.encode() + b"x")
        answers = await asyncio.gather(*(reader.readline() for reader, _ in dripping))
        assert sorted(answer.split()[1] for answer in answers) == [b"408"] * MOST_OF_PARTY + [
            b"503"
        ]
        for _, writer in dripping:
            writer.close()
        await fetcher.pusher().push(cid, Receivers((gateway.url,), 1, NEVER))
    assert theirs.get_block(cid) == block


@pytest.mark.parametrize("brings", ["who is seated", "who is not", "a stranger"])
async def test_bonds_in_other_jobs_buy_no_seats_place(
    ours: LocalStore, theirs: LocalStore, brings: str
) -> None:
    """Sixteen members with four bodies each have all the places; whose round it is has its own."""
    block, members = os.urandom(1000), [f"member {n}" for n in range(17)]
    cid = ours.add_bytes(block)
    recognised = {"recognise": lambda header: header if header in members else None}
    async with serving(theirs, **recognised) as gateway, AsyncExitStack() as stack:
        gateway.pushed.expect({cid: MIB})
        gateway.pushes.seated = {"member 16"} if brings == "who is seated" else set()
        for member in members[: MOST_OF_MEMBERS // MOST_OF_PARTY]:
            for _ in range(MOST_OF_PARTY):
                await stack.enter_async_context(dripping(gateway, cid, member))
        name = "a stranger" if brings == "a stranger" else "member 16"
        headers = {"Authorization": name}
        async with aiohttp.ClientSession(headers=headers) as http:
            where = f"{gateway.url}/ipfs/{cid}"
            async with http.put(where, data=block) as answer:
                assert answer.status == (503 if brings == "who is not" else 201)


async def test_strangers_of_many_addresses_keep_no_submitter_out(
    ours: LocalStore, theirs: LocalStore
) -> None:
    """Each has one body that does not come; the submitter has a place of its own."""
    cid, came = ours.add_bytes(os.urandom(2 * MIB)), asyncio.Event()
    greets = replace(PATIENT, greet=lambda _: "a submitter")

    def recognise(header: str) -> str | None:
        if header == "a submitter":
            came.set()
        return header if header in gateway.connection_limiter.submitters else None

    async with (
        serving(theirs, recognise=recognise) as gateway,
        Fetcher(ours, tuple, greets) as fetcher,
        AsyncExitStack() as stack,
    ):
        gateway.pushed.expect({cid: 2 * MIB, Cid.of(b"another"): 1000})
        for n in range(MOST_OF_STRANGERS):
            drips = dripping(gateway, Cid.of(b"another"), host=f"127.0.0.{n + 2}")
            await stack.enter_async_context(drips)
        to = Receivers((gateway.url,), 1, NEVER, 60.0)
        pushing = asyncio.create_task(fetcher.pusher().push(cid, to))
        await came.wait()  # it came before its job was looked at, and keeps its connection
        gateway.connection_limiter.admit_submitters(["a submitter"])
        assert await pushing
    assert theirs.has(cid)


async def test_a_submitter_has_no_more_places_than_a_member_and_takes_nobodys(
    ours: LocalStore, theirs: LocalStore
) -> None:
    block = os.urandom(1000)
    cid = ours.add_bytes(block)

    async def put_by(gateway: Gateway, who: str) -> int:
        async with aiohttp.ClientSession(headers={"Authorization": who}) as http:
            return await put(http, gateway, cid, block)

    recognise = known_to_be("a submitter", *(f"member {n}" for n in range(16)))
    async with serving(theirs, recognise=recognise) as gateway, AsyncExitStack() as stack:
        gateway.pushed.expect({cid: MIB})
        gateway.connection_limiter.admit_submitters(["a submitter"])
        for _ in range(MOST_OF_PARTY):
            await stack.enter_async_context(dripping(gateway, cid, "a submitter"))
        assert await put_by(gateway, "a submitter") == 503
        for n in range(16):
            for _ in range(MOST_OF_PARTY):
                await stack.enter_async_context(dripping(gateway, cid, f"member {n}"))
        assert await put_by(gateway, "a stranger") == 201


def known_to_be(*accounts: str) -> Callable[[str], str | None]:
    return lambda header: header if header in accounts else None


@asynccontextmanager
async def dripping(
    gateway: Gateway, cid: Cid, member: str = "", host: str = "127.0.0.1"
) -> AsyncIterator[None]:
    """A body that has been asked for, and does not come."""
    _, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port), local_addr=(host, 0))
    about = f"Host: x\r\nAuthorization: {member}\r\nContent-Length: 1000\r\n"
    writer.write(f"PUT /ipfs/{cid} HTTP/1.1\r\n{about}Expect: 100-continue\r\n\r\n".encode())
    assert b" 100 " in await reader.readline()
    try:
        yield
    finally:
        writer.close()


async def test_a_full_disk_is_said_and_others_get_the_block(
    tmp_path: Path, ours: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = os.urandom(1000)
    cid = ours.add_bytes(block)
    async with committee_of(tmp_path, 2) as committee, Fetcher(ours, tuple, PATIENT) as fetcher:
        committee.expect(cid, 1000)
        order = in_turn(cid.digest, committee.urls)
        full = committee.stores[committee.urls.index(order[0])]

        def put_block(*_: object, **__: object) -> None:
            raise DiskFull("no room")

        monkeypatch.setattr(full, "put_block", put_block)
        async with aiohttp.ClientSession() as session:
            gateway = committee.gateways[committee.urls.index(order[0])]
            assert await put(session, gateway, cid, block) == 507
        await fetcher.pusher().push(cid, Receivers(committee.urls, 1, 0.2))
    assert not full.has(cid) and committee.have(cid) == 1


async def test_a_body_without_a_length_is_not_read(theirs: LocalStore) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield bytes(1000)

    async with serving(theirs) as gateway, aiohttp.ClientSession() as session:
        gateway.pushed.expect({Cid.of(bytes(1000)): 1000})
        url = f"{gateway.url}/ipfs/{Cid.of(bytes(1000))}"
        async with session.put(url, data=pieces()) as answer:
            assert answer.status == 411


async def test_a_body_that_is_packed_takes_no_more_memory_than_it_announces(
    theirs: LocalStore,
) -> None:
    packed = zlib.compress(bytes(64 * MIB), 9)
    cid = Cid.of(b"a root", DAG_PB)
    async with serving(theirs) as gateway, aiohttp.ClientSession() as session:
        gateway.pushed.expect({cid: MIB})
        url, headers = f"{gateway.url}/ipfs/{cid}", {"Content-Encoding": "deflate"}
        async with session.put(url, data=packed, headers=headers) as answer:
            assert answer.status == 400
        assert gateway.pushes.bytes_in == len(packed)


@pytest.mark.parametrize("about", ["a leaf's size", "a root's size", "a root's codec"])
async def test_a_file_that_lies_about_anothers_blocks_keeps_none_of_them_out(
    ours: LocalStore, theirs: LocalStore, about: str
) -> None:
    cid = ours.add_bytes(os.urandom(2 * MIB))
    root, leaves = ours.get_block(cid), [leaf.cid for leaf in ours.leaves(cid, 2 * MIB)]
    named, size = {
        "a leaf's size": (leaves[0], 7),
        "a root's size": (cid, 7),
        "a root's codec": (Cid(RAW, cid.digest), len(root)),
    }[about]
    lie = encode_node(Node([Link(named, b"", size)], encode_file_header(b"", size, [size])))
    async with serving(theirs) as gateway, aiohttp.ClientSession() as session:
        gateway.pushed.expect({Cid.of(lie, DAG_PB): MIB})
        assert await put(session, gateway, Cid.of(lie, DAG_PB), lie) == 201
        gateway.pushed.expect({Cid.of(lie, DAG_PB): MIB, cid: 2 * MIB})
        for each in (cid, *leaves):
            assert await put(session, gateway, each, ours.get_block(each)) == 201


def test_a_node_that_is_lost_again_is_opened_when_it_comes(
    ours: LocalStore, theirs: LocalStore
) -> None:
    cid = ours.add_bytes(os.urandom(2 * MIB))
    leaf = ours.leaves(cid, 2 * MIB)[0].cid
    files = PushedFiles(theirs)
    files.expect({cid: 2 * MIB})
    root = files.block(cid, 1)
    assert root is not None and files.block(leaf, MIB) is None
    files.put(root, ours.get_block(cid))
    files.expect({cid: 2 * MIB, leaf: MIB})  # what is known stays known
    known = files.block(leaf, MIB)
    assert known is not None and known.file_bytes == MIB


async def put(session: aiohttp.ClientSession, gateway: Gateway, cid: Cid, block: bytes) -> int:
    """The status of a PUT that waits to be told to go on."""
    url = f"{gateway.url}/ipfs/{cid}"
    async with session.put(url, data=block, expect100=True) as answer:
        return answer.status
