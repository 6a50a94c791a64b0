"""A chain that draws by drand: what is awaited is posted, by whoever serves it, once."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from eth_account.signers.local import LocalAccount
from tests.integration.chain.local_anvil import Anvil, until
from tests.integration.chain.queues import EAGER, running
from tests.support.drand_server import HASH, Drand

from atoll.chain import contract_views as views
from atoll.chain.contracts import AtollChain
from atoll.chain.deploy import DeployConfig, deploy
from atoll.chain.deployment import Deployment
from atoll.chain.inspection import verify_contracts
from atoll.chain.txqueue import TxQueue
from atoll.errors import ConfigError
from atoll.protocol.types import Address
from atoll.service import drand_posts
from atoll.service.drand_posts import DrandPosts, fetch_signature
from atoll.service.drand_section import DrandSection

BROKEN = (b"{}", b"[]", b"\xff", b"[" * 5000, b'{"signature": 5}', b'{"signature": "00"}')


@pytest.fixture
def drand() -> Drand:
    return Drand()


@pytest.fixture
async def drawn(anvil: Anvil, accounts: list[LocalAccount], drand: Drand) -> Deployment:
    """Of a network that draws by our drand, which has been signing for a while."""
    its = drand.chain(int(time.time()) - 100)
    return await deploy(anvil.url, accounts[0], DeployConfig(beacon="DrandBeacon", drand=its))


@asynccontextmanager
async def posting(
    deployment: Deployment,
    anvil: Anvil,
    key: LocalAccount,
    folder: Path,
    *urls: str,
    blocks: Collection[int] = (),
) -> AsyncIterator[DrandPosts]:
    """A service's, whose jobs wait for the seeds of these blocks."""

    async def awaited(now: float) -> Collection[int]:
        return blocks

    chain = await AtollChain.connect(anvil.url, deployment)
    is_alone = asyncio.Event()
    is_alone.set()
    try:
        async with running(TxQueue(chain, key, folder / key.address, EAGER)) as queue:
            yield DrandPosts(
                chain=chain,
                queue=queue,
                me=Address(key.address),
                blocks=awaited,
                section=DrandSection(urls=urls, chain_hash=HASH),
                is_alone=is_alone,
                stagger_s=0,
                poll_s=0.05,
            )
    finally:
        await chain.close()


def note(anvil: Anvil, deployment: Deployment, who: str) -> int:
    """What is fixed in this block will be drawn; its number."""
    # What the last block noted costs less to note again, and an estimate is made as if in that one.
    order = {
        "from": who, "to": deployment.addresses["DrandBeacon"], "data": "0x26d111f5",
        "gas": hex(100_000),
    }  # fmt: skip
    sent = anvil.ask("eth_sendTransaction", order)
    while (mined := anvil.ask("eth_getTransactionReceipt", sent)) is None:
        continue
    return int(mined["blockNumber"], 16)


async def test_what_is_awaited_is_posted_once_it_is_signed(
    anvil: Anvil,
    accounts: list[LocalAccount],
    drand: Drand,
    drawn: Deployment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks: list[int] = []
    async with TestServer(drand.app()) as server:
        urls = ("http://127.0.0.1:9", str(server.make_url("")))
        async with posting(drawn, anvil, accounts[1], tmp_path, *urls, blocks=blocks) as posts:
            another = note(anvil, drawn, accounts[0].address)
            await posts.look(time.time() + 10_000)
            assert await posts.chain.ask(views.awaited(another)), "but by no job of ours"
            assert drand.asked == []
            number = note(anvil, drawn, accounts[0].address)
            blocks.append(number)
            round = await posts.chain.ask(views.awaited(number))
            assert posts._clock is not None
            await posts.look(posts._clock.time_of(round) - 1)
            assert drand.asked == [], "not signed yet"
            signed_at = float(posts._clock.time_of(round))
            monkeypatch.setattr(drand_posts, "time", SimpleNamespace(time=lambda: signed_at))
            working = asyncio.create_task(posts.run())
            await until(lambda: posts.queue.status(f"drand:{round}") is not None)
            await posts.queue.wait(f"drand:{round}")
            working.cancel()
            signed = hashlib.sha256(drand.sign(round)).digest()
            assert await posts.chain.ask(views.randomness(round)) == signed
            assert await posts.chain.ask(views.awaited(number)) == 0
            assert set(drand.asked) == {round}


async def test_a_server_that_lies_costs_nothing_and_another_one_is_asked(
    anvil: Anvil, accounts: list[LocalAccount], drand: Drand, drawn: Deployment, tmp_path: Path
) -> None:
    liar = Drand(lies=True)
    number = note(anvil, drawn, accounts[0].address)
    async with (
        TestServer(liar.app()) as first,
        TestServer(drand.app()) as second,
        posting(
            drawn,
            anvil,
            accounts[1],
            tmp_path,
            str(first.make_url("")),
            str(second.make_url("")),
            blocks=[number],
        ) as posts,
    ):
        round = await posts.chain.ask(views.awaited(number))
        await posts.look(time.time() + 10_000)
        await posts.queue.wait(f"drand:{round}")
        assert (liar.asked, drand.asked) == ([round], [round])
        assert len(posts.queue.transactions()) == 1
        assert any(await posts.chain.ask(views.randomness(round)))


async def test_two_services_post_a_round_once(
    anvil: Anvil, accounts: list[LocalAccount], drand: Drand, drawn: Deployment, tmp_path: Path
) -> None:
    number = note(anvil, drawn, accounts[0].address)
    async with TestServer(drand.app()) as server:
        url = str(server.make_url(""))
        async with (
            posting(drawn, anvil, accounts[1], tmp_path, url, blocks=[number]) as one,
            posting(drawn, anvil, accounts[2], tmp_path, url, blocks=[number]) as other,
        ):
            round = await one.chain.ask(views.awaited(number))
            await one.look(time.time() + 10_000)
            await one.queue.wait(f"drand:{round}")
            await other.look(time.time() + 10_000)
            assert drand.asked == [round]
            assert other.queue.transactions() == []
            (use,) = one.queue.gas_by_label().values()
            assert use.highest < 200_000


async def test_a_chain_that_draws_by_hashes_posts_nothing(
    anvil: Anvil, accounts: list[LocalAccount], deployment: Deployment, tmp_path: Path
) -> None:
    assert "DrandBeacon" not in deployment.addresses
    async with posting(deployment, anvil, accounts[1], tmp_path) as posts:
        await asyncio.wait_for(posts.run(), 1)


async def test_another_drand_than_quicknet_is_said(anvil: Anvil, drawn: Deployment) -> None:
    chain = await AtollChain.connect(anvil.url, drawn)
    try:
        assert not any(check.problems for check in await verify_contracts(chain))
        chain.deployment = replace(drawn, chain_id=8453)
        problems = {c.name: c.problems for c in await verify_contracts(chain) if c.problems}
        assert set(problems) == {"DrandBeacon"}
        assert "its key is not quicknet's" in problems["DrandBeacon"]
    finally:
        await chain.close()


async def test_without_the_precompiles_no_drand_draws(
    spawn: Callable[..., Anvil], accounts: list[LocalAccount]
) -> None:
    node = spawn("--hardfork", "shanghai")
    with pytest.raises(ConfigError, match="no precompiles"):
        await deploy(node.url, accounts[0], DeployConfig(beacon="DrandBeacon"))


async def test_what_is_no_signature_is_none() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=bytes.fromhex(request.match_info["body"]))

    app = web.Application()
    app.router.add_get("/{body}/" + HASH + "/public/7", answer)
    async with TestServer(app) as server:
        for body in BROKEN:
            url = str(server.make_url(f"/{body.hex()}"))
            assert await fetch_signature(url, HASH, 7) is None
