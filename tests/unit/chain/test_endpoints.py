"""What an RPC endpoint answers over HTTP, whatever it is, costs the one who asked only its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from atoll.chain import rpc
from atoll.chain.answers import quantity
from atoll.chain.rpc import FailoverProvider
from atoll.errors import RpcUnavailable

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "TRIES", 1)


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[str]:
    """A server that answers everything so; its URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


@asynccontextmanager
async def asking(answer: Answer) -> AsyncIterator[FailoverProvider]:
    """A provider with one endpoint, which answers so."""
    async with served(answer) as url:
        provider = FailoverProvider([url], None)
        yield provider
        await provider.disconnect()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_nobody_is_sent_on_to_another_host(status: int) -> None:
    asked: list[str] = []

    async def inner(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"jsonrpc": "2.0", "id": 1, "result": "0x1"})

    async with served(inner) as url:

        async def outer(_: web.Request) -> web.Response:
            return web.Response(status=status, headers={"Location": f"{url}api/v0/shutdown"})

        async with asking(outer) as provider:
            with pytest.raises(RpcUnavailable, match=f"HTTP {status}"):
                await provider.ask("eth_chainId", [], quantity)
    assert asked == []
