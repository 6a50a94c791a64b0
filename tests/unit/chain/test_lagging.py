"""An endpoint that is behind is passed over for one that goes on from its newest block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from tests.unit.chain.test_endpoints import served

from atoll.chain import lagging
from atoll.chain.headers import HeaderReader
from atoll.chain.lagging import FAR_BLOCKS
from atoll.chain.rpc import FailoverProvider

STOPPED = 9


@dataclass
class Endpoint:
    """Has the blocks up to one; of another `fork` its blocks are others; `says` is its newest's
    number as it tells it.
    """

    reaches: int
    fork: int = 0
    says: int | None = None
    asked: list[str] = field(default_factory=list)

    def block(self, number: int) -> dict[str, object]:
        name, parent = (f"0x{1000 * self.fork + n + 1:064x}" for n in (number, number - 1))
        return {
            "number": hex(number), "hash": name, "parentHash": parent, "timestamp": "0x1",
            "transactions": [],
        }  # fmt: skip

    async def answer(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if asked["method"] == "eth_chainId":
            return web.json_response({"result": "0x1"})
        self.asked.append(asked["params"][0])
        if asked["params"][0] == "latest":
            newest = self.reaches if self.says is None else self.says
            return web.json_response({"result": self.block(newest)})
        number = int(asked["params"][0], 16)
        found = self.block(number) if number <= self.reaches else None
        return web.json_response({"result": found})


@asynccontextmanager
async def reading(*endpoints: Endpoint) -> AsyncIterator[HeaderReader]:
    async with AsyncExitStack() as stack:
        urls = []
        for endpoint in endpoints:
            urls.append(await stack.enter_async_context(served(endpoint.answer)))
        provider = FailoverProvider(urls, 1)
        stack.push_async_callback(provider.disconnect)
        yield HeaderReader(provider)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lagging, "LOOK_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_one_that_stands_still_is_passed_over_for_one_that_goes_on() -> None:
    still, other = Endpoint(STOPPED), Endpoint(STOPPED + FAR_BLOCKS)
    async with reading(still, other) as reader:
        assert (await reader.newest()).ref.number == STOPPED + FAR_BLOCKS
        still.asked.clear()
        other.reaches += 1
        assert (await reader.newest()).ref.number == other.reaches
        found = await reader.header(STOPPED + 2)
        assert found is not None and found.ref.number == STOPPED + 2
    assert still.asked == []


@pytest.mark.usefixtures("at_once")
async def test_one_that_goes_on_far_behind_is_passed_over() -> None:
    """As a node that has yet to catch up, or one that keeps its distance."""
    late, other = Endpoint(STOPPED), Endpoint(STOPPED + 1000)
    async with reading(late, other) as reader:
        for _ in range(3):
            late.reaches, other.reaches = late.reaches + 1, other.reaches + 1
            assert (await reader.newest()).ref.number == other.reaches
    assert len(late.asked) == 3


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "other",
    [
        Endpoint(STOPPED + FAR_BLOCKS, fork=1),
        Endpoint(STOPPED + FAR_BLOCKS - 1),
        Endpoint(STOPPED, says=1 << 40),
        Endpoint(3),
    ],
)
async def test_it_is_not_for_one_that_does_not_go_on_from_there(other: Endpoint) -> None:
    """Else whoever made up blocks, or a number, would be asked first."""
    still = Endpoint(STOPPED)
    async with reading(still, other) as reader:
        for _ in range(2):
            assert (await reader.newest()).ref.number == STOPPED
    assert "latest" not in other.asked


async def test_one_that_falls_far_back_is_passed_over_without_waiting() -> None:
    first, other = Endpoint(30), Endpoint(31)
    async with reading(first, other) as reader:
        assert (await reader.newest()).ref.number == 30
        assert other.asked == []
        first.reaches = 30 - FAR_BLOCKS
        assert (await reader.newest()).ref.number == 30 - FAR_BLOCKS
        assert other.asked == []
        first.reaches -= 1
        assert (await reader.newest()).ref.number == 31


async def test_a_chain_that_is_shorter_everywhere_is_followed() -> None:
    first, other = Endpoint(30), Endpoint(30)
    async with reading(first, other) as reader:
        await reader.newest()
        first.reaches = other.reaches = STOPPED
        first.fork = other.fork = 1
        for _ in range(2):
            assert (await reader.newest()).ref.number == STOPPED
    assert other.asked == [hex(STOPPED + FAR_BLOCKS), hex(STOPPED)]


@pytest.mark.usefixtures("at_once")
async def test_a_single_endpoint_is_compared_with_nobody() -> None:
    alone = Endpoint(STOPPED)
    async with reading(alone) as reader:
        for _ in range(2):
            await reader.newest()
    assert alone.asked == ["latest", "latest"]
