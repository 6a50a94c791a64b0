"""The gateway's answers, against https://specs.ipfs.tech/http-gateways/trustless-gateway/."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from atoll.errors import ConfigError, NotFound
from atoll.storage import DAG_PB, Cid, Gateway, GatewayConfig, LocalStore
from atoll.storage.car import CarReader
from atoll.storage.dagpb import Link, Node, encode_field, encode_node
from atoll.storage.errors import MalformedDag
from atoll.storage.fetch import Fetcher
from atoll.storage.gateway import ListenAddress, url_of
from atoll.storage.rate_limits import RateLimit
from atoll.storage.scope import blocks_in_scope
from atoll.storage.unixfs import UnixFsKind, encode_file_header

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


async def test_the_example_in_the_text_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = (Path(__file__).parents[3] / "docs" / "storage.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    await eval(compile(example, "storage.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    await names["gateway"].stop()


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
        name = "raw" if expected == RAW else "car&car-version=1&car-order=dfs&car-dups=y"
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
        for known in (etag, f'"other", W/{etag}', "*"):
            headers = {"If-None-Match": known}
            again = await ask(http, f"/ipfs/{cid}?format={kind}", headers=headers)
            assert (again.status, await again.read()) == (304, b"")
            assert again.headers["Etag"] == etag
        headers = {"If-None-Match": '"other"'}
        assert (await ask(http, f"/ipfs/{cid}?format={kind}", headers=headers)).status == 200
    anything = {"If-None-Match": "*"}
    assert (await ask(http, f"/ipfs/{cid}/a?format=car", headers=anything)).status == 404


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
        f"/ipfs/{cid}?format=car&entity-bytes=1_0:*": 400,
        f"/ipfs/{cid}?format=car&entity-bytes=%2B1:*": 400,
        f"/ipfs/{cid}?format=car&car-version=2": 400,
        f"/ipfs/{cid}?format=car&car-order=bfs": 400,
        f"/ipfs/{cid}?format=car&car-dups=maybe": 400,
        "/ipfs/%0d%0aX-Evil:1?format=raw": 400,
    }.items():
        got = await ask(http, path)
        assert (path, got.status) == (path, status)
        assert got.headers["Cache-Control"] == "no-store"
    html = await ask(http, f"/ipfs/{cid}", headers={"Accept": "text/html"})
    assert html.status == 406
    worker = await ask(http, f"/ipfs/{cid}?format=raw", headers={"Service-Worker": "script"})
    assert worker.status == 400
    cached = {"Cache-Control": "only-if-cached"}
    assert (await ask(http, f"/ipfs/{absent}?format=raw", headers=cached)).status == 412


async def test_the_probe(http: aiohttp.ClientSession) -> None:
    for method in ("GET", "HEAD"):
        got = await ask(http, "/ipfs/bafkqaaa?format=raw", method)
        assert (got.status, await got.read()) == (200, b"")
        assert got.headers["Content-Type"] == RAW
        car = await ask(http, "/ipfs/bafkqaaa", method, headers={"Accept": CAR})
        # DAG-CBOR of {"roots": [CID 0155 0000], "version": 1}, with its length before it
        header = bytes.fromhex("19a265726f6f747381d82a450001550000") + b"gversion\x01"
        assert (car.status, await car.read()) == (200, header if method == "GET" else b"")
        assert car.headers["Content-Type"].startswith(CAR)


async def test_a_range_of_a_block(store: LocalStore, http: aiohttp.ClientSession) -> None:
    cid = store.add_bytes(b"0123456789")
    path, etag = f"/ipfs/{cid}?format=raw", f'"{cid}.raw"'
    for asked, part, body in [
        ("bytes=2-4", "2-4", b"234"),
        ("bytes=7-", "7-9", b"789"),
        ("bytes=-3", "7-9", b"789"),
        ("bytes=0-99", "0-9", b"0123456789"),
    ]:
        got = await ask(http, path, headers={"Range": asked, "If-Range": etag})
        assert (got.status, await got.read()) == (206, body)
        assert got.headers["Content-Range"] == f"bytes {part}/10"
    for headers in (
        {"Range": "bytes=0-1,4-5"},
        {"Range": "lines=1-2"},
        {"Range": "bytes=2-4", "If-Range": '"other"'},
    ):
        whole = await ask(http, path, headers=headers)
        assert (whole.status, await whole.read()) == (200, b"0123456789")
    assert (await ask(http, path, headers={"Range": "bytes=10-"})).status == 416
    head = await ask(http, path, "HEAD", headers={"Range": "bytes=2-4"})
    assert (head.status, head.headers["Accept-Ranges"]) == (200, "bytes")


async def test_the_filename(store: LocalStore, http: aiohttp.ClientSession) -> None:
    cid = store.add_bytes(b"hello")
    for asked, header in {
        "model.bin": 'filename="model.bin"',
        'a"b\\\r\n': "filename=\"a_b___\"; filename*=UTF-8''a%22b%5C%0D%0A",
        "testтест.pdf": (
            "filename=\"test____.pdf\"; filename*=UTF-8''test%D1%82%D0%B5%D1%81%D1%82.pdf"
        ),
    }.items():
        got = await ask(http, f"/ipfs/{cid}", params={"format": "raw", "filename": asked})
        assert got.headers["Content-Disposition"] == f"attachment; {header}"


async def test_car_parameters(store: LocalStore, http: aiohttp.ClientSession) -> None:
    cid = store.add_bytes(b"hello")
    etags = set()
    for query, accept, dups in [
        ("format=car", CAR, "n"),
        ("format=car", f"{CAR};order=dfs;dups=y", "y"),
        ("format=car&car-dups=n", f"{CAR};dups=y", "n"),
        ("car-dups=y&car-order=unk", CAR, "y"),
        ("", f"{CAR};order=bfs, {CAR};dups=y;q=0.5", "y"),
        ("", f"{CAR};version=2, {CAR};q=0.5", "n"),
    ]:
        got = await ask(http, f"/ipfs/{cid}?{query}", headers={"Accept": accept})
        kind = f"{CAR}; version=1; order=dfs; dups={dups}"
        assert (query, accept, got.headers["Content-Type"]) == (query, accept, kind)
        etags.add((dups, got.headers["Etag"]))
        if (location := got.headers.get("Content-Location")) is not None:
            same = await ask(http, location)
            assert same.headers["Content-Type"] == kind
            assert "Content-Location" not in same.headers
    assert len(etags) == len({etag for _, etag in etags}) == 2
    for accept in (f"{CAR};order=bfs", f"{CAR};version=2;q=0.1"):
        assert (await ask(http, f"/ipfs/{cid}", headers={"Accept": accept})).status == 400


@pytest.mark.parametrize("scope", ["all", "entity"])
async def test_repeats_are_sent_where_asked_for(
    store: LocalStore, http: aiohttp.ClientSession, scope: str
) -> None:
    cid = store.add_bytes(bytes(3 * MIB))
    for dups, leaves in (("n", 1), ("y", 3)):
        query = {"format": "car", "dag-scope": scope, "car-dups": dups}
        got = await ask(http, f"/ipfs/{cid}", params=query)
        found = [block for block, _ in CarReader(1 << 30).feed(await got.read())]
        assert found == [cid] + [Cid.of(bytes(MIB))] * leaves


async def test_a_sharded_folder(store: LocalStore, http: aiohttp.ClientSession) -> None:
    files = {name: store.add_bytes(name.encode()) for name in ("a", "b", "c")}

    def shard(*links: tuple[bytes, Cid]) -> Cid:
        data = encode_field(1, UnixFsKind.HAMT.value) + encode_field(5, 0x22) + encode_field(6, 256)
        block = encode_node(Node([Link(cid, name, 1) for name, cid in links], data))
        cid = Cid.of(block, DAG_PB)
        store.put_block(cid, block)
        return cid

    first, last = shard((b"01a", files["a"])), shard((b"05b", files["b"]))
    root = shard((b"00", first), (b"10c", files["c"]), (b"20", last))
    assert list(await fetch_car(http, f"/ipfs/{root}", **{"dag-scope": "entity"})) == [
        root, first, last,
    ]  # fmt: skip
    for name, way in {"a": [root, first], "b": [root, last], "c": [root]}.items():
        assert list(await fetch_car(http, f"/ipfs/{root}/{name}")) == [*way, files[name]]
    assert (await ask(http, f"/ipfs/{root}/d?format=car")).status == 404
    twice = shard((b"00", first), (b"20", first))
    assert (await ask(http, f"/ipfs/{twice}/d?format=car")).status == 404


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


def test_a_node_of_many_sizes_is_opened_once() -> None:
    """Four small blocks whose links lie about sizes would hold a thread for minutes."""
    below, opened = Cid.of(b"x"), list[Cid]()
    blocks = {below: b"x"}
    for _ in range(3):
        sizes = range(1000, 1100)
        header = encode_file_header(b"", sum(sizes), sizes)
        block = encode_node(Node([Link(below, b"", size) for size in sizes], header))
        below = Cid.of(block, DAG_PB)
        blocks[below] = block

    def get(cid: Cid) -> bytes:
        opened.append(cid)
        return blocks[cid]

    with pytest.raises(MalformedDag, match="its parent says 1000"):
        list(blocks_in_scope(get, below, "entity", None))
    assert len(opened) == 4


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


async def test_too_many_requests_are_told_to_wait(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cid, goes_on, read = store.add_bytes(b"hello"), threading.Event(), store.get_block

    def waits(wanted: Cid) -> bytes:
        assert goes_on.wait(600.0)
        return read(wanted)

    monkeypatch.setattr(store, "get_block", waits)
    gateway = Gateway(store, config=GatewayConfig(max_requests=1))
    await gateway.start()
    async with aiohttp.ClientSession(gateway.url) as http:
        asked = [asyncio.create_task(ask(http, f"/ipfs/{cid}?format=raw")) for _ in range(4)]
        refused, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        while len(refused) < 3:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
        goes_on.set()
        answers = [task.result() for task in refused] + [await waiting.pop()]
    assert [answer.status for answer in answers] == [503, 503, 503, 200]
    assert answers[0].headers["Retry-After"] == "1"
    await gateway.stop()


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:1"), ("::", "http://[::1]:1"),
     ("2001:db8::1", "http://[2001:db8::1]:1"), ("192.0.2.1", "http://192.0.2.1:1")],
)  # fmt: skip
def test_where_one_that_listens_is_asked(host: str, url: str) -> None:
    assert url_of(host, 1) == url


async def test_a_port_in_use_says_what_to_do(store: LocalStore) -> None:
    gateway = Gateway(store)
    await gateway.start()
    with pytest.raises(ConfigError, match="in use") as caught:
        await Gateway(store, ListenAddress(port=int(gateway.url.rsplit(":", 1)[1]))).start()
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


async def test_notes_have_a_name_instead_of_a_hash(store: LocalStore) -> None:
    gateway = Gateway(store, notes={"7/held-out/1": b"said"}.get)
    await gateway.start()
    async with Fetcher(store, lambda: []) as fetcher:
        assert await fetcher.note(gateway.url, "7/held-out/1", 4) == b"said"
        assert await fetcher.note(gateway.url, "7/held-out/2", 4) is None
        with pytest.raises(NotFound, match="does not answer"):
            await fetcher.note(gateway.url, "7/held-out/1", 3)
        await gateway.stop()
        with pytest.raises(NotFound, match="does not answer"):
            await fetcher.note(gateway.url, "7/held-out/1", 4)
        with pytest.raises(NotFound, match="no gateway's address"):
            await fetcher.note("file:///etc", "7/held-out/1", 4)
