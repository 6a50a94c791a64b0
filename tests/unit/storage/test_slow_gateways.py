"""Gateways that are slow hold up nobody who asks others."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from aiohttp import web
from tests.unit.storage.gateways import PATIENT, QUICK, Counted, hostile, lacks, serving, stalls

from atoll.errors import NotFound
from atoll.storage import (
    Cid,
    Fetcher,
    LocalStore,
)
from atoll.storage.rate_limits import Outsider
from atoll.storage.sources import SourceBook


async def test_a_stalling_gateway_is_overtaken_and_then_avoided(
    theirs: LocalStore, ours: LocalStore
) -> None:
    counted = Counted(stalls)
    async with (
        hostile(counted.answer) as slow,
        serving(theirs) as good,
        Fetcher(ours, lambda: [good.url], PATIENT) as fetcher,
    ):
        for i in range(10):
            await fetcher.get(theirs.add_bytes(bytes([i])), 1, prefer=[slow])
        assert fetcher.sources.ranked([slow])[0].failures >= 1
    assert 1 <= counted.asked < 5


async def test_gateways_that_drip_hold_up_nobody_elses_blocks(
    theirs: LocalStore, ours: LocalStore
) -> None:
    asked = asyncio.Semaphore(0)

    async def dripping(request: web.Request) -> web.StreamResponse:
        asked.release()
        return await stalls(request)

    config = replace(PATIENT, block_timeout_s=3600, at_once=2, slow_s=0.01)
    async with (
        hostile(dripping) as first,
        hostile(dripping) as second,
        serving(theirs) as good,
        Fetcher(ours, tuple, config) as fetcher,
    ):
        cids = [Cid.of(bytes([number])) for number in range(6)]  # which nobody else has
        held = [
            asyncio.create_task(fetcher.fetch_block(cid, prefer=[url]))
            for cid in cids
            for url in (first, second)
        ]
        for _ in held:
            await asked.acquire()
        assert await fetcher.get(theirs.add_bytes(b"here"), 4, prefer=[good.url]) == b"here"
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)


async def test_who_has_a_block_by_then_is_asked_while_another_is_slow(
    ours: LocalStore,
) -> None:
    """As an author that makes again what its disk lost, beside a gateway that never answers."""
    cid = Cid.of(b"made again")

    async def has_it_later(request: web.Request) -> web.StreamResponse:
        return await lacks(request) if counted.asked <= 4 else web.Response(body=b"made again")

    counted = Counted(has_it_later)
    config = replace(PATIENT, passes=2, pass_pause_s=0.01)
    async with (
        hostile(stalls) as slow,
        hostile(counted.answer) as author,
        Fetcher(ours, lambda: [slow], config) as fetcher,
    ):
        assert await fetcher.fetch_block(cid, prefer=[author]) == b"made again"
    assert counted.asked == 5


async def test_gateways_that_are_slow_in_turn_hold_nobody_for_ever(ours: LocalStore) -> None:
    """Each is asked again while the other is slow."""

    async def late(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(random.uniform(0.1, 0.4))
        return await lacks(request)

    config = replace(QUICK, passes=2, pass_pause_s=0.01)
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(hostile(late)) for _ in range(4)]
        fetcher = await stack.enter_async_context(Fetcher(ours, lambda: urls, config))
        with pytest.raises(NotFound):
            await fetcher.fetch_block(Cid.of(b"nobody has it"), prefer=urls)


async def test_of_what_one_withholds_the_others_are_asked_no_oftener(ours: LocalStore) -> None:
    """At 256 seats everybody asks everybody for it, as often as this."""
    counted = Counted(lacks)
    config = replace(QUICK, block_timeout_s=1.0, passes=2, pass_pause_s=0.01)
    async with (
        hostile(stalls) as author,
        hostile(counted.answer) as other,
        Fetcher(ours, lambda: [other], config) as fetcher,
    ):
        with pytest.raises(NotFound):
            await fetcher.fetch_block(Cid.of(b"withheld"), prefer=[author])
    assert counted.asked == config.passes


async def test_jobs_have_their_turns_however_much_others_ask_for(
    theirs: LocalStore, ours: LocalStore
) -> None:
    asked: list[str] = []
    goes_on, delivers = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def answers(request: web.Request) -> web.StreamResponse:
        name = request.path.rsplit("/", 1)[1]
        asked.append(name)
        goes_on.release()
        await delivers.acquire()
        return web.Response(body=theirs.get_block(Cid.parse(name)))

    many = [theirs.add_block(bytes([number])) for number in range(6)]
    one = theirs.add_block(b"one")
    config = replace(PATIENT, at_once=1, slow_s=600.0, hedge_min_s=600.0, hedge_max_s=600.0)
    async with hostile(answers) as url, Fetcher(ours, tuple, config) as fetcher:
        large, small = (fetcher.among(lambda: [url], job) for job in ("large", "small"))
        tasks = [asyncio.create_task(large.fetch_block(cid)) for cid in many]
        await goes_on.acquire()
        while sum(map(len, fetcher._downloader._room._waiting.values())) < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        tasks.append(asyncio.create_task(small.fetch_block(one)))
        while "small" not in fetcher._downloader._room._waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for _ in tasks:
            delivers.release()
        await asyncio.gather(*tasks)
    assert asked.index(str(one)) == 2  # one was answered, and one was first in turn


async def test_nobody_waits_for_outsiders_however_many_they_are(
    theirs: LocalStore, ours: LocalStore
) -> None:
    waits = asyncio.Semaphore(0)

    async def silent(_: web.Request) -> web.StreamResponse:
        waits.release()
        return await asyncio.Future()

    cid = theirs.add_block(b"ours")
    config = replace(PATIENT, at_once=1, slow_s=600.0, hedge_min_s=600.0, hedge_max_s=600.0)
    async with (
        hostile(silent) as stranger,
        serving(theirs) as good,
        Fetcher(ours, tuple, config) as fetcher,
    ):
        jobs = [fetcher.among(lambda: [stranger], Outsider(job)) for job in range(3)]
        tasks = [asyncio.create_task(job.fetch_block(Cid.of(b"theirs"))) for job in jobs]
        await waits.acquire()
        assert await fetcher.among(lambda: [good.url], "ours").fetch_block(cid) == b"ours"
        assert waits.locked()  # the other two wait for the first
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_gateway_asked_again_meanwhile_is_overtaken_all_the_same(
    theirs: LocalStore, ours: LocalStore
) -> None:
    first, second = theirs.add_bytes(b"first"), theirs.add_bytes(b"second")
    asked: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
    go_on = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        asked[f"slow {request.path.rsplit('/', 1)[1]}"].set()
        return await stalls(request)

    async def good(request: web.Request) -> web.StreamResponse:
        asked[f"good {request.path.rsplit('/', 1)[1]}"].set()
        await go_on.wait()
        return web.Response(body=theirs.get_block(first))

    async with (
        hostile(slow) as slow_url,
        hostile(good) as good_url,
        Fetcher(ours, lambda: [good_url], PATIENT) as fetcher,
    ):
        one = asyncio.create_task(fetcher.fetch_block(first, prefer=[slow_url]))
        await asked[f"good {first}"].wait()
        two = asyncio.create_task(fetcher.fetch_block(second, prefer=[slow_url]))
        await asked[f"slow {second}"].wait()
        go_on.set()
        assert await one == b"first"
        assert fetcher.sources.ranked([slow_url])[0].failures == 1
        two.cancel()
        await asyncio.gather(two, return_exceptions=True)


async def test_the_first_block_of_all_does_not_wait_for_one_gateway_either(
    theirs: LocalStore, ours: LocalStore
) -> None:
    config = replace(PATIENT, hedge_max_s=3600)
    async with (
        hostile(stalls) as slow,
        serving(theirs) as good,
        Fetcher(ours, lambda: [good.url], config) as fetcher,
    ):
        assert await fetcher.get(theirs.add_bytes(b"here"), 4, prefer=[slow]) == b"here"


def test_a_failing_gateway_rests_longer_each_time() -> None:
    now = 0.0
    book = SourceBook(lambda: now)
    good, bad = "http://good", "http://bad"
    assert {source.url for source in book.ranked([bad, good + "/"])} == {good, bad}
    failing = next(source for source in book.ranked([bad]) if source.url == bad)
    book.failed(failing)
    assert [source.url for source in book.ranked([bad, good])] == [good, bad]
    first_rest = failing.rest_until
    book.failed(failing)
    assert failing.rest_until == 2 * first_rest
    book.delivered(failing, 10, 0.1)
    assert (failing.rest_until, failing.bytes_down) == (0.0, 10)
