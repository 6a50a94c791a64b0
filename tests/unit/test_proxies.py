"""Behind an HTTP proxy the chain and gateways are reached through it, and this machine is not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.unit.chain.test_endpoints import asking
from tests.unit.storage.gateways import serving

from atoll.chain.response_checks import quantity
from atoll.chain.rpc import FailoverProvider
from atoll.errors import NotFound
from atoll.proxies import proxy_hosts, proxy_of
from atoll.storage import Cid, FetchConfig, Fetcher, LocalStore

BLOCK = b"a block that somebody serves"
PROXY = "http://proxy.corp:3128"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy"])
def test_the_variables_name_a_proxy_for_each_scheme(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "proxy.corp:3128")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:word@secure.corp")
    monkeypatch.setenv("no_proxy", "own.example,10.1.2.3")
    assert proxy_of("http://rpc.example:8545/v1") == PROXY
    assert proxy_of("https://rpc.example") == "http://user:word@secure.corp"
    assert proxy_hosts() == {"proxy.corp", "secure.corp"}
    for direct in ("own.example", "a.own.example:8545", "user@own.example", "10.1.2.3:80"):
        assert proxy_of(f"http://{direct}") is None


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8545", "127.9.9.9", "[::1]:8545", "localhost", "a.localhost:80", "0.0.0.0"]
)
def test_this_machine_is_reached_directly(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    assert proxy_of(f"http://{host}/") is None


class Proxy:
    """Answers in the place of all hosts; remembers for which."""

    def __init__(self, body: bytes) -> None:
        self.body, self.asked = body, list[str]()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = head.partition("content-length:")[2].partition("\r\n")[0]
        await reader.readexactly(int(length or 0))
        self.asked.append(head.split()[1])
        size = f"Content-Length: {len(self.body)}"
        writer.write(f"HTTP/1.1 200 OK\r\n{size}\r\nConnection: close\r\n\r\n".encode() + self.body)
        writer.close()


@asynccontextmanager
async def proxying(monkeypatch: pytest.MonkeyPatch, body: bytes) -> AsyncIterator[Proxy]:
    proxy = Proxy(body)
    server = await asyncio.start_server(proxy.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
    async with server:
        yield proxy


async def test_the_chain_is_asked_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxying(monkeypatch, b'{"result": "0x7"}') as proxy:
        provider = FailoverProvider(["http://rpc.invalid:8545/key"], None)
        assert await provider.ask("eth_chainId", [], quantity) == 7
        await provider.disconnect()
    assert set(proxy.asked) == {"http://rpc.invalid:8545/key"}


async def test_a_chain_on_this_machine_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"result": "0x7"})

    async with proxying(monkeypatch, b"") as proxy, asking(answer) as provider:
        assert await provider.ask("eth_chainId", [], quantity) == 7
    assert proxy.asked == []


async def fetched(urls: list[str], folder: Path, *, private: bool) -> bytes:
    store, cid = LocalStore(folder, sync=False), Cid.of(BLOCK)
    config = FetchConfig(passes=1, private_addresses=private)
    async with Fetcher(store, lambda: urls, config) as fetcher:
        await fetcher.fetch(cid, 100)
    return store.get_block(cid)


@pytest.mark.parametrize("private", [True, False])
async def test_a_block_comes_through_the_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, private: bool
) -> None:
    """Also where no name server here knows the gateway: the proxy looks names up."""
    async with proxying(monkeypatch, BLOCK) as proxy:
        assert await fetched(["http://gateway.invalid"], tmp_path, private=private) == BLOCK
    assert [url.partition("/ipfs/")[0] for url in proxy.asked] == ["http://gateway.invalid"]


async def test_a_block_of_this_machine_comes_directly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path / "there", sync=False)
    store.add_block(BLOCK)
    async with proxying(monkeypatch, b"") as proxy, serving(store) as gateway:
        assert await fetched([gateway.url], tmp_path / "here", private=True) == BLOCK
    assert proxy.asked == []


NEAR = {"intranet.corp": "10.1.2.3", "proxy.corp": "10.0.0.1", "abroad.example": "9.9.9.9"}


def lookup(host: str, port: int, *_: Any) -> list[Any]:
    address = host if host[0].isdigit() else NEAR.get(host)
    if address is None:
        raise socket.gaierror(socket.EAI_NONAME, "there is no such name")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]


@pytest.mark.parametrize("host", ["intranet.corp", "10.1.2.3", "127.1", "169.254.169.254"])
async def test_no_stranger_has_the_proxy_ask_a_machine_near_us(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    async with proxying(monkeypatch, BLOCK) as proxy:
        with pytest.raises(NotFound, match="not one of the Internet"):
            await fetched([f"http://{host}:8080"], tmp_path, private=False)
        assert proxy.asked == []
        assert await fetched(["http://abroad.example"], tmp_path, private=False) == BLOCK


async def test_a_proxy_s_name_may_be_one_near_us_and_is_no_gateway(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with proxying(monkeypatch, BLOCK) as proxy:
        port = proxy_of("http://abroad.example")
        assert port is not None
        monkeypatch.setenv("HTTP_PROXY", f"http://proxy.corp:{port.rpartition(':')[2]}")
        monkeypatch.setitem(NEAR, "proxy.corp", "127.0.0.1")
        monkeypatch.setattr(socket, "getaddrinfo", lookup)
        with pytest.raises(NotFound, match="not one of the Internet"):
            await fetched(["http://proxy.corp:80"], tmp_path, private=False)
        assert await fetched(["http://abroad.example"], tmp_path, private=False) == BLOCK
    assert len(proxy.asked) == 1
