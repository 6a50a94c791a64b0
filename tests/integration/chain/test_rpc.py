"""One boundary to endpoints: what is not an answer is nobody's problem but the endpoint's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_account.signers.local import LocalAccount
from tests.integration.chain.local_anvil import Anvil

from atoll.chain import rpc as rpc_module
from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.chain.follower import Follower
from atoll.chain.headers import HeaderReader
from atoll.chain.index import EventIndex, Rewound
from atoll.chain.indexed import Indexed
from atoll.chain.txconfig import QueueConfig
from atoll.chain.txqueue import TxQueue
from atoll.errors import ChainError, RpcUnavailable
from atoll.protocol.events import GatewayAnnounced
from atoll.protocol.types import Address, Role
from atoll_devnet.processes.chain import Endpoint
from atoll_devnet.processes.faulty_rpc import BUSY, BY_STATUS, FAULTS, TROUBLE, faulty_rpc

QUEUE = QueueConfig(poll_seconds=0.02)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_module, "TRY_PAUSE_SECONDS", 0.0)


def announced(items: list[Any]) -> list[str]:
    events = (item.event for item in items if isinstance(item, Indexed))
    return [event.url for event in events if isinstance(event, GatewayAnnounced)]


async def announce(anvil: Anvil, deployment: Deployment, *senders: LocalAccount) -> list[str]:
    """Makes one block for each announcement, and empty ones between them."""
    chain = await AtollChain.connect(anvil.url, deployment)
    urls = [f"http://{number}" for number in range(len(senders))]
    for url, sender in zip(urls, senders, strict=True):
        call = chain.calls.announce_gateway(url)
        order = {"from": sender.address, "to": call.to, "data": f"0x{call.data.hex()}"}
        sent = anvil.ask("eth_sendTransaction", order)
        while anvil.ask("eth_getTransactionReceipt", sent) is None:
            continue
        anvil.mine(2)
    await chain.close()
    return urls


@pytest.mark.parametrize("fault", [*FAULTS, *TROUBLE, *BY_STATUS])
async def test_an_endpoint_that_answers_uselessly_is_passed_over(
    anvil: Anvil, deployment: Deployment, accounts: list[LocalAccount], fault: str, tmp_path: Path
) -> None:
    """Everything that a service asks, of an endpoint that is of no use for any of it."""
    urls = await announce(anvil, deployment, accounts[1])
    async with faulty_rpc(anvil.url, 0) as proxy:
        chain = await AtollChain.connect([proxy.url, anvil.url], deployment)
        proxy.rate, proxy.only = 1.0, (fault,)
        index = EventIndex(chain, confirmations=0, path=tmp_path / "index")
        assert announced(await index.poll()) == urls
        index.close()
        owner = Address(accounts[0].address)
        assert await chain.nonce(owner) > 0
        assert await chain.native_balance(owner) > 0
        assert (await chain.stake(owner, Role.PROVIDER)).active == 0
        await chain.simulate(chain.calls.transfer(owner, 1), owner)
        await chain.close()
    assert proxy.counts.total() > 0


@pytest.mark.parametrize("fault", [*FAULTS, BUSY])
async def test_a_single_endpoint_s_useless_answers_are_one_error(
    anvil: Anvil, deployment: Deployment, fault: str
) -> None:
    async with faulty_rpc(anvil.url, 0) as proxy:
        chain = await AtollChain.connect(proxy.url, deployment)
        proxy.rate, proxy.only = 1.0, (fault,)
        with pytest.raises(RpcUnavailable):
            await chain.head()
        proxy.rate = 0.0
        assert (await chain.head()).number == anvil.height()
        assert chain.provider.useless_answers == rpc_module.TRIES
        await chain.close()


async def test_a_question_that_is_lost_does_not_come_to_the_node(anvil: Anvil) -> None:
    faults: dict[str, Any] = {"rate": 1.0, "only": ("nothing",)}
    lost = ("eth_sendRawTransaction",)
    async with (
        faulty_rpc(anvil.url, 0) as node,
        faulty_rpc(node.url, 0, lost=lost, **faults) as proxy,
    ):
        for method in ("eth_blockNumber", *lost):
            with pytest.raises(ChainError):
                await Endpoint(proxy.url, 31337).rpc(method)
    assert node.asked == {"eth_blockNumber": 1}
    assert proxy.counts == {"nothing": 2}


async def test_a_null_block_is_believed_of_a_shorter_chain_only(
    anvil: Anvil, deployment: Deployment
) -> None:
    height = anvil.height()
    async with faulty_rpc(anvil.url, 0, only=("null",)) as proxy:
        chain = await AtollChain.connect(proxy.url, deployment)
        assert await chain.block(height + 1) is None
        await chain.close()
        # Another one has seen no block yet: it asks for each.
        chain = await AtollChain.connect(proxy.url, deployment)
        real_draw = proxy._draw
        proxy._draw = lambda method: "null" if proxy.asked[method] % 2 else None  # type: ignore[method-assign]
        proxy.asked.clear()
        with pytest.raises(RpcUnavailable, match=f"it has no block {height}, and has later ones"):
            await chain.block(height)
        proxy._draw = real_draw  # type: ignore[method-assign]
        found = await HeaderReader(chain.provider).header(height)
        assert found is not None and found.ref.number == height
        await chain.close()


@pytest.mark.parametrize("beside", ["nothing", "a good one", "one that lags as well"])
async def test_one_empty_answer_about_logs_loses_no_event(
    anvil: Anvil, deployment: Deployment, accounts: list[LocalAccount], beside: str, tmp_path: Path
) -> None:
    urls = await announce(anvil, deployment, *accounts)
    async with faulty_rpc(
        anvil.url, 0, rate=1.0, only=("empty",), methods=("eth_getLogs",)
    ) as proxy:
        others = {"a good one": [anvil.url], "one that lags as well": [proxy.url]}
        chain = await AtollChain.connect([proxy.url, *others.get(beside, [])], deployment)
        index = EventIndex(chain, confirmations=0, path=tmp_path / "index")
        assert announced(await index.poll()) == urls
        assert chain.events.excluded >= len(urls)
        index.close()
        await chain.close()


async def test_one_endpoint_with_a_chain_of_its_own_is_not_believed_where_two_have_to_agree(
    anvil: Anvil,
    deployment: Deployment,
    accounts: list[LocalAccount],
    tmp_path: Path,
    liar: dict[str, Any],
) -> None:
    urls = await announce(anvil, deployment, accounts[1])
    async with faulty_rpc(anvil.url, 0, **liar) as proxy, faulty_rpc(anvil.url, 0) as honest:
        alone = await AtollChain.connect(proxy.url, deployment)
        believing = EventIndex(alone, confirmations=0, path=tmp_path / "believing")
        assert announced(await believing.poll()) == urls  # that it is a chain is not in doubt

        chain = await AtollChain.connect([proxy.url, anvil.url, honest.url], deployment, 2)
        index = EventIndex(chain, confirmations=0, path=tmp_path / "index")
        assert announced(await index.poll()) == urls
        last = await chain.block(index.confirmed)
        assert last is not None
        assert index._store.tip() == last
        assert bytes(last.hash) == bytes.fromhex(
            anvil.ask("eth_getBlockByNumber", "latest", False)["hash"][2:]
        )
        assert believing._store.tip() != index._store.tip()
        more = await announce(anvil, deployment, accounts[2])
        changes = await index.poll()
        assert announced(changes) == more
        assert not any(isinstance(change, Rewound) for change in changes)

        two = await AtollChain.connect([proxy.url, anvil.url], deployment, 2)
        torn = EventIndex(two, confirmations=0, path=tmp_path / "torn")
        with pytest.raises(RpcUnavailable, match=r"1 of 2 RPC endpoints .* rpc_agreement is 2"):
            await torn.poll()
        assert torn.confirmed < index.confirmed
        for each in (believing, index, torn):
            each.close()
        for opened in (alone, chain, two):
            await opened.close()


@pytest.mark.parametrize("place", range(3))
async def test_an_endpoint_that_hides_logs_behind_the_right_hash_hides_none_where_two_have_to_agree(
    anvil: Anvil,
    deployment: Deployment,
    accounts: list[LocalAccount],
    tmp_path: Path,
    hider: dict[str, Any],
    place: int,
) -> None:
    urls = await announce(anvil, deployment, accounts[1], accounts[2])
    async with (
        faulty_rpc(anvil.url, 0, **hider) as proxy,
        faulty_rpc(anvil.url, 0) as honest,
    ):
        alone = await AtollChain.connect(proxy.url, deployment)
        believing = EventIndex(alone, confirmations=0, path=tmp_path / "believing")
        with pytest.raises(RpcUnavailable, match="not those that the chain's state"):
            await believing.poll()

        endpoints = [anvil.url, honest.url]
        endpoints.insert(place, proxy.url)
        chain = await AtollChain.connect(endpoints, deployment, 2)
        index = EventIndex(chain, confirmations=0, path=tmp_path / "index")
        assert announced(await index.poll()) == urls
        for each in (believing, index):
            each.close()
        for opened in (alone, chain):
            await opened.close()


async def test_logs_of_another_fork_hold_nothing_up(
    anvil: Anvil,
    deployment: Deployment,
    accounts: list[LocalAccount],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of an endpoint whose index of logs stands on a fork that its blocks have left."""
    urls = await announce(anvil, deployment, *accounts)
    chain = await AtollChain.connect(anvil.url, deployment)
    ask_several = chain.provider.ask_several

    async def of_a_fork(count: int, method: str, params: Any, read: Any) -> Any:
        told = await ask_several(count, method, params, read)
        return [[replace(raw, block_hash=b"\x01" * 32) for raw in answer] for answer in told]

    monkeypatch.setattr(chain.provider, "ask_several", of_a_fork)
    index = EventIndex(chain, confirmations=0, path=tmp_path / "index")
    assert announced(await index.poll()) == urls
    assert announced(index.history()) == urls
    index.close()
    await chain.close()


async def test_receipts_that_each_count_their_logs_from_0_are_put_right(
    anvil: Anvil,
    deployment: Deployment,
    accounts: list[LocalAccount],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Ganache does, where a block has several transactions."""
    chain = await AtollChain.connect(anvil.url, deployment)
    urls = [f"http://{number}" for number in range(3)]
    anvil.ask("evm_setAutomine", False)
    for url, sender in zip(urls, accounts, strict=False):
        call = chain.calls.announce_gateway(url)
        order = {"from": sender.address, "to": call.to, "data": f"0x{call.data.hex()}"}
        anvil.ask("eth_sendTransaction", order)
    anvil.mine()
    anvil.ask("evm_setAutomine", True)
    wanted = await chain.logs(anvil.height(), anvil.height())
    ask = chain.provider.ask

    def anew(receipt: Any) -> Any:
        logs = [{**raw, "logIndex": hex(index)} for index, raw in enumerate(receipt["logs"])]
        return {**receipt, "logs": logs}

    async def as_ganache(method: str, params: Any, read: Any) -> Any:
        if method != "eth_getBlockReceipts":
            return await ask(method, params, read)
        return await ask(method, params, lambda value: read([anew(item) for item in value]))

    monkeypatch.setattr(chain.provider, "ask", as_ganache)
    assert list(await chain.events.in_receipts(anvil.height())) == wanted
    index = EventIndex(chain, confirmations=0, path=tmp_path / "index")
    assert sorted(announced(await index.poll())) == urls
    assert chain.events.excluded == 0
    index.close()
    await chain.close()


async def test_receipts_that_leave_logs_out_are_no_witness(
    anvil: Anvil, deployment: Deployment, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    """The index waits, and has everything once an endpoint answers."""
    urls = await announce(anvil, deployment, *accounts)
    methods = ("eth_getLogs", "eth_getBlockReceipts", "eth_getTransactionReceipt")
    async with faulty_rpc(anvil.url, 0, rate=1.0, only=("empty",), methods=methods) as proxy:
        chain = await AtollChain.connect(proxy.url, deployment)
        index = EventIndex(chain, confirmations=0, path=tmp_path / "index")
        with pytest.raises(RpcUnavailable):
            await index.poll()
        assert announced(index.history()) == []
        proxy.rate = 0.0
        assert announced(await index.poll()) == urls
        index.close()
        await chain.close()


@pytest.mark.parametrize("seed", range(3))
async def test_queue_and_index_live_with_a_faulty_endpoint(
    anvil: Anvil, deployment: Deployment, accounts: list[LocalAccount], seed: int, tmp_path: Path
) -> None:
    """A fifth of all answers are faults: every transaction happens once, no event is lost."""
    account = accounts[2]
    async with faulty_rpc(anvil.url, seed) as proxy:
        chain = await AtollChain.connect(proxy.url, deployment)
        proxy.rate = 0.2
        before = anvil.ask("eth_getTransactionCount", account.address, "latest")
        queue = TxQueue(chain, account, tmp_path / "tx", QUEUE)
        running = asyncio.create_task(queue.run())
        index = EventIndex(chain, confirmations=0, path=tmp_path / "index")
        urls = [f"http://{number}" for number in range(10)]
        for url in urls:
            await queue.execute(url, chain.calls.announce_gateway(url))
        follower, told = Follower(index, deployment), list[str]()
        while len(told) < len(urls):
            news = await follower.poll_patiently()
            earlier = follower.history() if news.begins else ()
            told += announced([*earlier, *(step.item for step in news.folded)])
        assert told == urls
        assert announced(index.history()) == urls
        after = anvil.ask("eth_getTransactionCount", account.address, "latest")
        assert int(after, 16) - int(before, 16) == len(urls)
        assert not running.done()
        running.cancel()
        await asyncio.wait([running])
        queue.close()
        index.close()
        await chain.close()
    assert len(proxy.counts) > 5
