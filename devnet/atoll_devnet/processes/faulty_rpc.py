"""A JSON-RPC endpoint that answers like the node behind it, except when it does not.

Its faults are those that public endpoints have: errors, nulls, empty lists, HTML, half an answer,
another type than asked for. Which answer gets which is drawn from a seed. Calls about transactions
get only errors: an endpoint that invents a gas price or a nonce is no fault but a lie.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp
from aiohttp import web

Fault = Callable[[dict[str, Any]], str]
"""Makes the node's answer into the text that is sent instead."""


def _with(answer: dict[str, Any], **changed: Any) -> str:
    kept = {name: value for name, value in answer.items() if name not in {"result", "error"}}
    return json.dumps({**kept, **changed})


def _maim(result: Any, value: Any) -> Any:
    """The result with one of its parts replaced."""
    if isinstance(result, dict) and result:
        needed = [name for name in ("hash", "blockHash") if name in result]
        return {**result, (needed or sorted(result))[0]: value}
    if isinstance(result, list) and result:
        return [_maim(result[0], value), *result[1:]]
    return value


FAULTS: dict[str, Fault] = {
    "error": lambda a: _with(a, error={"code": -32603, "message": "internal error"}),
    "odd error": lambda a: _with(a, error="out of order"),
    "null": lambda a: _with(a, result=None),
    "empty": lambda a: _with(a, result=[]),
    "text": lambda a: _with(a, result="garbage"),
    "maimed": lambda a: _with(a, result=_maim(a.get("result"), {"not": "this"})),
    "nulled": lambda a: _with(a, result=_maim(a.get("result"), None)),
    "html": lambda a: "<html><body>502 Bad Gateway</body></html>",
    "half": lambda a: json.dumps(a)[: len(json.dumps(a)) // 2],
    "no response": lambda a: "[]",
    "no result": _with,
    "deep": lambda a: "[" * 100_000,
    "nothing": lambda a: "",
    "not text": lambda a: "\x00\udcff",
}
BUSY = "HTTP 503"


@dataclass
class FaultyRpc:
    """Use `faulty_rpc`.

    Attributes:
        rate: share of answers that are faults.
        only: the faults that occur; None for all.
        methods: which questions get them; None for all.
        lost: questions that do not come to the node where their answer is a fault.
        told: how often each fault was told.
        on_fault: is called for each.
    """

    target: str
    seed: int
    rate: float = 0.0
    only: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    lost: tuple[str, ...] = ()
    told: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    url: str = ""
    on_fault: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._random = Random(self.seed)  # noqa: S311 (repeatable)

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        method = json.loads(body)["method"]
        self.asked[method] += 1
        fault = self._draw(method)
        if fault is not None and method in self.lost:
            text = json.dumps({"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": None})
        else:
            text = await self._asked(body)
        if fault is None:
            return web.Response(text=text, content_type="application/json")
        self.told[fault] += 1
        self.on_fault()
        if fault == BUSY:
            return web.Response(status=503)
        changed = FAULTS[fault](json.loads(text))
        return web.Response(body=changed.encode("utf-8", "surrogateescape"))

    async def _asked(self, body: bytes) -> str:
        """What the node answers."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.target, data=body, headers={"Content-Type": "application/json"}) as r,
        ):
            return await r.text()

    def _draw(self, method: str) -> str | None:
        chosen = self._random.random() < self.rate
        if not chosen or (self.methods is not None and method not in self.methods):
            return None
        return self._random.choice(self.only or (*FAULTS, BUSY))


@asynccontextmanager
async def faulty_rpc(target: str, seed: int, **options: Any) -> AsyncIterator[FaultyRpc]:
    """Serves until the context ends; the options are `FaultyRpc`'s."""
    proxy = FaultyRpc(target, seed, **options)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/", proxy.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield proxy
    finally:
        await runner.cleanup()
