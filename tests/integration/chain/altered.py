"""A node's answers with some of them changed, on a port of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web
from tests.unit.chain.test_endpoints import served

Change = Callable[[dict[str, Any]], dict[str, Any] | None]
"""What is said to a question in place of the node's answer; None leaves that."""


def says(method: str, code: int, message: str, **more: Any) -> Change:
    """An error to that method."""
    error = {"code": code, "message": message, **more}
    return lambda asked: {"error": error} if asked["method"] == method else None


@asynccontextmanager
async def altered(node: str, change: Change) -> AsyncIterator[str]:
    """The URL of an endpoint that says what `change` says, and else what the node does."""

    async def answer(request: web.Request) -> web.Response:
        asked = await request.json()
        said = change(asked)
        if said is not None:
            return web.json_response({"jsonrpc": "2.0", "id": asked["id"], **said})
        async with aiohttp.ClientSession() as session, session.post(node, json=asked) as reply:
            return web.json_response(await reply.json())

    async with served(answer) as url:
        yield url
