"""Who asks several endpoints waits for none that failed lately where the others are enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
from aiohttp import web
from tests.unit.chain.test_endpoints import served

from atoll.chain import rpc
from atoll.chain.agreement import Agreement
from atoll.chain.rpc import FailoverProvider
from atoll.errors import RpcUnavailable

LEAST = 2


def block(number: int) -> dict[str, object]:
    return {
        "number": hex(number), "hash": f"0x{number + 1:064x}", "parentHash": f"0x{number:064x}",
        "timestamp": "0x1", "transactions": [],
    }  # fmt: skip


class Network:
    """Endpoints by a letter: their newest blocks, below 0 where they are out of order; how often
    each was asked for a block.
    """

    def __init__(self) -> None:
        self.reaches: dict[str, int] = dict.fromkeys("abc", 9)
        self.asked: Counter[str] = Counter()

    async def answer(self, name: str, request: web.Request) -> web.Response:
        asked = await request.json()
        if asked["method"] == "eth_chainId":
            return web.json_response({"result": "0x1"})
        self.asked[name] += 1
        if self.reaches[name] < 0:
            return web.Response(status=503)
        number = int(asked["params"][0], 16)
        found = block(number) if number <= self.reaches[name] else None
        return web.json_response({"result": found})


@asynccontextmanager
async def reading(network: Network) -> AsyncIterator[Agreement]:
    async with AsyncExitStack() as stack:
        urls = []
        for name in "abc":
            server = served(partial(network.answer, name))
            urls.append(await stack.enter_async_context(server))
        provider = FailoverProvider(urls, 1)
        stack.push_async_callback(provider.disconnect)
        yield Agreement(provider, LEAST)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "FIRST_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(rpc, "LONGEST_PAUSE_SECONDS", 3600.0)


async def test_one_that_failed_is_not_asked_again_while_the_others_agree() -> None:
    network = Network()
    network.reaches["a"] = -1
    async with reading(network) as agreement:
        for number in (3, 4, 5):
            assert (await agreement.block(number)).ref.number == number
    assert network.asked == {"a": rpc.TRIES, "b": 3, "c": 3}


async def test_it_is_asked_where_one_of_the_others_is_behind() -> None:
    network = Network()
    network.reaches |= {"a": -1, "b": 4}
    async with reading(network) as agreement:
        await agreement.block(3)
        network.asked.clear()
        network.reaches["a"] = 9
        assert (await agreement.block(5)).ref.number == 5
        network.reaches["a"] = 4
        with pytest.raises(RpcUnavailable, match="1 of 3 RPC endpoints give the same block 5"):
            await agreement.block(5)
    assert network.asked == {"a": 2, "b": 2, "c": 2}
