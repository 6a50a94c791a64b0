"""The same code on other nodes: their gas estimates, error shapes, absent methods and intervals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from eth_account.signers.local import LocalAccount
from tests.integration.chain.local_anvil import (
    Anvil,
    start_ganache,
    start_hardhat,
    start_optimism,
    stop,
)

from atoll.chain.contracts import AtollChain
from atoll.chain.deploy import deploy
from atoll.chain.index import Advanced, EventIndex
from atoll.chain.indexed import Indexed
from atoll.chain.txconfig import QueueConfig
from atoll.chain.txqueue import TxQueue
from atoll.chain.txrecords import TxState
from atoll.errors import TransactionFailed
from atoll.protocol.types import JobId


@pytest.fixture
def ganache() -> Iterator[Anvil]:
    node = start_ganache()
    yield node
    stop(node)


@pytest.fixture(params=[start_ganache, start_optimism], ids=["ganache", "optimism"])
def node(request: pytest.FixtureRequest) -> Iterator[Anvil]:
    start: Callable[[], Anvil] = request.param
    started = start()
    yield started
    stop(started)


async def test_queue_index_and_reads_work_on_every_node(
    node: Anvil, accounts: list[LocalAccount], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_ganache = "ganache" in request.node.name  # it has none of the curve's precompiles
    await _works(node, accounts, tmp_path, has_bls=not is_ganache)


async def test_they_work_on_hardhat_s_node(accounts: list[LocalAccount], tmp_path: Path) -> None:
    node = start_hardhat()
    try:
        await _works(node, accounts, tmp_path, has_bls=True)
    finally:
        stop(node)


async def _works(
    node: Anvil, accounts: list[LocalAccount], tmp_path: Path, *, has_bls: bool
) -> None:
    deployment = await deploy(node.url, accounts[0])
    assert ("BlsPolicy" in deployment.addresses) is has_bls
    chain = await AtollChain.connect(node.url, deployment)
    queue = TxQueue(chain, accounts[0], tmp_path / "tx", QueueConfig(poll_seconds=0.02))
    running = asyncio.create_task(queue.run())
    for name in ("a", "b"):
        await queue.execute(name, chain.calls.announce_gateway(f"http://{name}"))
    with pytest.raises(TransactionFailed, match="cancel reverted: UnknownJob"):
        await queue.execute("cancel", chain.calls.cancel(JobId(9)))
    moot = await queue.execute("advance", chain.calls.advance(JobId(9)))
    assert (moot.state, moot.error) == (TxState.MOOT, "UnknownJob")
    with pytest.raises(TransactionFailed, match=r"state reverted: UnknownJob\(jobId=9\)"):
        await chain.state(JobId(9))
    index = EventIndex(chain, confirmations=0, path=tmp_path / "index")
    changes = await index.poll()
    urls = [u.event.url for u in changes if isinstance(u, Indexed) and hasattr(u.event, "url")]
    assert urls == ["http://a", "http://b"]
    assert isinstance(changes[-1], Advanced)
    index.close()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    queue.close()
    await chain.close()


async def test_two_logs_of_one_block_have_two_positions(
    ganache: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    """Ganache numbers the logs of each receipt from 0, in the same block."""
    deployment = await deploy(ganache.url, accounts[0])
    chain = await AtollChain.connect(ganache.url, deployment)
    ganache.ask("miner_stop")
    for account in accounts[:2]:
        call = chain.calls.announce_gateway(f"http://{account.address.lower()}")
        data = f"0x{call.data.hex()}"
        order = {"from": account.address, "to": call.to, "data": data, "gas": hex(200_000)}
        ganache.ask("eth_sendTransaction", order)
    ganache.ask("miner_start")
    index = EventIndex(chain, confirmations=0, path=tmp_path / "index")
    found: list[Indexed] = []
    while len(found) < 2:
        found += [u for u in await index.poll() if isinstance(u, Indexed)]
    assert found[0].block == found[1].block
    assert found[0].log_index < found[1].log_index
    index.close()
    await chain.close()
