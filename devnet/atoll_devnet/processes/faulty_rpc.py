"""A JSON-RPC endpoint that answers like the node behind it, except when it does not.

Its faults are those that public endpoints have: errors of all kinds, nulls, empty lists, HTML, half
an answer, another type than asked for, another question's answer, statuses of HTTP, and answers by
a state that is long gone. Which answer gets which is drawn from a seed. None is a lie: an endpoint
that invents a gas price or a nonce is no faulty one.
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
from eth_utils.crypto import keccak

Fault = Callable[[dict[str, Any]], str]
"""Makes the node's answer into the text that is sent instead."""


def _with(answer: dict[str, Any], **changed: Any) -> str:
    kept = {name: value for name, value in answer.items() if name not in {"result", "error"}}
    return json.dumps({**kept, **changed})


def _error(answer: dict[str, Any], code: int, message: str) -> str:
    return _with(answer, error={"code": code, "message": message})


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
TOO_MANY = "HTTP 429"
NO_KEY = "HTTP 401"
STALE = "stale"
BY_STATUS: dict[str, tuple[int, dict[str, str], Fault]] = {
    BUSY: (503, {}, lambda a: ""),
    TOO_MANY: (429, {"Retry-After": "1"}, lambda a: _error(a, 429, "slow down")),
    NO_KEY: (401, {}, lambda a: _error(a, -32002, "project ID required")),
}
TROUBLE: dict[str, Fault] = {
    "behind": lambda a: _error(a, -32000, "header not found"),
    "pruned": lambda a: _error(a, -32000, "missing trie node 5c8f"),
    "slow": lambda a: _error(a, -32000, "execution timeout"),
    "limit": lambda a: _error(a, -32005, "limit exceeded"),
    "out of gas": lambda a: _error(a, -32000, "gas required exceeds allowance (0)"),
    "no method": lambda a: _error(a, -32601, "the method does not exist/is not available"),
    "another's answer": lambda a: json.dumps({**a, "id": "another"}),
    "batch": lambda a: json.dumps([a]),
}
"""More kinds, which say of a call or a transaction what an endpoint cannot mean."""
LAG_BLOCKS = 20
OF_NEWEST = ("latest", "pending")


@dataclass
class FaultyRpc:
    """Use `faulty_rpc`.

    Attributes:
        rate: share of answers that are faults.
        only: the faults that occur; None for all of `FAULTS`, and BUSY.
        methods: which questions get them; None for all.
        lost: questions that do not come to the node where their answer is a fault.
        counts: how often each fault was told.
        on_fault: is called for each.
    """

    target: str
    seed: int
    rate: float = 0.0
    only: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    lost: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
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
        if fault == STALE:
            self.counts[fault] += 1
            self.on_fault()
            text = await self._as_of_old(json.loads(body))
            return web.Response(text=text, content_type="application/json")
        if fault is not None and method in self.lost:
            text = json.dumps({"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": None})
        else:
            text = await self._asked(body)
        if fault is None:
            return web.Response(text=text, content_type="application/json")
        self.counts[fault] += 1
        self.on_fault()
        if fault in BY_STATUS:
            status, headers, body_of = BY_STATUS[fault]
            return web.Response(status=status, headers=headers, text=body_of(json.loads(text)))
        changed = {**FAULTS, **TROUBLE}[fault](json.loads(text))
        return web.Response(body=changed.encode("utf-8", "surrogateescape"))

    async def _asked(self, body: bytes) -> str:
        """What the node answers."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.target, data=body, headers={"Content-Type": "application/json"}) as r,
        ):
            return await r.text()

    async def _as_of_old(self, asked: dict[str, Any]) -> str:
        """What a node says that has lost its peers: it takes what it is sent, and keeps it."""
        number = {"jsonrpc": "2.0", "id": 0, "method": "eth_blockNumber", "params": []}
        newest = int(json.loads(await self._asked(json.dumps(number).encode()))["result"], 16)
        last, params = max(0, newest - LAG_BLOCKS), asked["params"]
        if asked["method"] == "eth_sendRawTransaction":
            taken = f"0x{keccak(bytes.fromhex(params[0][2:])).hex()}"
            return json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": taken})
        asked["params"] = [hex(last) if each in OF_NEWEST else each for each in params]
        answer = json.loads(await self._asked(json.dumps(asked).encode()))
        result = answer.get("result")
        first = result[0] if isinstance(result, list) and result else result
        place = first.get("blockNumber", first.get("number")) if isinstance(first, dict) else None
        if isinstance(place, str) and int(place, 16) > last:
            answer["result"] = None
        if asked["method"] == "eth_blockNumber":
            answer["result"] = hex(last)
        return json.dumps(answer)

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
