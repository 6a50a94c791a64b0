"""Where endpoints have to agree, none alone sets the chain's clock or its height forward."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.unit.chain import heads
from tests.unit.chain.several import Blocks, Endpoint
from tests.unit.chain.several import chain_of as several
from tests.unit.chain.test_endpoints import served

from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.chain.index import Advanced, EventIndex
from atoll.errors import RpcUnavailable
from atoll.protocol.types import Address

DEPLOYMENT = Deployment(1, 0, {"Rounds": Address("0x" + "11" * 20), "Config": heads.CONFIG})
FAR = 1 << 40
Newest = tuple[int, int]
"""Height and time that an endpoint says its newest block has; others have ten times their height.
"""


async def answer(newest: Newest, request: web.Request) -> web.Response:
    asked = await request.json()
    if asked["method"] == "eth_chainId":
        return web.json_response({"result": "0x1"})
    if asked["method"] == "eth_getLogs":
        return web.json_response({"result": []})
    if asked["method"] == "eth_call":
        return web.json_response({"result": heads.answer(asked["params"][0], [])})
    number, time = newest
    if asked["params"][0] not in ("latest", hex(number)):
        number = int(asked["params"][0], 16)
        time = 10 * number
        if number > 20:
            return web.json_response({"result": None})
    found = {
        "number": hex(number), "hash": f"0x{number + 1:064x}", "parentHash": f"0x{number:064x}",
        "timestamp": hex(time), "transactions": [],
    }  # fmt: skip
    return web.json_response({"result": found})


@asynccontextmanager
async def chain_of(*newest: Newest, agreement: int = 2) -> AsyncIterator[AtollChain]:
    async with AsyncExitStack() as stack:
        servers = (served(partial(answer, one)) for one in newest)
        urls = [await stack.enter_async_context(server) for server in servers]
        chain = AtollChain(urls, DEPLOYMENT, agreement)
        stack.push_async_callback(chain.close)
        yield chain


LIES = [(20, FAR), (FAR, FAR), (FAR, 200), (FAR, 195), (3, FAR), (19, 200)]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("place", range(3))
async def test_the_newest_block_is_one_that_so_many_have_reached(lie: Newest, place: int) -> None:
    told: Sequence[Newest] = [(20, 200), (19, 190)]
    async with chain_of(*told[:place], lie, *told[place:]) as chain:
        found = await chain.head()
    assert (found.number, found.timestamp) in {(20, 200), (19, 190)}


async def test_two_that_differ_altogether_have_none() -> None:
    async with chain_of((20, 200), (20, FAR)) as chain:
        with pytest.raises(RpcUnavailable, match=r"1 of 2 .* block 20, and rpc_agreement is 2"):
            await chain.head()


async def test_who_names_a_height_that_nobody_else_knows_holds_nobody_up() -> None:
    """Though what one of the others has as its newest block, the other does not have yet."""
    blocks = Blocks(21, {})

    def far(_: str, params: list[Any], truth: Any) -> Any:
        if params[:1] == ["latest"]:
            return {**truth, "number": hex(FAR)}
        return None if isinstance(truth, dict) else truth

    liar, first, second = Endpoint(far), Endpoint(), Endpoint(lag=1)
    async with several(blocks, liar, first, second, agreement=2) as chain:
        assert (await chain.head()).number == 19
    assert hex(FAR) not in first.asked | second.asked


@pytest.mark.parametrize("lie", [(20, FAR), (FAR, FAR)])
async def test_the_clock_of_a_service_is_not_the_preferred_endpoint_s_alone(
    lie: Newest, tmp_path: Path
) -> None:
    async with chain_of(lie, (20, 200), (20, 200)) as chain:
        index = EventIndex(chain, confirmations=2, path=tmp_path / "index")
        *_, last = await index.poll()
        assert (index.confirmed, index.confirmed_at) == (18, 180)
        index.close()
    assert isinstance(last, Advanced)
    assert (last.block.number, last.block.timestamp, last.confirmed) == (20, 200, 18)


async def test_who_asks_one_alone_believes_it() -> None:
    async with chain_of((20, FAR), (20, 200), agreement=1) as chain:
        assert (await chain.head()).timestamp == FAR
