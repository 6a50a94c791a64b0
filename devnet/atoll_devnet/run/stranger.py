"""A hostile stranger beside a network: what anybody can do to it who has some gas and a line.

Logs that do not decode, gateways that are none or answer garbage, free jobs that name them, silent
and slow connections, a JSON-RPC endpoint in front of one member of which a tenth of the answers are
faults, and damaged files of another. Nobody honest may lose anything by it, and nothing may end:
the ledger and the members' processes tell. The development chain signs for it.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    closing,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import urlsplit

from eth_utils.address import to_checksum_address

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.chain.deployment import Deployment
from atoll.errors import ProtocolError
from atoll.protocol.types import Address, Digest, JobId, Terms
from atoll.protocol.views import JobView
from atoll.service.background_tasks import background_tasks
from atoll.service.session import SessionConfig, open_session
from atoll.storage.storage import StoreConfig
from atoll_devnet.cheats.catalogue import never_serves
from atoll_devnet.processes.chain import CONFIRMATIONS, Endpoint
from atoll_devnet.processes.cluster import Cluster, ClusterConfig
from atoll_devnet.processes.faulty_rpc import faulty_rpc
from atoll_devnet.processes.hostile import EMITTER, UNDECODABLE_URL, gateway_log
from atoll_devnet.run.skipping import is_free

ACCOUNTS: Final = tuple(
    Address(to_checksum_address(f"0x{number:040x}")) for number in range(0xBAD0, 0xBAD4)
)
COIN: Final = 10**18
GAS: Final = hex(1_000_000)
FAULT_RATE: Final = 0.1
SEED: Final = 12
SILENT: Final = 8
"""Connections to each gateway that never ask anything; one more asks and does not read."""
DAMAGED: Final = 6
"""Files of a member in which a bit is turned, once a round."""
LOOK_SECONDS: Final = 0.5
BACK_SECONDS: Final = 2.0
"""Until it comes again to who sent it away."""
RECEIVES: Final = 4096
Views = Callable[[], Mapping[JobId, JobView]]
Before = Callable[[Cluster], AbstractAsyncContextManager[object]]
"""What is entered once a network's chain runs and before any member does."""


class Deed(StrEnum):
    """What a stranger does, as it counts it."""

    LOG = "logs that do not decode"
    GATEWAY = "gateways that are none"
    JOB = "free jobs"
    SILENCE = "silent connections"
    UNREAD = "requests that it reads no answer to"
    FAULT = "faults of an endpoint"
    BIT = "bits turned"


@dataclass(frozen=True)
class Near:
    """What of a network a stranger comes near to.

    Attributes:
        folder: of its own.
        ports: of gateways that it knows beforehand; others it learns from the chain.
        behind: the folder of the member in front of which the faulty endpoint stands.
        honest: folders of providers, of whose files it damages some.
        copies: where no verifier gives anything out, the submitter's blocks: it damages no others,
            since what nobody else gives out nobody can heal. None where one does.
    """

    chain: Endpoint
    deployment: Deployment
    folder: Path
    ports: tuple[int, ...]
    behind: Path
    honest: tuple[Path, ...]
    copies: Path | None = None


def near(cluster: Cluster) -> Near:
    """All of a local network whose chain runs."""
    is_served = any(not never_serves(m.kind, m.cheat or "") for m in cluster.verifiers)
    return Near(
        chain=cluster.chain,
        deployment=cluster.deployment,
        folder=cluster.folder / "stranger",
        ports=tuple(member.port for member in cluster.members),
        behind=cluster.verifiers[-1].folder,
        honest=tuple(member.folder for member in cluster.providers if member.cheat is None),
        copies=None if is_served else cluster.submitter_folder / "store" / "blocks",
    )


class Account:
    """Sends what anybody can send; a development chain signs for whom it is told to."""

    def __init__(self, chain: Endpoint, address: Address) -> None:
        self.chain, self.address = chain, address

    async def send(self, to: str, data: bytes) -> None:
        """Returns once it is in a block. Raises ChainError where it had no effect."""
        await self.chain.sign_for(self.address, COIN)
        order = {"from": self.address, "to": to, "data": f"0x{data.hex()}", "gas": GAS}
        await self.chain.send(order)

    async def call(self, call: Call) -> None:
        """Sends a call of ours."""
        await self.send(call.to, call.data)

    async def shout(self, members: str) -> None:
        """What `announceGateway(b"http://x\\xff")` logs where the contract takes any bytes."""
        code = await self.chain.rpc("eth_getCode", members, "latest")
        await self.chain.set_code(members, EMITTER)
        await self.send(members, gateway_log(self.address, UNDECODABLE_URL))
        await self.chain.set_code(members, code)
        # The state of a block that was made meanwhile has no heads of logs, and stays as it was:
        # nobody who believes the block below the newest may meet it.
        for _ in range(CONFIRMATIONS):
            await self.chain.rpc("evm_mine")


def point_at(folder: Path, urls: Sequence[str]) -> None:
    """Writes other endpoints into a member's config, which begins with those that it has."""
    path = folder / "config.toml"
    lines = path.read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("rpc_urls = "))
    lines[at] = f"rpc_urls = {json.dumps(list(urls))}"
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


class Stranger:
    """Somebody who attacks a network.

    Attributes:
        deeds: how often it has done what.
    """

    def __init__(self, near: Near) -> None:
        self.near = near
        self.deeds = Counter[str]()

    @asynccontextmanager
    async def before_members(self) -> AsyncIterator[None]:
        """What it has done by the time that anybody starts; the faulty endpoint of one member."""
        near = self.near
        await Account(near.chain, ACCOUNTS[0]).shout(near.deployment.addresses["Members"])
        self.deeds[Deed.LOG] += 1
        # Ganache mines twice what it is shown twice at the wrong moment, as a member does whose
        # transaction was taken and whose answer is a fault: there such questions are lost as well.
        lost = ("eth_sendRawTransaction",) if near.chain.backend == "ganache" else ()
        async with faulty_rpc(near.chain.rpc_url, SEED, rate=FAULT_RATE, lost=lost) as proxy:
            proxy.on_fault = lambda: self.deeds.update([Deed.FAULT])
            point_at(near.behind, [proxy.url, near.chain.rpc_url])
            yield

    @asynccontextmanager
    async def beside_job(self, terms: Terms, cid: bytes, views: Views) -> AsyncIterator[None]:
        """What it does while a paid job of these terms runs, until the context ends.

        Args:
            views: the jobs, as they are told now.
        """
        async with garbage_gateway() as garbage, AsyncExitStack() as stack:
            urls = ["http://[::1]@", garbage, "http://127.0.0.1:9", "javascript:alert(1)"]
            await self._offer_free_jobs(terms, cid, urls)
            await stack.enter_async_context(
                background_tasks([self._besiege(views), self._damage(views)])
            )
            yield

    async def beside_first_job(self) -> None:
        """Follows the chain, and does its worst from the first job on that pays."""
        near = self.near
        urls, store = (near.chain.rpc_url,), StoreConfig(near.folder / "store")
        config = SessionConfig(urls, near.deployment, near.folder, store, confirmations=0)
        async with open_session(config) as session, AsyncExitStack() as stack:
            is_there = False
            while True:
                await session.follower.poll_patiently()
                views = session.follower.views
                paid = next((view for view in views.values() if not is_free(view)), None)
                if paid is not None and not is_there:
                    terms, cid = paid.require_terms(), paid.spec_cid
                    beside_it = self.beside_job(terms, cid, lambda: session.follower.views)
                    await stack.enter_async_context(beside_it)
                    is_there = True
                await asyncio.sleep(LOOK_SECONDS)

    async def _offer_free_jobs(self, terms: Terms, cid: bytes, urls: Sequence[str]) -> None:
        """One an account, whose manifest is nowhere but at a hostile gateway."""
        deployment = self.near.deployment
        calls, policy = Calls(deployment), deployment.addresses["EcdsaPolicy"]
        free = replace(terms, segment_pay=0, sign_fee=0, duty_fee=0)
        cids = [cid[:-1] + b"\x00", b"no CID", b"\xff" * 128, b""]

        async def offer(address: Address, url: str, wrong: bytes) -> None:
            account = Account(self.near.chain, address)
            await account.call(calls.announce_gateway(url))
            self.deeds[Deed.GATEWAY] += 1
            await account.call(calls.create(Digest(bytes(32)), wrong, free, policy, 0))
            self.deeds[Deed.JOB] += 1

        await asyncio.gather(*map(offer, ACCOUNTS, urls, cids))

    async def _besiege(self, views: Views) -> None:
        """Keeps connections to each gateway that say nothing, and one that reads nothing."""
        request = b"GET /ipfs/ HTTP/1.1\r\nHost: "
        besieged = set[int]()
        async with asyncio.TaskGroup() as group:
            while True:
                new = {*self.near.ports, *_announced(views())} - besieged
                for port in new:
                    for _ in range(SILENT):
                        group.create_task(self._linger(port, b"", Deed.SILENCE))
                    group.create_task(self._linger(port, request, Deed.UNREAD))
                besieged |= new
                await asyncio.sleep(LOOK_SECONDS)

    async def _linger(self, port: int, says: bytes, deed: Deed) -> None:
        """Comes again whenever it was sent away."""
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=RECEIVES)
                self.deeds[deed] += 1
                with closing(writer):
                    writer.write(says)
                    await reader.read(1)
            await asyncio.sleep(BACK_SECONDS)

    async def _damage(self, views: Views) -> None:
        """Turns bits in some files of an honest provider, another one each round."""
        random, honest = Random(SEED), self.near.honest  # noqa: S311 (repeatable)
        for round_ in count():
            while not _is_open(views(), round_):  # noqa: ASYNC110 (the chain is polled)
                await asyncio.sleep(LOOK_SECONDS)
            if honest:
                folder = honest[round_ % len(honest)] / "data" / "store" / "blocks"
                turning = asyncio.to_thread(_turn_bits, folder, random, self.near.copies)
                self.deeds[Deed.BIT] += await turning


@asynccontextmanager
async def hostile_network(
    config: ClusterConfig, before: Before = lambda _: nullcontext()
) -> AsyncIterator[Cluster]:
    """A network as `Cluster` starts it, and a stranger beside whatever jobs it is given.

    Args:
        before: what else is entered.

    Raises:
        ProtocolError: what it was to survive did not all happen.
    """
    cluster = Cluster(config)
    try:
        await cluster.start_chain()
        stranger = Stranger(near(cluster))
        async with stranger.before_members(), before(cluster):
            for member in cluster.members:
                member.process.start()
            async with background_tasks([stranger.beside_first_job()]):
                yield cluster
        check_deeds(stranger.deeds)
    finally:
        cluster.stop()


def check_deeds(deeds: Mapping[str, int]) -> None:
    """Raises ProtocolError where a stranger left one out: then nothing shows what it comes to."""
    missing = [deed.value for deed in Deed if not deeds.get(deed)]
    if missing:
        raise ProtocolError(f"the stranger did not get to: {', '.join(missing)}")


def _announced(views: Mapping[JobId, JobView]) -> set[int]:
    """Ports of this machine that others than the stranger have announced as gateways."""
    announced = (item for view in views.values() for item in view.gateways.items())
    ports = (_port_here(url) for account, url in announced if account not in ACCOUNTS)
    return {port for port in ports if port is not None}


def _port_here(url: str) -> int | None:
    """The port of a URL that leads to this machine; None of any other text."""
    try:
        parts = urlsplit(url)
        return parts.port if parts.hostname == "127.0.0.1" else None
    except ValueError:  # brackets, or a port that is none
        return None


def _is_open(views: Mapping[JobId, JobView], round_: int) -> bool:
    return any(view.open is not None and view.round >= round_ for view in views.values())


def _turn_bits(folder: Path, random: Random, copies: Path | None = None) -> int:
    """How many; one a file. Where there are `copies`, of files of which one is there."""
    turned, files = 0, sorted(_files_in(folder))
    if copies is not None:
        files = [file for file in files if (copies / file.relative_to(folder)).exists()]
    for path in random.sample(files, min(DAMAGED, len(files))):
        with suppress(OSError), path.open("r+b") as file:  # it may be gone
            size = file.seek(0, 2)
            at = random.randrange(max(1, size))
            file.seek(at)
            byte = file.read(1) or b"\x00"
            file.seek(at)
            file.write(bytes([byte[0] ^ 1 << random.randrange(8)]))
            turned += 1
    return turned


def _files_in(folder: Path) -> Iterator[Path]:
    yield from (path for path in folder.rglob("*") if path.is_file())
