"""Gateways as tests of fetching start them: honest ones, and such as answer as they like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from aiohttp import web

from atoll.storage import (
    FetchConfig,
    Gateway,
    LocalStore,
)

QUICK = FetchConfig(
    block_timeout_s=0.5, hedge_min_s=0.1, hedge_max_s=0.1, passes=1, connect_timeout_s=0.5
)
PATIENT = replace(QUICK, block_timeout_s=300.0, connect_timeout_s=300.0)
"""For what an honest gateway has to deliver, on a machine however slow."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(store: LocalStore, **options: object) -> AsyncIterator[Gateway]:
    gateway = Gateway(store, **options)  # type: ignore[arg-type]
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


@asynccontextmanager
async def hostile(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Counted:
    """A handler that counts how often it was asked."""

    def __init__(self, handler: Handler) -> None:
        self._handler, self.asked = handler, 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        return await self._handler(request)


async def lacks(_: web.Request) -> web.StreamResponse:
    return web.Response(status=404)


async def stalls(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise web.HTTPOk
