"""A stranger with a thousand connections, and a member who is served all the same."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from threading import Event

import aiohttp
import pytest

from atoll.errors import NotFound
from atoll.storage import Cid, FetchConfig, Fetcher, Gateway, GatewayConfig, LocalStore
from atoll.storage.connection_limiter import Budget

BUDGET = Budget(connections=32, per_address=24, reserved=8, header_s=30.0)
MEMBER = "Atoll member"
BLOCK = 1 << 16


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "served", sync=False)


def recognise(header: str) -> str | None:
    return "a member" if header == MEMBER else None


@asynccontextmanager
async def serving(store: LocalStore, budget: Budget = BUDGET) -> AsyncIterator[Gateway]:
    gateway = Gateway(store, config=GatewayConfig(budget=budget), recognise=recognise)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


def blocks(store: LocalStore, count: int) -> list[Cid]:
    return [store.add_block(bytes([i]) * BLOCK) for i in range(count)]


@asynccontextmanager
async def fetcher(gateway: Gateway, folder: Path, greeting: str = MEMBER) -> AsyncIterator[Fetcher]:
    config = FetchConfig(passes=2, greet=lambda url: greeting)
    async with Fetcher(LocalStore(folder, sync=False), lambda: [gateway.url], config) as found:
        yield found


async def connect(gateway: Gateway, host: str) -> socket.socket:
    """A stranger's connection, from any address of this machine."""
    port = int(gateway.url.rpartition(":")[2])
    connection = socket.socket()
    connection.setblocking(False)
    try:
        connection.bind((host, 0))
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    except BaseException:
        connection.close()
        raise
    return connection


async def until(happened: Callable[[], object]) -> None:
    """Returns once it is so; the test's own limit ends what never is."""
    while not happened():  # noqa: ASYNC110 - nothing there tells of it
        await asyncio.sleep(0.01)


SILENT = b"GET /ipfs/ HTTP/1.1\r\nHost: x\r\nX-A: "
ASKING = b"GET /notes/none HTTP/1.1\r\nHost: x\r\n\r\n"


@asynccontextmanager
async def flood(
    gateway: Gateway, hosts: list[str], count: int, request: bytes
) -> AsyncIterator[None]:
    """Opens connections that stay, as fast as it can, until the end of the context."""
    loop = asyncio.get_running_loop()
    begun: list[socket.socket] = []
    enough = asyncio.Event()

    async def attack() -> None:
        number = 0
        while True:
            connection = await connect(gateway, hosts[number % len(hosts)])
            begun.append(connection)
            with suppress(OSError):
                await loop.sock_sendall(connection, request)
            number += 1
            if number >= count:
                enough.set()
            if len(begun) > count:
                begun.pop(0).close()

    task = asyncio.create_task(attack())
    try:
        await enough.wait()
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        for connection in begun:
            connection.close()


@pytest.mark.parametrize("hosts", [["127.0.0.1"], [f"127.0.0.{i}" for i in range(2, 60)]],
                         ids=["the member's own address", "many addresses"])  # fmt: skip
@pytest.mark.parametrize("request_", [SILENT, ASKING], ids=["slow headers", "one request each"])
async def test_a_member_is_served_while_strangers_fill_the_room(
    store: LocalStore, tmp_path: Path, hosts: list[str], request_: bytes
) -> None:
    cids = blocks(store, 30)
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(serving(store))
        await stack.enter_async_context(flood(gateway, hosts, 200, request_))
        member = await stack.enter_async_context(fetcher(gateway, tmp_path / "member"))
        for cid in cids:
            await member.fetch(cid, BLOCK)
        connected = len(gateway.connection_limiter._connections)
        assert connected <= BUDGET.connections
        assert gateway.connection_limiter.sent_away["room"] >= 100


async def test_silence_is_ended_by_the_header_deadline(store: LocalStore) -> None:
    async with serving(store, Budget(header_s=0.2)) as gateway:
        connection = await connect(gateway, "127.0.0.1")
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, b"GET /ipfs/bafkqaaa HTTP/1.1\r\nHost: ")
        with suppress(ConnectionResetError):
            assert await loop.sock_recv(connection, 1) == b""
        connection.close()
        assert gateway.connection_limiter.sent_away == {"header": 1}


async def test_a_reader_that_does_not_read_is_ended(store: LocalStore) -> None:
    cid = store.add_block(bytes(1 << 21))
    budget = Budget(patience_s=0.3, least_bytes_per_s=1e6)
    async with serving(store, budget) as gateway:
        loop = asyncio.get_running_loop()
        connection = await connect(gateway, "127.0.0.1")
        request = f"GET /ipfs/{cid}?format=raw HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        await loop.sock_sendall(connection, request * 8)  # more than the kernel's buffers hold
        await until(lambda: "rate" in gateway.connection_limiter.sent_away)
        connection.close()


async def test_a_block_that_is_not_taken_counts_as_a_request(store: LocalStore) -> None:
    """Else whoever asks and does not read has us hold a block for each connection."""
    cid = store.add_block(bytes(1 << 21))
    asks = f"GET /ipfs/{cid}?format=raw HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    gateway = Gateway(store, config=GatewayConfig(max_requests=1, budget=BUDGET))
    await gateway.start()
    loop = asyncio.get_running_loop()
    try:
        with (
            await connect(gateway, "127.0.0.1") as slow,
            await connect(gateway, "127.0.0.1") as other,
        ):
            await loop.sock_sendall(slow, asks * 8)  # more than the kernel's buffers hold
            await until(
                lambda: any(
                    g.waiting() >= 1 << 16 for g in gateway.connection_limiter._connections.values()
                )
            )
            await loop.sock_sendall(other, asks)
            assert (await loop.sock_recv(other, 12)) == b"HTTP/1.1 503"
            assert all(
                g.waiting() < 1 << 18 for g in gateway.connection_limiter._connections.values()
            )
    finally:
        await gateway.stop()


@pytest.mark.parametrize("kind", ["raw", "car"])
async def test_who_leaves_before_its_answer_writes_nothing_into_the_log(
    store: LocalStore, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else whoever asks and goes fills the disk; those who hedge do it all the time."""
    cid, read, is_gone, begun = store.add_block(bytes(BLOCK)), store.get_block, Event(), Event()

    def waits(wanted: Cid) -> bytes:
        begun.set()
        assert is_gone.wait(600.0)
        return read(wanted)

    monkeypatch.setattr(store, "get_block", waits)
    async with serving(store) as gateway:
        with await connect(gateway, "127.0.0.1") as connection:
            asks = f"GET /ipfs/{cid}?format={kind} HTTP/1.1\r\nHost: x\r\n\r\n"
            await asyncio.get_running_loop().sock_sendall(connection, asks.encode())
            await until(begun.is_set)
        await until(lambda: not gateway.connection_limiter._connections)
        is_gone.set()
        await until(lambda: gateway._requests == 0)
    assert caplog.records == []


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"GET / HTTP/9.9\r\n\r\n",
    ],
)
async def test_what_is_no_request_writes_nothing_into_the_log(
    store: LocalStore, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(store) as gateway:
        with await connect(gateway, "127.0.0.1") as connection:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(connection, said)
            assert b" 40" in await loop.sock_recv(connection, 100)
            with suppress(ConnectionResetError):
                while await loop.sock_recv(connection, 100):
                    pass
    assert caplog.records == []


async def test_a_defect_of_ours_is_in_the_log(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    def note(_: str) -> bytes:
        raise ZeroDivisionError

    gateway = Gateway(store, notes=note)
    await gateway.start()
    try:
        async with aiohttp.ClientSession() as http, http.get(f"{gateway.url}/notes/a") as answer:
            assert answer.status == 500
    finally:
        await gateway.stop()
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("kind", ["raw", "car"])
async def test_a_member_waits_for_no_thread_that_strangers_hold(
    store: LocalStore, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    planted, wanted = blocks(store, 2)
    read, goes_on = store.get_block, Event()

    def waits(cid: Cid) -> bytes:
        assert cid != planted or goes_on.wait(600.0)
        return read(cid)

    monkeypatch.setattr(store, "get_block", waits)
    asks = f"GET /ipfs/{planted}?format={kind} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    async with serving(store) as gateway, AsyncExitStack() as strangers:
        strangers.callback(goes_on.set)
        for other in range(2, 8):
            connection = strangers.enter_context(await connect(gateway, f"127.0.0.{other}"))
            await asyncio.get_running_loop().sock_sendall(connection, asks)
        await until(lambda: gateway._requests == 6)
        async with fetcher(gateway, tmp_path / "member") as member:
            assert await member.get(wanted, BLOCK) == read(wanted)


async def test_a_connection_who_left_is_forgotten(store: LocalStore, tmp_path: Path) -> None:
    (cid,) = blocks(store, 1)
    async with serving(store) as gateway:
        async with fetcher(gateway, tmp_path / "member") as member:
            await member.fetch(cid, BLOCK)
            assert [
                connection.member for connection in gateway.connection_limiter._connections.values()
            ] == ["a member"]
        await until(lambda: not gateway.connection_limiter._connections)


async def test_an_address_that_is_not_the_internets_is_not_asked(
    store: LocalStore, tmp_path: Path
) -> None:
    (cid,) = blocks(store, 1)
    async with serving(store) as gateway:
        port = gateway.url.rpartition(":")[2]
        names = ("127.0.0.1", "localhost", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]",
                 "10.0.0.1", "169.254.169.254")  # fmt: skip
        urls = [f"http://{name}:{port}" for name in names]
        config = FetchConfig(passes=1, private_addresses=False)
        store_there = LocalStore(tmp_path / "there", sync=False)
        async with Fetcher(store_there, lambda: urls, config) as stranger:
            with pytest.raises(NotFound):
                await stranger.fetch(cid, BLOCK)
        assert gateway.connection_limiter._connections == {}
        assert gateway.bytes_up == 0


async def test_of_two_hundred_clients_of_one_address_each_is_told(store: LocalStore) -> None:
    """Who has no room reads so, and when to come again; nobody's line is cut without a word."""
    answers: list[tuple[int, bool]] = []

    async def ask(session: aiohttp.ClientSession, url: str) -> None:
        async with session.get(f"{url}/ipfs/bafkqaaa?format=raw") as response:
            answers.append((response.status, "Retry-After" in response.headers))

    async with (
        serving(store, Budget(connections=64, per_address=24, reserved=8)) as gateway,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        await asyncio.gather(*(ask(session, gateway.url) for _ in range(200)))
        assert len(gateway.connection_limiter._connections) <= 24
    assert len(answers) == 200
    assert set(answers) <= {(200, False), (503, True)}
    assert (503, True) in answers
