"""A network that draws by drand's signatures: its members post those that their job waits for."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp.test_utils import TestServer
from eth_abi.abi import decode
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from tests.network.members import Network, Site, Who, everybody, is_settled_up, network
from tests.support.drand_server import HASH, Drand

from atoll.chain.deploy import DeployConfig
from atoll_devnet.processes.cluster import Cluster

SINCE_GENESIS = 1_000
NOBODY = "http://127.0.0.1:9"
POST = keccak(text="post(uint64,bytes)")[:4].hex()


@asynccontextmanager
async def servers(cluster: Cluster, *drands: Drand) -> AsyncIterator[None]:
    """Each member asks these in turn, behind one that nobody listens at."""
    async with AsyncExitStack() as stack:
        urls = [NOBODY]
        for drand in drands:
            server = await stack.enter_async_context(TestServer(drand.app()))
            urls.append(str(server.make_url("")).rstrip("/"))
        for member in cluster.members:
            path = member.config_file
            section = f'\n[drand]\nurls = {urls!r}\nchain_hash = "{HASH}"\n'
            path.write_text(path.read_text("utf-8") + section, "utf-8")
        yield


async def posts(running: Network) -> list[tuple[int, str]]:
    """Of each transaction that posted something: drand's round, and who paid for it."""
    chain, beacon = running.cluster.chain, running.cluster.deployment.addresses["DrandBeacon"]
    found = []
    for number in range(await chain.block_number() + 1):
        block = await chain.rpc("eth_getBlockByNumber", hex(number), True)
        for sent in block["transactions"]:
            is_post = sent["input"][2:].startswith(POST)
            if is_post and to_checksum_address(sent["to"]) == beacon:
                drand_round, _ = decode(["uint64", "bytes"], bytes.fromhex(sent["input"][10:]))
                found.append((drand_round, to_checksum_address(sent["from"])))
    return found


async def test_members_post_what_their_job_waits_for_whatever_a_server_says(site: Site) -> None:
    true, liar = Drand(), Drand(lies=True)
    beacon = true.chain(int(time.time()) - SINCE_GENESIS, period=3, margin=2)
    who = Who(deployment=DeployConfig(beacon="DrandBeacon", drand=beacon))
    async with network(
        site, who, before=lambda cluster: servers(cluster, liar, true), rounds=2
    ) as running:
        view = await running.until(is_settled_up)
        posted = await posts(running)
    assert [settled_round.verdict.merged for settled_round in view.settled] == [4, 4]
    assert all(any(settled_round.record.seed) for settled_round in view.settled)
    assert not any(holder.penalties or holder.is_slashed for holder in everybody(view))
    members = {member.account for member in running.cluster.members}
    assert {sender for _, sender in posted} <= members
    # What a liar said was asked for first, believed by nobody, and cost no gas.
    assert set(liar.asked) >= {drand_round for drand_round, _ in posted}
    assert {drand_round for drand_round, _ in posted} <= set(true.asked)
    assert len({drand_round for drand_round, _ in posted}) >= len(view.settled)
