"""A hostile stranger beside a network: what anybody can do to it who has some gas and a line.

Logs that do not decode, gateways that are none or answer garbage, free jobs that name them, silent
and slow connections, a JSON-RPC endpoint in front of one member of which a tenth of the answers are
faults, and damaged files of another. Nobody honest may lose anything by it, and nothing may end:
`check_books` and the members' processes tell. It takes Anvil, which signs for any account.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

from atoll.chain.calls import Call, Calls
from atoll.content.storage import StoreConfig
from atoll.errors import ChainError
from atoll.law.views import JobView
from atoll.law.words import Address, Digest, JobId, Terms
from atoll.service.beside import beside
from atoll.service.session import SessionConfig, open_session
from atoll_devnet.processes.chain import LocalChain
from atoll_devnet.processes.cluster import Cluster, ClusterConfig, Member
from atoll_devnet.processes.faulty_rpc import FaultyRpc, faulty_rpc
from atoll_devnet.processes.hostile import EMITTER, UNDECODABLE_URL, gateway_log
from atoll_devnet.run.skipping import is_free

ACCOUNTS: Final = tuple(Address(f"0x{number:040x}") for number in range(0xBAD0, 0xBAD4))
FAULT_RATE: Final = 0.1
SEED: Final = 12
SILENT: Final = 8
"""Connections to each gateway that never ask anything; one more asks and does not read."""
DAMAGED: Final = 6
"""Files of a member in which a bit is turned, once a round."""
LOOK_SECONDS: Final = 0.5
RECEIVES: Final = 4096
Views = Callable[[], Mapping[JobId, JobView]]


class Account:
    """Sends what anybody can send; Anvil signs for accounts that it was told to impersonate."""

    def __init__(self, chain: LocalChain, address: Address) -> None:
        self.chain, self.address = chain, address

    async def send(self, to: str, data: bytes) -> None:
        """Returns once it is in a block. Raises ChainError where it had no effect."""
        await self.chain.rpc("anvil_impersonateAccount", self.address)
        await self.chain.rpc("anvil_setBalance", self.address, hex(10**18))
        order = {"from": self.address, "to": to, "data": f"0x{data.hex()}", "gas": hex(1_000_000)}
        sent = await self.chain.rpc("eth_sendTransaction", order)
        receipt = None
        while receipt is None:  # blocks come on the chain's own interval
            receipt = await self.chain.rpc("eth_getTransactionReceipt", sent)
        if receipt["status"] != "0x1":
            raise ChainError(f"a stranger's transaction had no effect ({sent})")

    async def call(self, call: Call) -> None:
        """Sends a call of ours."""
        await self.send(call.to, call.data)

    async def shout(self, members: str) -> None:
        """What `announceGateway(b"http://x\\xff")` logs where the contract takes any bytes."""
        code = await self.chain.rpc("eth_getCode", members, "latest")
        await self.chain.rpc("anvil_setCode", members, EMITTER)
        await self.send(members, gateway_log(self.address, UNDECODABLE_URL))
        await self.chain.rpc("anvil_setCode", members, code)


def point_at(member: Member, urls: Sequence[str]) -> None:
    """Writes other endpoints into a member's config."""
    path = member.folder / "config.toml"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[0] = f"rpc_urls = {json.dumps(list(urls))}"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@asynccontextmanager
async def garbage_gateway() -> AsyncIterator[str]:
    """A gateway that answers every request with bytes that are no HTTP."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\xff\x00")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def offer_free_jobs(cluster: Cluster, terms: Terms, cid: bytes, urls: Sequence[str]) -> None:
    """One free job a stranger, whose manifest is nowhere but at a hostile gateway.

    Args:
        terms, cid: of a paid job, which they are like.
    """
    calls, policy = Calls(cluster.deployment), cluster.deployment.addresses["EcdsaPolicy"]
    free = replace(terms, price_per_token=0, sign_fee=0, duty_fee=0)
    cids = [cid[:-1] + b"\x00", b"no CID", b"\xff" * 128, b""]

    async def offer(address: Address, url: str, wrong: bytes) -> None:
        stranger = Account(cluster.chain, address)
        await stranger.call(calls.announce_gateway(url))
        await stranger.call(calls.create(Digest(bytes(32)), wrong, free, policy, 0))

    await asyncio.gather(*map(offer, ACCOUNTS, urls, cids))


@asynccontextmanager
async def hostile_network(config: ClusterConfig) -> AsyncIterator[Cluster]:
    """A network as `Cluster` starts it, and a stranger beside whatever jobs it is given."""
    cluster = Cluster(config)
    try:
        await cluster.start_chain()
        async with before_members(cluster):
            for member in cluster.members:
                member.process.start()
            async with beside([_beside_first_job(cluster)]):
                yield cluster
    finally:
        cluster.stop()


async def _beside_first_job(cluster: Cluster) -> None:
    """Follows the chain, and does its worst from the first job on that pays."""
    folder = cluster.folder / "stranger"
    urls, store = (cluster.chain.rpc_url,), StoreConfig(folder / "store")
    config = SessionConfig(urls, cluster.deployment, folder, store, confirmations=0)
    async with open_session(config) as session, AsyncExitStack() as stack:
        is_there = False
        while True:
            await session.follower.poll_patiently()
            views = session.follower.views
            paid = next((view for view in views.values() if not is_free(view)), None)
            if paid is not None and not is_there:
                terms, cid = paid.require_terms(), paid.spec_cid
                await stack.enter_async_context(
                    beside_job(cluster, terms, cid, lambda: session.follower.views)
                )
                is_there = True
            await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def before_members(cluster: Cluster) -> AsyncIterator[FaultyRpc]:
    """What a stranger has done by the time that anybody starts; the faulty endpoint of one member.

    Args:
        cluster: its chain runs, and no member does.
    """
    await Account(cluster.chain, ACCOUNTS[0]).shout(cluster.deployment.addresses["Members"])
    async with faulty_rpc(cluster.chain.rpc_url, SEED, rate=FAULT_RATE) as proxy:
        last = cluster.verifiers[-1]
        point_at(last, [proxy.url, cluster.chain.rpc_url])
        yield proxy


@asynccontextmanager
async def beside_job(
    cluster: Cluster, terms: Terms, cid: bytes, views: Views
) -> AsyncIterator[None]:
    """What a stranger does while a job runs, until the context ends.

    Args:
        views: the jobs, as they are told now.
    """
    async with AsyncExitStack() as stack:
        garbage = await stack.enter_async_context(garbage_gateway())
        urls = ["http://[::1]@", garbage, "http://127.0.0.1:9", "javascript:alert(1)"]
        await offer_free_jobs(cluster, terms, cid, urls)
        work = [_besiege(member.port) for member in cluster.members]
        await stack.enter_async_context(beside([*work, _damage(cluster, views)]))
        yield


async def _besiege(port: int) -> None:
    """Keeps connections to a gateway that say nothing, and one that asks and reads nothing."""
    async with asyncio.TaskGroup() as group:
        for number in range(SILENT + 1):
            group.create_task(_linger(port, b"" if number else b"GET /ipfs/ HTTP/1.1\r\nHost: "))


async def _linger(port: int, says: bytes) -> None:
    """Comes again whenever it was sent away."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=RECEIVES)
            with closing(writer):
                writer.write(says)
                await reader.read(1)
        await asyncio.sleep(LOOK_SECONDS)


async def _damage(cluster: Cluster, views: Views) -> None:
    """Turns bits in some files of an honest provider, another one each round."""
    random = Random(SEED)  # noqa: S311 (repeatable)
    honest = [member for member in cluster.providers if member.cheat is None]
    for round_ in count():
        while not _is_open(views(), round_):  # noqa: ASYNC110 (the chain is polled)
            await asyncio.sleep(LOOK_SECONDS)
        if honest:
            folder = honest[round_ % len(honest)].folder / "data" / "store" / "blocks"
            await asyncio.to_thread(_turn_bits, folder, random)


def _is_open(views: Mapping[JobId, JobView], round_: int) -> bool:
    return any(view.open is not None and view.round >= round_ for view in views.values())


def _turn_bits(folder: Path, random: Random) -> None:
    files = sorted(_files_in(folder))
    for path in random.sample(files, min(DAMAGED, len(files))):
        with suppress(OSError), path.open("r+b") as file:  # it may be gone
            size = file.seek(0, 2)
            at = random.randrange(max(1, size))
            file.seek(at)
            byte = file.read(1) or b"\x00"
            file.seek(at)
            file.write(bytes([byte[0] ^ 1 << random.randrange(8)]))


def _files_in(folder: Path) -> Iterator[Path]:
    yield from (path for path in folder.rglob("*") if path.is_file())
