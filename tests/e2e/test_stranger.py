"""A stranger with gas, and endpoints that fail: nobody's process ends, and the books balance.

The network is honest. Around it: logs that do not decode, gateways that are no address or answer
garbage, free jobs that name them, JSON-RPC endpoints of which a tenth of all answers are faults, a
metrics file that cannot be written, and a second start of a member that runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.chain.faulty_rpc import FaultyRpc, faulty_rpc
from tests.integration.chain.hostile import EMITTER, UNDECODABLE_URL, gateway_log

from atoll.chain.calls import Call, Calls
from atoll.law.manifest import Manifest
from atoll.law.words import Address, Digest, Phase
from atoll.service.lock import holder_of
from atoll.service.metrics import read_metrics
from atoll_devnet.processes.chain import LocalChain
from atoll_devnet.processes.cluster import Cluster, Member
from atoll_devnet.report.live import Display
from atoll_devnet.report.observer import Observer
from atoll_devnet.run.options import RunOptions
from atoll_devnet.run.runner import Running, finish, is_over, start

from .conftest import check_books

Options = Callable[..., RunOptions]
STRANGERS = [Address(f"0x{number:040x}") for number in range(0xBAD0, 0xBAD4)]
FAULT_RATE = 0.1
SEED = 12


class Stranger:
    """Sends what anybody can send; Anvil signs for accounts that it was told to impersonate."""

    def __init__(self, chain: LocalChain, account: Address) -> None:
        self.chain, self.account = chain, account

    async def send(self, to: str, data: bytes) -> None:
        """Returns once it is in a block, and took place."""
        await self.chain.rpc("anvil_impersonateAccount", self.account)
        await self.chain.rpc("anvil_setBalance", self.account, hex(10**18))
        order = {"from": self.account, "to": to, "data": f"0x{data.hex()}", "gas": hex(1_000_000)}
        sent = await self.chain.rpc("eth_sendTransaction", order)
        receipt = None
        while receipt is None:  # blocks come on the chain's own interval
            receipt = await self.chain.rpc("eth_getTransactionReceipt", sent)
        assert receipt["status"] == "0x1"

    async def call(self, call: Call) -> None:
        await self.send(call.to, call.data)

    async def shout(self, members: str) -> None:
        """What `announceGateway(b"http://x\\xff")` logs where the contract takes any bytes."""
        code = await self.chain.rpc("eth_getCode", members, "latest")
        await self.chain.rpc("anvil_setCode", members, EMITTER)
        await self.send(members, gateway_log(self.account, UNDECODABLE_URL))
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


async def offer_free_jobs(running: Running, gateways: Sequence[str]) -> None:
    """One free job a stranger, whose manifest is nowhere but at a hostile gateway."""
    cluster = running.cluster
    calls, policy = Calls(cluster.deployment), cluster.deployment.addresses["EcdsaPolicy"]
    paid = Manifest.from_bytes(running.observer.watched.manifest)
    free = replace(paid.terms, price_per_token=0, sign_fee=0, duty_fee=0)
    cids = [paid.cid()[:-1] + b"\x00", b"no CID", b"\xff" * 128, b""]
    for account, url, cid in zip(STRANGERS, gateways, cids, strict=True):
        stranger = Stranger(cluster.chain, account)
        await stranger.call(calls.announce_gateway(url))
        await stranger.call(calls.create(Digest(bytes(32)), cid, free, policy, 0))


async def start_again(member: Member) -> tuple[int | None, str]:
    """A second process of a member that runs: its exit code, and what it says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "atoll_devnet.processes.member", member.kind,
        "--config", str(member.folder / "config.toml"),
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, env=dict(os.environ),
    )  # fmt: skip
    _, complaint = await process.communicate()
    return process.returncode, complaint.decode()


def trains(observer: Observer) -> bool:
    return observer.view is not None and observer.view.phase >= Phase.TRAIN


@pytest.fixture
async def proxies(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[FaultyRpc]]:
    """Stand in front of three members, two of which have no other endpoint.

    Before anybody starts, a stranger's log does not decode, and one member's metrics file is a
    folder.
    """
    real = Cluster.start_chain
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(faulty_rpc("", SEED + i)) for i in range(3)]

        async def start_chain(cluster: Cluster) -> None:
            await real(cluster)
            behind = (cluster.providers[0], cluster.verifiers[0], cluster.providers[1])
            for proxy, member in zip(proxies, behind, strict=True):
                proxy.target, proxy.rate = cluster.chain.rpc_url, FAULT_RATE
                point_at(member, [proxy.url])
            point_at(behind[2], [proxies[2].url, cluster.chain.rpc_url])
            data = cluster.providers[2].metrics_file.parent
            data.mkdir(mode=0o700)
            cluster.providers[2].metrics_file.mkdir()
            stranger = Stranger(cluster.chain, STRANGERS[0])
            await stranger.shout(cluster.deployment.addresses["Members"])

        monkeypatch.setattr(Cluster, "start_chain", start_chain)
        yield proxies


async def test_a_stranger_and_failing_endpoints_end_nothing(
    options: Options, display: Display, proxies: list[FaultyRpc]
) -> None:
    chosen = options(providers=3, verifiers=2)
    async with garbage_gateway() as garbage, start(chosen, display) as running:
        members: list[Any] = list(running.cluster.members)
        await offer_free_jobs(
            running, ["http://[::1]@", garbage, "http://127.0.0.1:9", "javascript:alert(1)"]
        )
        await running.observer.run(trains)
        first = running.cluster.providers[0]
        holder = holder_of(first.folder / "data")
        code, complaint = await start_again(first)
        assert (code, f"process {holder} runs in" in complaint) == (2, True), complaint
        assert holder_of(first.folder / "data") == holder
        await running.observer.run(is_over)
        ended = [member.name for member in members if not member.process.is_running]
        report = (await finish(running, chosen)).report
    assert ended == []
    check_books(report)
    assert report["job"]["status"] == "done"
    assert [p["paid_rounds"] for p in report["providers"]] == [2, 2, 2]
    assert all(item["status"] == "settled" for item in report["rounds"])
    for proxy in proxies:
        assert proxy.told.total() > 20, proxy.told
    for member in members:
        measured = read_metrics(member.metrics_file)
        if member is running.cluster.providers[2]:
            assert measured == {}
        else:
            assert measured["undecodable_logs"] == 1
            is_behind_one = member.name in {"provider 0", "verifier 0", "provider 1"}
            assert (measured["useless_answers"] > 0) == is_behind_one
            assert (measured["rejected_events"], measured["stuck_jobs"]) == (0, [])
