"""Names of strangers' gateways, whose name servers need not answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from atoll.errors import NotFound
from atoll.storage import Cid, FetchConfig, Fetcher, LocalStore, addresses
from atoll.storage.addresses import GatewayResolver, is_global, is_own


class NameServers:
    """What `getaddrinfo` says: of names of `.silent` nothing until `answers` is set."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.begun, self.answers = Event(), Event()

    def __call__(self, host: str, *_: Any) -> list[Any]:
        self.asked.append(host)
        if host.endswith(".silent"):
            self.begun.set()
            assert self.answers.wait(600.0)
        if not host.endswith((".silent", ".here")):
            raise socket.gaierror(socket.EAI_NONAME, "there is no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServers]:
    servers = NameServers()
    monkeypatch.setattr(socket, "getaddrinfo", servers)
    yield servers
    servers.answers.set()


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0", "0177.0.0.1", "127.000.000.001", "127.0.0.1."]
)
def test_digits_and_dots_are_no_name(host: str) -> None:
    """Of some, libraries ask no name server, and the system takes them for 127.0.0.1."""
    assert not is_global(host)
    assert is_global(f"gateway{host}")


@pytest.mark.parametrize(
    "host",
    [
        "192.0.0.8", "100.64.0.1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::10.0.0.1",
        "2002:a00:1::1", "2001:4:112::1", "3fff::1", "5f00::1", "fec0::1", "::10.0.0.1", "ff0e::1",
    ],
)  # fmt: skip
def test_addresses_that_lead_to_networks_around_are_not_global(host: str) -> None:
    """In every Python: that of 3.11.7 has three more of them global than that of 3.13.0."""
    assert not is_global(f"[{host}]")


@pytest.mark.parametrize("host", ["9.9.9.9", "::ffff:9.9.9.9", "64:ff9b::9.9.9.9", "2620:fe::fe"])
def test_addresses_of_the_internet_are_global(host: str) -> None:
    assert is_global(host)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::ffff:0.0.0.0"]
)
def test_loopback_is_ones_own_however_it_is_written(host: str) -> None:
    assert is_own(host)
    assert not is_own("9.9.9.9")


async def test_a_silent_name_server_holds_up_nothing_else(
    servers: NameServers, tmp_path: Path
) -> None:
    """Nobody's reading of the disk waits for it: it would, in the loop's own threads."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    store = LocalStore(tmp_path, sync=False)
    here = store.add_block(b"here")
    config = FetchConfig(passes=1, connect_timeout_s=600.0, block_timeout_s=600.0)
    async with Fetcher(store, tuple, config) as fetcher:
        stranger = fetcher.among(lambda: ["http://gateway.silent"], "job")
        waiting = asyncio.create_task(stranger.fetch(Cid.of(b"not here"), 100))
        while not servers.begun.is_set():  # noqa: ASYNC110 - a thread tells of it
            await asyncio.sleep(0.01)
        assert await fetcher.get(here, 4) == b"here"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_name_is_waited_for_so_long_and_asked_for_once_at_a_time(
    servers: NameServers, tmp_path: Path
) -> None:
    config = FetchConfig(passes=3, pass_pause_s=0.0, connect_timeout_s=0.01)
    urls = ["http://gateway.silent"]
    async with Fetcher(LocalStore(tmp_path, sync=False), lambda: urls, config) as fetcher:
        with pytest.raises(NotFound, match="no name server answered"):
            await fetcher.fetch(Cid.of(b"not here"), 100)
    assert servers.asked == ["gateway.silent"]


async def test_a_gateway_that_was_known_stays_so_while_silent_names_hold_every_thread(
    servers: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "_THREADS", 1)
    monkeypatch.setattr(addresses, "_KNOWN", 2)
    resolver = GatewayResolver(600.0, private_addresses=True)
    for name in ("first.here", "gateway.here", "last.here"):
        await resolver.resolve(name, 80)
    monkeypatch.setattr(resolver, "_patience_s", 0.01)
    for name in ("stranger.silent", "first.here"):  # of which nothing is remembered
        with pytest.raises(OSError, match="no name server answered"):
            await resolver.resolve(name, 80)
    for name in ("gateway.here", "last.here"):
        (found,) = await resolver.resolve(name, 80)
        assert found["host"] == "127.0.0.1"
    monkeypatch.setattr(resolver, "_private_addresses", False)
    with pytest.raises(OSError, match="no address of the Internet"):
        await resolver.resolve("gateway.here", 80)
    await resolver.close()


async def test_names_have_the_addresses_that_may_be_asked(servers: NameServers) -> None:
    servers.answers.set()
    for private in (True, False):
        resolver = GatewayResolver(600.0, private_addresses=private)
        for name in ("gateway.here", "gateway.silent"):
            if private:
                (found,) = await resolver.resolve(name, 80)
                assert (found["host"], found["port"]) == ("127.0.0.1", 80)
            else:
                with pytest.raises(OSError, match="no address of the Internet"):
                    await resolver.resolve(name, 80)
        with pytest.raises(OSError, match="no such name"):
            await resolver.resolve("nobody.example", 80)
        await resolver.close()
