"""A stranger with gas, and endpoints that fail: nobody's process ends, and the ledger adds up.

The network is honest. Around it, beside the stranger that every network here has
(`atoll_devnet.run.stranger`): JSON-RPC endpoints for three members of which a tenth of all answers
are faults, a metrics file that cannot be written, and a second start of a member that runs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from atoll.protocol.types import Phase
from atoll.service.lock import holder_of
from atoll.service.metrics import read_metrics
from atoll_devnet.processes.cluster import Cluster, Member
from atoll_devnet.processes.faulty_rpc import FaultyRpc, faulty_rpc
from atoll_devnet.report.live import Display
from atoll_devnet.report.observer import Observer
from atoll_devnet.run.options import RunOptions
from atoll_devnet.run.runner import finish, is_over, start
from atoll_devnet.run.stranger import FAULT_RATE, SEED, point_at

from .conftest import check_ledger

Options = Callable[..., RunOptions]


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

    One member's metrics file is a folder.
    """
    real = Cluster.start_chain
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(faulty_rpc("", SEED + 1 + i)) for i in range(3)]

        async def start_chain(cluster: Cluster) -> None:
            await real(cluster)
            behind = (cluster.providers[0], cluster.verifiers[0], cluster.providers[1])
            for proxy, member in zip(proxies, behind, strict=True):
                proxy.target, proxy.rate = cluster.chain.rpc_url, FAULT_RATE
                point_at(member.folder, [proxy.url])
            point_at(behind[2].folder, [proxies[2].url, cluster.chain.rpc_url])
            data = cluster.providers[2].metrics_file.parent
            data.mkdir(mode=0o700)
            cluster.providers[2].metrics_file.mkdir()

        monkeypatch.setattr(Cluster, "start_chain", start_chain)
        yield proxies


async def test_a_stranger_and_failing_endpoints_end_nothing(
    options: Options, display: Display, proxies: list[FaultyRpc]
) -> None:
    chosen = options(providers=3, verifiers=2)
    async with start(chosen, display) as running:
        members: list[Any] = list(running.cluster.members)
        await running.observer.run(trains)
        first = running.cluster.providers[0]
        holder = holder_of(first.folder / "data")
        code, complaint = await start_again(first)
        assert (code, f"process {holder} runs in" in complaint) == (6, True), complaint
        assert holder_of(first.folder / "data") == holder
        await running.observer.run(is_over)
        ended = [member.name for member in members if not member.process.is_running]
        report = (await finish(running, chosen)).report
    assert ended == []
    check_ledger(report)
    assert report["job"]["status"] == "done"
    assert [p["paid_rounds"] for p in report["providers"]] == [2, 2, 2]
    assert all(item["status"] == "settled" for item in report["rounds"])
    for proxy in proxies:
        assert proxy.counts.total() >= 10, (
            proxy.counts
        )  # as many as the blocks of a quick run bring
    for member in members:
        measured = read_metrics(member.metrics_file)
        if member is running.cluster.providers[2]:
            assert measured == {}
        else:
            assert measured["undecodable_logs"] == 1
            assert measured["useless_answers"] > 0  # verifier 1 is behind the stranger's own
            assert (measured["rejected_events"], measured["stuck_jobs"]) == (0, [])
