"""Whose bytes leave: a simulated line with TCP's shares, and real gateways with slow lines."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from atoll.storage import FetchConfig, Fetcher, Gateway, GatewayConfig, LocalStore
from atoll.storage.connection_limiter import Budget
from atoll.storage.uplink import BLOCK, PIECE, TICK_S, SentBytes, StrangersShare, UplinkLine

MEMBER = "Atoll member"
MBIT = 125_000


@dataclass
class Now:
    """A clock that is moved by hand."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Simulated:
    """A line that TCP shares among connections, and a gateway before it that measures.

    Attributes:
        rate: bytes a second that leave.
        strangers: connections of theirs, which want all they can have.
        acknowledges_early: whether they say that they received what never arrived.
    """

    rate: float
    strangers: int
    acknowledges_early: bool = False
    now: Now = field(default_factory=Now)
    backlog: float = 0.0

    def __post_init__(self) -> None:
        self.line = UplinkLine(None, self.now)

    def tick(self, member_wants: float) -> float:
        """One tick; returns the bytes that a member received."""
        given = Budget().strangers_share * self.line.bytes_per_s * TICK_S if self.strangers else 0.0
        waiting, room = self.backlog + given, self.rate * TICK_S
        fair = room * self.strangers / (self.strangers + (member_wants > 0)) if waiting else 0.0
        to_member = min(member_wants, room - min(waiting, fair))
        left = min(waiting, room - to_member)
        self.backlog = waiting - left
        self.now.seconds += TICK_S
        of_strangers = SentBytes(int(left), int(self.backlog), self.strangers)
        if self.acknowledges_early:
            of_strangers, self.backlog = SentBytes(int(waiting), 0, self.strangers), 0.0
        of_member = SentBytes(int(to_member), 0, int(member_wants > 0))
        self.line.tick(TICK_S, of_member, of_strangers, was_short=bool(self.strangers))
        return to_member

    def seconds_for(self, size: float) -> float:
        """How long a member's fetch of so many bytes takes."""
        began = self.now.seconds
        while size > 0:
            size -= self.tick(size)
        return self.now.seconds - began


@pytest.mark.parametrize("mbit", [2, 4, 20, 100, 1000])
@pytest.mark.parametrize("strangers", [1, 64, 384])
@pytest.mark.parametrize("acknowledges_early", [False, True])
@pytest.mark.parametrize("before_s", [0.0, 10.0, 400.0])
def test_a_fetch_beside_a_full_house_takes_less_than_twice_as_long(
    mbit: int, strangers: int, acknowledges_early: bool, before_s: float
) -> None:
    """However long strangers had the line for themselves, and whatever they say they received."""
    size = 8.0 * mbit * MBIT  # eight seconds, as an update of 4 MB on 4 Mbit/s
    alone = Simulated(mbit * MBIT, 0).seconds_for(size)
    line = Simulated(mbit * MBIT, strangers, acknowledges_early)
    while line.now.seconds < 1000.0 + before_s:
        line.tick(0.0)
    assert line.seconds_for(size) < 2 * alone


@pytest.mark.parametrize("mbit", [4, 100, 1000])
def test_strangers_alone_have_a_quarter_within_seconds(mbit: int) -> None:
    line = Simulated(mbit * MBIT, 4)
    while line.now.seconds < 1010.0:
        line.tick(0.0)
    measured = line.line.bytes_per_s
    assert mbit * MBIT * 0.8 <= measured <= mbit * MBIT * 1.05  # at least 4 * 1024 * 1024 bits


def test_slow_readers_leave_strangers_what_a_home_has() -> None:
    now = Now()
    line = UplinkLine(None, now)
    for _ in range(100):
        now.seconds += TICK_S
        line.tick(TICK_S, SentBytes(), SentBytes(10, 10 << 20, 64), was_short=True)
    assert line.bytes_per_s == 512 << 10


def test_a_member_that_takes_nothing_holds_up_no_stranger() -> None:
    now = Now()
    line = UplinkLine(None, now)
    line.tick(TICK_S, SentBytes(5_000_000, 0, 1), SentBytes(), was_short=False)
    served = line.bytes_per_s
    line.tick(TICK_S, SentBytes(0, 1 << 20, 1), SentBytes(), was_short=True)
    assert line.bytes_per_s == served == 20_000_000


def test_a_line_that_became_slower_is_forgotten_in_minutes() -> None:
    now = Now()
    line = UplinkLine(None, now)
    line.tick(TICK_S, SentBytes(5_000_000, 0, 1), SentBytes(), was_short=False)
    for _ in range(3):
        now.seconds += 160.0
        line.tick(TICK_S, SentBytes(50_000, 0, 1), SentBytes(), was_short=False)
    assert line.bytes_per_s == 200_000


def test_what_its_owner_says_is_not_measured() -> None:
    line = UplinkLine(1e6, Now())
    line.tick(TICK_S, SentBytes(10 << 20, 0, 1), SentBytes(10 << 20, 0, 1), was_short=True)
    assert line.bytes_per_s == 1e6


async def test_one_address_with_many_requests_has_the_turns_of_one() -> None:
    now = Now()
    share = StrangersShare(0.25, UplinkLine(1e12, now), now)
    came: list[str] = []

    async def ask(party: str) -> None:
        await share.turn(party, PIECE)
        now.seconds += 1.0
        came.append(party)

    await share._turns.acquire("first")
    tasks = [asyncio.create_task(ask(party)) for party in "aaaaaaab"]
    await asyncio.sleep(0)
    share._turns.release()
    await asyncio.gather(*tasks)
    assert came.index("b") == 1


@asynccontextmanager
async def slow_gateway(store: LocalStore, line: float) -> AsyncIterator[Gateway]:
    gateway = Gateway(
        store,
        config=GatewayConfig(budget=Budget(line_bytes_per_s=line)),
        recognise=lambda header: "m" if header == MEMBER else None,
    )
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


@pytest.mark.parametrize("kind", ["raw", "car"])
async def test_a_member_waits_for_nothing_that_strangers_wait_for(
    tmp_path: Path, kind: str
) -> None:
    """A line of a byte a second: strangers have their first piece, and nothing after it."""
    store = LocalStore(tmp_path / "served", sync=False)
    cid = store.add_block(bytes(8 * PIECE))
    asks = f"/ipfs/{cid}?format={kind}"
    async with (
        slow_gateway(store, 1.0) as gateway,
        aiohttp.ClientSession(gateway.url) as strangers,
        aiohttp.ClientSession(gateway.url) as members,
    ):
        waiting = [asyncio.create_task(read(strangers, asks)) for _ in range(20)]
        while len(gateway.connection_limiter._connections) < 20 or not gateway._share.was_short:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # nothing there tells of it
        status, body = await read(members, asks, Authorization=MEMBER)
        assert status == 200
        assert bytes(8 * PIECE) in body
        assert all(task.result()[0] == 503 for task in waiting if task.done())
        for task in waiting:
            task.cancel()


async def test_who_goes_gives_up_its_turn(tmp_path: Path) -> None:
    """Else a stranger who asks and goes, again and again, fills the memory."""
    store = LocalStore(tmp_path / "served", sync=False)
    cid = store.add_block(bytes(2 * PIECE))
    async with slow_gateway(store, 1.0) as gateway:
        async with AsyncExitStack() as stack:
            addresses = [
                aiohttp.TCPConnector(local_addr=(f"127.0.0.{number}", 0)) for number in range(2, 22)
            ]
            strangers = [
                await stack.enter_async_context(
                    aiohttp.ClientSession(gateway.url, connector=address)
                )
                for address in addresses
            ]
            asks = f"/ipfs/{cid}?format=raw"
            waiting = [asyncio.create_task(read(http, asks)) for http in strangers]
            while not gateway._share._turns._waiting:  # noqa: ASYNC110 - nothing there tells of it
                await asyncio.sleep(0.01)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        while gateway.connection_limiter._connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        assert not any(not f.done() for q in gateway._share._turns._waiting.values() for f in q)
        assert not gateway._share._requests


async def read(http: aiohttp.ClientSession, path: str, **headers: str) -> tuple[int, bytes]:
    async with http.get(path, headers=headers) as answer:
        return answer.status, await answer.read()


async def test_who_would_wait_too_long_is_told_when_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.storage.uplink.BLOCK", 2 * PIECE)
    monkeypatch.setattr("atoll.storage.uplink._LONGEST_ANSWER_S", 1.0)
    store = LocalStore(tmp_path / "served", sync=False)
    cid = store.add_block(bytes(2 * PIECE))
    async with (
        slow_gateway(store, 40.0 * PIECE) as gateway,  # ten pieces a second for strangers
        aiohttp.ClientSession(gateway.url, connector=aiohttp.TCPConnector(limit=0)) as http,
    ):

        async def ask() -> tuple[int, str]:
            async with http.get(f"/ipfs/{cid}?format=raw") as answer:
                await answer.read()
                return answer.status, answer.headers.get("Retry-After", "")

        answers = await asyncio.gather(*(ask() for _ in range(24)))
    assert {status for status, _ in answers} == {200, 503}
    assert all((status == 503) == (0 < int(after or 0) <= 60) for status, after in answers)


@pytest.mark.parametrize(("mbit", "others", "at_once"), [(4, 0, 1), (4, 9, 1), (40, 0, 18)])
def test_a_stranger_asks_for_no_more_than_it_can_have_before_it_gives_up(
    mbit: int, others: int, at_once: int
) -> None:
    now = Now()
    share = StrangersShare(0.25, UplinkLine(mbit * (1 << 17), now), now)
    with ExitStack() as stack:
        for other in range(others):
            stack.enter_context(share.request(other))
        admitted = 0
        while (seconds := share.retry_after_s("me")) is None:
            stack.enter_context(share.request("me"))
            admitted += 1
    assert admitted == at_once
    assert seconds == math.ceil(min(60, (others + 1) * 32 / mbit))


async def test_a_lone_stranger_has_a_file_of_a_slow_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second a block, which it gives up after one and a quarter: side by side it had none
    of them, however often it asked."""
    monkeypatch.setattr("atoll.storage.uplink._LONGEST_ANSWER_S", 0.9)
    store = LocalStore(tmp_path / "served", sync=False)
    content = random.Random(1).randbytes(4 * BLOCK)
    cid = store.add_bytes(content)
    config = FetchConfig(block_timeout_s=1.25, passes=20)
    async with (
        slow_gateway(store, 8.0 * BLOCK) as gateway,
        Fetcher(
            LocalStore(tmp_path / "ours", sync=False), lambda: [gateway.url], config
        ) as fetcher,
    ):
        await fetcher.fetch(cid, len(content))
        assert gateway.bytes_up < 2 * len(content)


@asynccontextmanager
async def crowded(answers: list[web.Response]) -> AsyncIterator[tuple[str, list[float]]]:
    """A gateway that gives these answers, one after another, then the last again."""
    asked: list[float] = []

    async def answer(_: web.BaseRequest) -> web.Response:
        asked.append(asyncio.get_running_loop().time())
        given = answers[min(len(asked), len(answers)) - 1]
        return web.Response(status=given.status, headers=dict(given.headers), body=given.body)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("status", [429, 503])
async def test_who_is_told_to_come_back_does_then_and_blames_nobody(
    tmp_path: Path, status: int
) -> None:
    content = b"once there was room"
    cid = LocalStore(tmp_path / "theirs", sync=False).add_block(content)
    full = web.Response(status=status, headers={"Retry-After": "2"})
    async with (
        crowded([full, full, web.Response(body=content)]) as (url, asked),
        Fetcher(LocalStore(tmp_path / "ours", sync=False), lambda: [url], FetchConfig(passes=1))
        as fetcher,
    ):  # fmt: skip
        await fetcher.fetch(cid, 100)
        assert [source.failures for source in fetcher.sources.all()] == [0]
    assert len(asked) == 3
    assert all(later - earlier >= 2.0 for earlier, later in pairwise(asked))


async def test_one_without_room_holds_up_no_fetch_from_another(tmp_path: Path) -> None:
    content = b"had by another"
    theirs = LocalStore(tmp_path / "theirs", sync=False)
    cid = theirs.add_block(content)
    gateway = Gateway(theirs)
    await gateway.start()
    full = web.Response(status=503, headers={"Retry-After": "999999999999"})
    async with crowded([full]) as (url, asked):
        async with Fetcher(
            LocalStore(tmp_path / "ours", sync=False), lambda: [url, gateway.url]
        ) as f:
            await f.fetch(cid, 100)
        assert len(asked) <= 1
    await gateway.stop()
