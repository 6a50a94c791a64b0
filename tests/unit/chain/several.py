"""Endpoints of one chain that has logs of ours, some of which lie, fall behind or keep silent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from aiohttp import web
from tests.support.identities import DOMAIN, address
from tests.unit.chain import heads
from tests.unit.chain.test_endpoints import served
from tests.unit.chain.test_log_decode import log_of

from atoll.chain.contracts import AtollChain
from atoll.chain.decode import RawLog
from atoll.chain.deployment import Deployment
from atoll.protocol.events import GatewayAnnounced

DEPLOYMENT = Deployment(DOMAIN.chain_id, 0, {"Rounds": DOMAIN.rounds, "Config": heads.CONFIG})
STRANGE = RawLog(address("a stranger"), (), b"", 0, bytes(32), 0)
Lie = Callable[[str, list[Any], Any], Any]
"""What is answered to a question instead of the truth."""


def word(number: int) -> str:
    return f"0x{number:064x}"


class Blocks:
    """The truth: some of its blocks have so many announcements, and the others a stranger's log."""

    def __init__(self, count: int, announcements: dict[int, int]) -> None:
        self.count, self.announcements = count, announcements

    def urls(self, number: int) -> list[str]:
        return [f"http://{number}:{at}" for at in range(self.announcements.get(number, 0))]

    def logs(self, number: int) -> list[dict[str, Any]]:
        ours = [log_of(GatewayAnnounced(address("a member"), url)) for url in self.urls(number)]
        said = [replace(raw, address=DOMAIN.rounds) for raw in ours]
        return [
            {
                "address": raw.address, "topics": [f"0x{topic.hex()}" for topic in raw.topics],
                "data": f"0x{raw.data.hex()}", "blockNumber": hex(number),
                "blockHash": word(number + 1), "logIndex": hex(index),
                "transactionHash": word(1000 * number + index),
            }
            for index, raw in enumerate(said or [STRANGE])
        ]  # fmt: skip

    def block(self, number: int) -> dict[str, Any]:
        return {
            "number": hex(number), "hash": word(number + 1), "parentHash": word(number),
            "timestamp": hex(10 * number),
            "transactions": [log["transactionHash"] for log in self.logs(number)],
        }  # fmt: skip

    def heads(self, call: dict[str, Any], number: int) -> str:
        """The words of state behind that block."""
        ours = (
            heads.timed(log, 10 * at)
            for at in range(number + 1)
            if self.announcements.get(at)
            for log in self.logs(at)
        )
        return heads.answer(call, ours)

    def receipts(self, number: int) -> list[dict[str, Any]]:
        return [
            {
                "transactionHash": log["transactionHash"], "status": "0x1", "gasUsed": "0x1",
                "blockNumber": hex(number), "blockHash": word(number + 1),
                "effectiveGasPrice": "0x1", "logs": [log],
            }
            for log in self.logs(number)
        ]  # fmt: skip

    def answer(self, method: str, params: list[Any], last: int) -> Any:
        """What an honest endpoint says whose newest block is that one."""
        if method == "eth_chainId":
            return hex(DOMAIN.chain_id)
        if method == "eth_getLogs":
            first, end = (int(params[0][name], 16) for name in ("fromBlock", "toBlock"))
            logs = (log for at in range(first, min(end, last) + 1) for log in self.logs(at))
            return [log for log in logs if log["address"] == DOMAIN.rounds]
        if method == "eth_call":
            at = params[1]
            number = int(at["blockHash"], 16) - 1 if isinstance(at, dict) else int(at, 16)
            return self.heads(params[0], number) if number <= last else None
        number = last if params[0] == "latest" else int(params[0], 16)
        if number > last:
            return None
        return self.block(number) if method == "eth_getBlockByNumber" else self.receipts(number)


def honest(_: str, __: list[Any], answer: Any) -> Any:
    return answer


@dataclass
class Endpoint:
    """One that says of the truth what it says.

    Attributes:
        lag: blocks that it does not have yet.
        asked: how often for each block, and for each other thing by its method.
        waits: what it waits for before it gives a block that is asked for by its number.
        most_blocks: of whose logs it is to be asked at once.
    """

    lie: Lie = honest
    lag: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    waits: asyncio.Event | None = None
    most_blocks: int = 1 << 62

    async def answer(self, blocks: Blocks, request: web.Request) -> web.Response:
        question = await request.json()
        method, params = question["method"], question["params"]
        self.asked[params[0] if method == "eth_getBlockByNumber" else method] += 1
        if self.waits is not None and method == "eth_getBlockByNumber" and params[0] != "latest":
            await self.waits.wait()
        truth = blocks.answer(method, params, blocks.count - 1 - self.lag)
        if method == "eth_getLogs":
            first, end = (int(params[0][name], 16) for name in ("fromBlock", "toBlock"))
            if end - first >= self.most_blocks:
                message = f"range {end - first + 1} exceeds limit of {self.most_blocks}"
                return web.json_response({"error": {"code": -32602, "message": message}})
        return web.json_response({"result": self.lie(method, params, truth)})


@asynccontextmanager
async def chain_of(
    blocks: Blocks, *endpoints: Endpoint, agreement: int = 1
) -> AsyncIterator[AtollChain]:
    """The chain as these endpoints show it, the first one preferred."""
    async with AsyncExitStack() as stack:
        urls = []
        for endpoint in endpoints:
            server = served(partial(endpoint.answer, blocks))
            urls.append(await stack.enter_async_context(server))
        for endpoint in endpoints:  # before a server waits for its last answers
            if endpoint.waits is not None:
                stack.callback(endpoint.waits.set)
        chain = AtollChain(urls, DEPLOYMENT, agreement)
        stack.push_async_callback(chain.close)
        yield chain
