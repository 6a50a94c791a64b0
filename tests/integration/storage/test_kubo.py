"""The Kubo backend, through ipfshttpclient, against a server that answers as Kubo's RPC does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from atoll.errors import ConfigError, CorruptBlock, NotFound, StorageError
from atoll.service.duties.unpin import DoUnpin
from atoll.service.effects import Effects
from atoll.storage import Cid, Gateway, LocalStore, Storage, StoreConfig, open_storage
from atoll.storage.cid import CODEC_NAMES
from atoll.storage.kubo import KuboRemote

MIB = 1 << 20
CODECS = {name: codec for codec, name in CODEC_NAMES.items()}


@dataclass
class FakeKubo:
    """https://docs.ipfs.tech/reference/kubo/rpc/: the commands that the backend uses."""

    version: str = "0.39.0"
    lies: bool = False
    broken: bool = False
    hangs: bool = False
    never_lets_go_of: str = ""
    asked: int = 0
    has_hung: asyncio.Event = field(default_factory=asyncio.Event)
    blocks: dict[bytes, bytes] = field(default_factory=dict)
    pins: set[str] = field(default_factory=set)

    async def answer(self, request: web.Request) -> web.Response:
        command, query = request.match_info["command"], request.query
        self.asked += 1
        if self.hangs:
            self.has_hung.set()
            await asyncio.Event().wait()
        if self.broken:
            return self.refuse("the repository is locked")
        if command == "version":
            return web.json_response({"Version": self.version})
        if command == "block/put":
            part = await (await request.multipart()).next()
            block = bytes(await part.read())  # type: ignore[union-attr]
            assert len(block) <= MIB or query["allow-big-block"] == "true"
            cid = Cid.of(block, CODECS[query["cid-codec"]])
            self.blocks[cid.digest] = block
            return web.json_response({"Key": str(cid), "Size": len(block)})
        cid = Cid.parse(query["arg"])
        if command == "block/get":
            if cid.digest not in self.blocks:
                return self.refuse(f"block was not found locally (offline): ipld: not found {cid}")
            return web.Response(body=b"lie" if self.lies else self.blocks[cid.digest])
        if command == "pin/add":
            self.pins.add(str(cid))
            return web.json_response({"Pins": [str(cid)]})
        if str(cid) == self.never_lets_go_of:
            return self.refuse("the pin is damaged")
        if str(cid) not in self.pins:
            return self.refuse("not pinned or pinned indirectly")
        self.pins.remove(str(cid))
        return web.json_response({"Pins": [str(cid)]})

    @staticmethod
    def refuse(message: str) -> web.Response:
        return web.json_response({"Message": message, "Code": 0, "Type": "error"}, status=500)


@pytest.fixture
async def daemon() -> AsyncIterator[tuple[FakeKubo, str]]:
    fake = FakeKubo()
    app = web.Application(client_max_size=4 * MIB)
    app.router.add_post("/api/v0/{command:.*}", fake.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield fake, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def copied(storage: Storage) -> None:
    """Until nothing is left to be mirrored."""
    if storage._copying is not None:
        await asyncio.wait([storage._copying])


def of_service(storage: Storage) -> tuple[Effects, Any]:
    """What carries a verifier's commands out with that storage, and a job's view."""
    context = SimpleNamespace(
        chain=SimpleNamespace(calls=None),
        config=SimpleNamespace(store_dir=storage.local.root, role="verifier"),
        storage=storage,
        store=storage.local,
    )
    return Effects(cast(Any, context)), SimpleNamespace(job_id=7)


async def opened(folder: Path, url: str) -> Storage:
    return await open_storage(StoreConfig(folder, f"kubo:{url}", sync=False))


async def test_what_is_added_is_mirrored_under_the_same_cid(
    daemon: tuple[FakeKubo, str], tmp_path: Path
) -> None:
    fake, url = daemon
    data = os.urandom(3 * MIB + 1)
    async with await opened(tmp_path / "a", url) as one, await opened(tmp_path / "b", url) as two:
        cid = await one.add_bytes(data)
        assert cid == LocalStore(tmp_path / "c").add_bytes(data)
        assert len(fake.blocks) == 5
        assert await two.get(cid, len(data)) == data


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_proxy_is_not_asked_for_the_daemon(
    daemon: tuple[FakeKubo, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    host: str,
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    async with await opened(tmp_path, daemon[1].replace("127.0.0.1", host)) as storage:
        await storage.add_bytes(b"mirrored")
    assert len(daemon[0].blocks) == 1


async def test_pins_are_mirrored_until_the_last_reason_ends(
    daemon: tuple[FakeKubo, str], tmp_path: Path
) -> None:
    fake, url = daemon
    async with await opened(tmp_path, url) as storage:
        cid = await storage.add_bytes(b"owed")
        await storage.pin(cid, "round/1")
        await storage.pin(cid, "dispute/1")
        assert fake.pins == {str(cid)}
        await storage.unpin("round/1")
        assert fake.pins == {str(cid)}
        await storage.unpin("dispute/1")
        assert fake.pins == set()


async def test_what_is_owed_is_mirrored_with_everything_below_it(
    daemon: tuple[FakeKubo, str], tmp_path: Path
) -> None:
    fake, url = daemon
    async with await opened(tmp_path, url) as storage:
        cid = storage.local.add_bytes(os.urandom(2 * MIB))  # as a worker process does
        await storage.mirror([cid, Cid.of(b"not here")])
        assert (len(fake.blocks), fake.pins) == (3, {str(cid)})
        storage.local.pin(cid, "job:7")  # as a submitter does, before
        await storage.mirror([cid])
        await storage.unpin("job:7")
        assert fake.pins == set()


async def test_a_failing_daemon_costs_a_service_its_copy_only(
    daemon: tuple[FakeKubo, str], tmp_path: Path
) -> None:
    fake, url = daemon
    async with await opened(tmp_path, url) as storage:
        effects, view = of_service(storage)
        kept, lost = (storage.local.add_bytes(data) for data in (b"kept", b"lost"))
        await effects.keep(view, 1, kept.to_bytes())
        await copied(storage)
        fake.broken = True
        await effects.keep(view, 1, lost.to_bytes())
        await copied(storage)
        assert {pin.cid for pin in storage.local.pins()} == {kept, lost}
        assert fake.pins == {str(kept)}
        fake.broken = False
        await DoUnpin(1, 2).perform(effects, view)
        await copied(storage)
        assert (storage.local.pins(), fake.pins) == ([], set())


async def test_nothing_waits_for_a_daemon_that_hangs(
    daemon: tuple[FakeKubo, str], tmp_path: Path
) -> None:
    fake, url = daemon
    async with await opened(tmp_path, url) as storage:
        effects, view = of_service(storage)
        cid = storage.local.add_bytes(b"owed")
        fake.hangs = True
        async with asyncio.timeout(15):  # a request of it is given up after 30 s
            await effects.keep(view, 1, cid.to_bytes())
            assert [pin.cid for pin in storage.local.pins()] == [cid]
            await fake.has_hung.wait()
            await DoUnpin(1, 2).perform(effects, view)
        assert storage.local.pins() == []


async def test_what_is_pinned_anew_before_its_turn_stays_pinned(
    daemon: tuple[FakeKubo, str], tmp_path: Path
) -> None:
    """By another process, such as `atoll store pin`, while the service's copies are behind."""
    fake, url = daemon
    async with await opened(tmp_path, url) as storage, await opened(tmp_path, url) as other:
        kept, gone = [await storage.add_bytes(data) for data in (b"kept", b"gone")]
        for cid in (kept, gone):
            await storage.pin(cid, "job/7/round/1")
        await storage.release("job/7/round/1")
        other.local.pin(kept, "mine")
        await copied(storage)
        assert fake.pins == {str(kept)}
        await other.unpin("mine")
        assert fake.pins == set()


async def test_what_a_daemon_did_not_let_go_of_goes_with_what_ends_next(
    daemon: tuple[FakeKubo, str], tmp_path: Path
) -> None:
    """It was away, the process ended first, or the store dropped a pin to have room."""
    fake, url = daemon
    async with await opened(tmp_path, url) as storage:
        for reason in ("away", "killed", "dropped", "kept"):
            await storage.pin(await storage.add_bytes(reason.encode()), reason)
        storage.local.unpin("dropped")
        fake.broken = True
        with pytest.raises(StorageError):
            await storage.unpin("away")
        fake.broken = False
        await storage.release("killed")  # and ends before its turn comes
    assert len(fake.pins) == 4
    async with await opened(tmp_path, url) as storage:
        await storage.release("job/7")
        await copied(storage)
        assert fake.pins == {str(Cid.of(b"kept"))}
        await storage.unpin("kept")
        assert fake.pins == set()


async def test_one_that_a_daemon_never_lets_go_of_holds_up_no_other(
    daemon: tuple[FakeKubo, str], tmp_path: Path
) -> None:
    fake, url = daemon
    async with await opened(tmp_path, url) as storage:
        cids = [await storage.add_bytes(bytes([i])) for i in range(3)]
        for i, cid in enumerate(cids):
            await storage.pin(cid, f"round/{i}")
        fake.never_lets_go_of = str(cids[0])
        for i in range(3):
            with pytest.raises(StorageError, match="damaged"):
                await storage.unpin(f"round/{i}")
        assert fake.pins == {str(cids[0])}
        fake.never_lets_go_of = ""
        await storage.unpin("round/3")
        assert fake.pins == set()


async def test_another_daemon_is_not_told_of_ones_copies(
    daemon: tuple[FakeKubo, str], tmp_path: Path
) -> None:
    fake, url = daemon
    async with await opened(tmp_path, url) as storage:
        await storage.pin(await storage.add_bytes(b"owed"), "round/1")
    elsewhere = url.replace("127.0.0.1", "localhost")
    async with await opened(tmp_path, elsewhere) as storage:
        await storage.unpin("round/1")
    assert len(fake.pins) == 1
    async with await opened(tmp_path, url) as storage:
        await storage.unpin("round/1")
    assert fake.pins == set()


async def test_what_a_service_fetches_is_copied_once_it_is_whole(
    daemon: tuple[FakeKubo, str], tmp_path: Path
) -> None:
    """Its root comes first: a copy of what is on its way would fail, and not be made again."""
    fake, url = daemon
    author = LocalStore(tmp_path / "author", sync=False)
    cid = author.add_bytes(os.urandom(2 * MIB))
    async with await opened(tmp_path / "ours", url) as storage:

        async def fetch(*_: object) -> None:
            root, *leaves = [cid, *(leaf.cid for leaf in author.leaves(cid, 2 * MIB))]
            storage.local.put_block(root, author.get_block(root))
            await copied(storage)
            for leaf in leaves:
                storage.local.put_block(leaf, author.get_block(leaf))

        effects, view = of_service(storage)
        fetcher = SimpleNamespace(fetch=fetch, fetch_spread=fetch)
        cast(Any, effects.context).fetcher_of = lambda _: fetcher
        await effects.fetch(view, 1, cid, 2 * MIB)
        await copied(storage)
        assert (len(fake.blocks), fake.pins) == (3, {str(cid)})


async def test_what_came_after_its_round_was_over_is_not_pinned_there_for_ever(
    daemon: tuple[FakeKubo, str], tmp_path: Path
) -> None:
    fake, url = daemon
    async with await opened(tmp_path, url) as storage:
        effects, view = of_service(storage)

        async def fetch(*_: object) -> None:
            await DoUnpin(1, 2).perform(effects, view)
            storage.local.add_bytes(b"late")

        cast(Any, effects.context).fetcher_of = lambda _: SimpleNamespace(fetch=fetch)
        await effects.fetch(view, 1, Cid.of(b"late"), MIB)
        await copied(storage)
        assert (storage.local.pins(), fake.pins) == ([], set())


async def test_a_daemon_that_hung_rests(daemon: tuple[FakeKubo, str], tmp_path: Path) -> None:
    """Its first request alone was waited for; what it would have to look for is no sign of that."""
    fake, url = daemon
    now = [0.0]
    remote = KuboRemote(url, timeout_s=2.0, clock=lambda: now[0])
    cid = Cid.of(b"block")
    fake.hangs = True
    with pytest.raises(NotFound):
        await remote.get_block(cid)
    for _ in range(3):
        with pytest.raises(StorageError, match=r"does not answer|rests"):
            await remote.put_block(cid, b"block")
        with pytest.raises(StorageError, match="rests"):
            await remote.unpin(cid)
        with pytest.raises(NotFound):
            await remote.get_block(cid)
    assert fake.asked == 2
    fake.hangs, now[0] = False, 61.0
    await remote.put_block(cid, b"block")
    assert fake.blocks == {cid.digest: b"block"}
    await remote.close()


async def test_gateways_are_asked_before_the_daemon(
    daemon: tuple[FakeKubo, str], tmp_path: Path
) -> None:
    theirs = LocalStore(tmp_path / "theirs", sync=False)
    cid = theirs.add_bytes(b"on a gateway")
    gateway = Gateway(theirs)
    await gateway.start()
    async with await opened(tmp_path / "ours", daemon[1]) as storage:
        assert await storage.get(cid, 100, prefer=[gateway.url]) == b"on a gateway"
    await gateway.stop()


async def test_a_lying_or_empty_daemon_is_caught(
    daemon: tuple[FakeKubo, str], tmp_path: Path
) -> None:
    fake, url = daemon
    async with await opened(tmp_path, url) as storage:
        with pytest.raises(NotFound):
            await storage.get(Cid.of(b"absent"), 100)
        fake.blocks[Cid.of(b"truth").digest] = b"truth"
        fake.lies = True
        with pytest.raises(CorruptBlock):
            await storage.get(Cid.of(b"truth"), 100)
        assert not storage.local.has(Cid.of(b"truth"))


async def test_an_old_daemon_is_refused(daemon: tuple[FakeKubo, str], tmp_path: Path) -> None:
    daemon[0].version = "0.8.0"
    with pytest.raises(ConfigError, match=r"version 0\.8\.0") as caught:
        await opened(tmp_path, daemon[1])
    assert caught.value.next_step is not None


async def test_no_daemon_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be used") as caught:
        await opened(tmp_path, "http://127.0.0.1:1")
    assert caught.value.next_step is not None


@pytest.mark.parametrize("api", ["", "127.0.0.1:5001", "unix:/run/kubo", "http://"])
def test_unusable_addresses_are_refused(api: str) -> None:
    with pytest.raises(ConfigError):
        KuboRemote(api)
