"""A file comes to everybody, and its author sends it about once."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web
from tests.unit.storage.gateways import hostile, serving, stalls

from atoll.errors import NotFound
from atoll.storage import FetchConfig, Fetcher, LocalStore
from atoll.storage.sources import SourceBook
from atoll.storage.spread import TRIES, Spread

MIB = 1 << 20
URLS = [f"http://127.0.0.1:{port}" for port in range(4001, 4008)]
DIGESTS = [hashlib.sha256(bytes([i])).digest() for i in range(200)]
PATIENT = FetchConfig(
    connect_timeout_s=60.0,
    block_timeout_s=60.0,
    hedge_min_s=60.0,
    hedge_max_s=60.0,
    relay_min_s=60.0,
    relay_max_s=60.0,
)
"""A slow machine is no reason to ask anybody else."""
IMPATIENT = FetchConfig(relay_min_s=0.2, relay_max_s=0.4)


def test_every_block_has_one_first_and_one_second() -> None:
    shares = Counter[str]()
    for digest in DIGESTS:
        turns = {url: Spread.of("http://author", URLS, url).waited_for(digest) for url in URLS}
        (first,) = [url for url, turn in turns.items() if not turn]
        assert [turn for turn in turns.values() if len(turn) == 1] == [(first,)]
        stranger = Spread.of("http://author", URLS, "http://elsewhere").waited_for(digest)
        assert len(stranger) == TRIES and stranger[0] == first
        shares[first] += 1
    assert min(shares.values()) > len(DIGESTS) / len(URLS) / 3


def test_the_author_and_what_is_no_address_are_no_relays() -> None:
    spread = Spread.of(URLS[0] + "/", [*URLS, "", "ftp://x"], "")
    assert spread.relays == frozenset(URLS[1:])
    assert Spread.of(URLS[0], URLS[:1], URLS[0]).waited_for(DIGESTS[0]) == ()


async def test_an_author_sends_each_block_about_once(tmp_path: Path) -> None:
    theirs = LocalStore(tmp_path / "author", sync=False)
    data = os.urandom(7 * MIB + 3)
    cid = theirs.add_bytes(data)
    async with AsyncExitStack() as stack:
        author = await stack.enter_async_context(serving(theirs))
        stores = [LocalStore(tmp_path / str(i), sync=False) for i in range(5)]
        relays = [await stack.enter_async_context(serving(store)) for store in stores[:3]]
        urls = [relay.url for relay in relays]
        everyone = [author.url, *urls]
        fetchers = [
            await stack.enter_async_context(Fetcher(store, lambda: everyone, PATIENT))
            for store in stores
        ]
        spreads = [Spread.of(author.url, urls, url) for url in [*urls, "", ""]]
        asked = (f.fetch_spread(cid, len(data), s) for f, s in zip(fetchers, spreads, strict=True))
        await asyncio.gather(*asked)
        assert all(store.read_bytes(cid, len(data)) == data for store in stores)
        assert len(data) <= author.bytes_up < 1.05 * len(data)
        sent = sum(relay.bytes_up for relay in relays)
        assert sent >= 4 * len(data)


@pytest.mark.parametrize("fails", ["is gone", "has nothing", "stalls"])
async def test_a_relay_that_does_not_serve_costs_one_wait(tmp_path: Path, fails: str) -> None:
    theirs, ours = (LocalStore(tmp_path / name, sync=False) for name in ("author", "ours"))
    files = [os.urandom(3 * MIB + i) for i in range(2)]
    cids = [theirs.add_bytes(data) for data in files]
    asked = 0

    async def withholds(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return await stalls(request) if fails == "stalls" else web.Response(status=404)

    async with serving(theirs) as author, hostile(withholds) as url:
        relay = "http://127.0.0.1:1" if fails == "is gone" else url
        async with Fetcher(ours, lambda: [author.url], IMPATIENT) as fetcher:
            spread = Spread.of(author.url, [relay], "")
            await fetcher.fetch_spread(cids[0], MIB * 4, spread)
            before = asked
            await fetcher.fetch_spread(cids[1], MIB * 4, spread)
            assert asked == before  # nobody waits there again so soon
    assert [ours.read_bytes(cid, 4 * MIB) for cid in cids] == files


async def test_relays_that_withhold_make_nobody_late(tmp_path: Path) -> None:
    """Two of a committee leave a block out; whoever waits for both would miss its word by that."""
    theirs, ours = (LocalStore(tmp_path / name, sync=False) for name in ("author", "ours"))
    data = os.urandom(MIB // 2)
    cid, now, asked = theirs.add_bytes(data), 0.0, 0

    async def withholds(_: web.Request) -> web.StreamResponse:
        nonlocal now, asked
        now, asked = now + 1, asked + 1
        return web.Response(status=404)

    patient = FetchConfig(relay_min_s=8.0, relay_max_s=8.0)
    async with (
        serving(theirs) as author,
        hostile(withholds) as one,
        hostile(withholds) as two,
        Fetcher(ours, lambda: [author.url], patient) as fetcher,
    ):
        fetcher.sources.clock = lambda: now
        await fetcher.fetch_spread(cid, MIB, Spread.of(author.url, [one, two], "", 3.0))
        assert asked == 3
        assert fetcher.sources.ranked([one])[0].unawaited_until == 0  # it may yet deliver
    assert ours.read_bytes(cid, MIB) == data


async def test_what_nobody_has_is_not_found(tmp_path: Path) -> None:
    theirs, ours = (LocalStore(tmp_path / name, sync=False) for name in ("author", "ours"))
    cid = LocalStore(tmp_path / "nobody", sync=False).add_bytes(b"not served")
    async with serving(theirs) as author, Fetcher(ours, tuple, IMPATIENT) as fetcher:
        spread = Spread.of(author.url, [author.url, "http://127.0.0.1:1"], "")
        with pytest.raises(NotFound):
            await fetcher.fetch_spread(cid, MIB, spread)


def test_who_was_waited_for_in_vain_gets_its_turn_again_later_and_later() -> None:
    now = 0.0
    book = SourceBook(lambda: now)
    (relay,) = book.ranked([URLS[0]])
    waits = []
    for _ in range(6):
        book.withheld(relay)
        waits.append(relay.unawaited_until - now)
        now = relay.unawaited_until
    assert waits == [30.0, 60.0, 120.0, 240.0, 300.0, 300.0]
    book.delivered(relay, 1, 0.1)
    book.withheld(relay)
    assert relay.unawaited_until - now == 30.0
