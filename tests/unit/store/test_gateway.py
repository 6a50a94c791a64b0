"""The gateway's answers, against https://specs.ipfs.tech/http-gateways/trustless-gateway/."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from atoll.errors import ConfigError
from atoll.store import Cid, Gateway, GatewayConfig, LocalStore
from atoll.store.car import CarReader
from atoll.store.limits import RateLimit

MIB = 1 << 20
RAW = "application/vnd.ipld.raw"
CAR = "application/vnd.ipld.car"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", sync=False)


@pytest.fixture
async def http(store: LocalStore) -> AsyncIterator[aiohttp.ClientSession]:
    gateway = Gateway(store)
    await gateway.start()
    async with aiohttp.ClientSession(gateway.url) as session:
        yield session
    await gateway.stop()


async def ask(
    http: aiohttp.ClientSession, path: str, method: str = "GET", **options: Any
) -> aiohttp.ClientResponse:
    """The answer, with its body read: a connection left open is an error in these tests."""
    answer = await http.request(method, path, **options)
    await answer.read()
    return answer


async def fetch_car(http: aiohttp.ClientSession, path: str, **query: str) -> dict[Cid, bytes]:
    response = await ask(http, path, params={"format": "car", **query})
    assert response.status == 200, await response.text()
    reader = CarReader(1 << 30)
    blocks = dict(reader.feed(await response.read()))
    reader.finish()
    return blocks


async def test_a_block(store: LocalStore, http: aiohttp.ClientSession) -> None:
    cid = store.add_bytes(b"hello")
    got = await ask(http, f"/ipfs/{cid}?format=raw")
    assert (got.status, await got.read()) == (200, b"hello")
    assert got.headers["Content-Type"] == RAW
    assert got.headers["Etag"] == f'"{cid}.raw"'
    assert got.headers["Content-Disposition"] == f'attachment; filename="{cid}.bin"'
    assert "immutable" in got.headers["Cache-Control"]
    assert got.headers["X-Content-Type-Options"] == "nosniff"


async def test_accept_chooses_the_format(store: LocalStore, http: aiohttp.ClientSession) -> None:
    cid = store.add_bytes(b"hello")
    for accept, expected in {
        RAW: RAW,
        f"text/html, {RAW};q=0.5": RAW,
        f"{RAW};q=0.5, {CAR};version=1;order=dfs;dups=y": CAR,
        f"{RAW}, {CAR};q=0.9": RAW,
    }.items():
        got = await ask(http, f"/ipfs/{cid}", headers={"Accept": accept})
        assert got.headers["Content-Type"].startswith(expected)
        name = "raw" if expected == RAW else "car"
        assert got.headers["Content-Location"] == f"/ipfs/{cid}?format={name}"
    for query, accept, expected in (("raw", CAR, RAW), ("car", RAW, CAR), ("car", CAR + "x", CAR)):
        both = await ask(http, f"/ipfs/{cid}?format={query}", headers={"Accept": accept})
        assert both.headers["Content-Type"].startswith(expected)


async def test_head_and_revalidation(store: LocalStore, http: aiohttp.ClientSession) -> None:
    cid = store.add_bytes(b"hello")
    head = await ask(http, f"/ipfs/{cid}?format=raw", "HEAD")
    assert (head.status, head.headers["Content-Length"], await head.read()) == (200, "5", b"")
    assert (await ask(http, f"/ipfs/{cid}?format=car", "HEAD")).status == 200
    for kind in ("raw", "car"):
        etag = (await ask(http, f"/ipfs/{cid}?format={kind}")).headers["Etag"]
        again = await ask(http, f"/ipfs/{cid}?format={kind}", headers={"If-None-Match": etag})
        assert (again.status, await again.read()) == (304, b"")


async def test_errors(store: LocalStore, http: aiohttp.ClientSession) -> None:
    cid, absent = store.add_bytes(b"hello"), Cid.of(b"absent")
    for path, status in {
        f"/ipfs/{cid}": 400,
        f"/ipfs/{cid}?format=tar": 406,
        "/ipfs/nonsense?format=raw": 400,
        f"/ipfs/{absent}?format=raw": 404,
        f"/ipfs/{absent}?format=car": 404,
        f"/ipfs/{cid}/a/b?format=raw": 400,
        f"/ipfs/{cid}/a/b?format=car": 404,
        f"/ipfs/{cid}?format=car&dag-scope=some": 400,
        f"/ipfs/{cid}?format=car&entity-bytes=5": 400,
        f"/ipfs/{cid}?format=car&entity-bytes=0:*&dag-scope=all": 400,
        f"/ipfs/{cid}?format=car&car-version=2": 400,
        "/ipfs/%0d%0aX-Evil:1?format=raw": 400,
    }.items():
        got = await ask(http, path)
        assert (path, got.status) == (path, status)
        assert got.headers["Cache-Control"] == "no-store"
    html = await ask(http, f"/ipfs/{cid}", headers={"Accept": "text/html"})
    assert html.status == 406
    cached = {"Cache-Control": "only-if-cached"}
    assert (await ask(http, f"/ipfs/{absent}?format=raw", headers=cached)).status == 412


async def test_the_probe(http: aiohttp.ClientSession) -> None:
    for method in ("GET", "HEAD"):
        got = await ask(http, "/ipfs/bafkqaaa?format=raw", method)
        assert (got.status, await got.read()) == (200, b"")


async def test_car_scopes(store: LocalStore, http: aiohttp.ClientSession, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_bytes(os.urandom(3 * MIB))
    (folder / "small").write_bytes(b"small")
    root = store.add_path(folder).cid
    everything = await fetch_car(http, f"/ipfs/{root}")
    assert len(everything) == 7
    assert list(await fetch_car(http, f"/ipfs/{root}", **{"dag-scope": "block"})) == [root]
    assert list(await fetch_car(http, f"/ipfs/{root}", **{"dag-scope": "entity"})) == [root]
    file = await fetch_car(http, f"/ipfs/{root}/sub/file", **{"dag-scope": "entity"})
    assert len(file) == 2 + 4
    assert set(file) < set(everything)


@pytest.mark.parametrize(
    ("span", "leaves"),
    [("0:*", 5), ("0:0", 1), (f"{MIB}:{2 * MIB - 1}", 1), (f"{MIB - 1}:{MIB}", 2), ("-1:*", 1),
     (f"{9 * MIB}:*", 0), (f"0:-{4 * MIB}", 2), ("-99999999:*", 5), ("5:4", 0)],
)  # fmt: skip
async def test_entity_bytes_sends_the_blocks_of_a_range(
    store: LocalStore, http: aiohttp.ClientSession, span: str, leaves: int
) -> None:
    cid = store.add_bytes(os.urandom(5 * MIB))
    blocks = await fetch_car(http, f"/ipfs/{cid}", **{"entity-bytes": span})
    assert len(blocks) == 1 + leaves
    assert next(iter(blocks)) == cid


async def test_a_missing_child_breaks_the_stream(
    store: LocalStore, http: aiohttp.ClientSession
) -> None:
    cid = store.add_bytes(os.urandom(3 * MIB))
    leaf = max((store.root / "blocks").rglob("*"), key=lambda path: path.stat().st_size)
    leaf.unlink()
    response = await http.get(f"/ipfs/{cid}?format=car")
    assert response.status == 200
    with pytest.raises(aiohttp.ClientPayloadError):
        await response.read()


async def test_what_is_withheld_is_not_there(store: LocalStore) -> None:
    shown, hidden = store.add_bytes(b"shown"), store.add_bytes(b"hidden")
    gateway = Gateway(store, allow=lambda cid: cid == shown)
    await gateway.start()
    async with aiohttp.ClientSession(gateway.url) as http:
        assert (await ask(http, f"/ipfs/{shown}?format=raw")).status == 200
        assert (await ask(http, f"/ipfs/{hidden}?format=raw")).status == 404
        assert (await ask(http, f"/ipfs/{hidden}?format=car")).status == 404
    await gateway.stop()


async def test_too_many_requests_are_told_to_wait(store: LocalStore) -> None:
    cid = store.add_bytes(b"hello")
    gateway = Gateway(store, config=GatewayConfig(max_requests=1, bytes_per_s=4.0))
    await gateway.start()
    async with aiohttp.ClientSession(gateway.url) as http:
        answers = await asyncio.gather(*(ask(http, f"/ipfs/{cid}?format=raw") for _ in range(4)))
    assert sorted(answer.status for answer in answers) == [200, 503, 503, 503]
    await gateway.stop()


async def test_a_port_in_use_says_what_to_do(store: LocalStore) -> None:
    gateway = Gateway(store)
    await gateway.start()
    with pytest.raises(ConfigError, match="in use") as caught:
        await Gateway(store, port=int(gateway.url.rsplit(":", 1)[1])).start()
    assert caught.value.next_step is not None
    await gateway.stop()


async def test_the_rate_limit_spreads_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = 0.0, []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    limit = RateLimit(100.0, lambda: now)
    for _ in range(3):
        await limit.spend(100)
    assert slept == [1.0, 2.0]
