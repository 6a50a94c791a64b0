"""The transaction queue where a chain takes blocks back, nodes forget or others use its nonces."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from eth_account.signers.local import LocalAccount
from tests.integration.chain.local_anvil import Anvil
from tests.integration.chain.queues import (
    EAGER,
    SOMEONE,
    Clock,
    nonce_of,
    outbid,
    running,
    status_of,
)

from atoll.chain import rpc
from atoll.chain.contracts import AtollChain
from atoll.chain.replies import Reply
from atoll.chain.response_checks import TxReceipt
from atoll.chain.rpc import FailoverProvider
from atoll.chain.txqueue import TxQueue
from atoll.chain.txrecords import TxState
from atoll.errors import (
    RpcUnavailable,
)
from atoll.protocol.types import Address, BlockRef


async def look_twice(queue: TxQueue, clock: Clock) -> None:
    """Until the only endpoint is believed to have lost a transaction."""
    for _ in range(2):
        clock.now += 2
        await queue.pump()


async def test_a_node_that_forgets_is_told_again(
    chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    clock = Clock()
    anvil.automine(False)
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER, clock=clock)
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
    await queue.pump()
    anvil.ask("anvil_dropAllTransactions")
    assert anvil.pending() == []
    await look_twice(queue, clock)
    assert len(anvil.pending()) == 1
    queue.close()


async def test_a_reorg_takes_a_transaction_back_and_it_is_sent_again(
    chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    clock = Clock()
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER, clock=clock)
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
    await queue.pump()
    await queue.pump()
    anvil.mine()
    await queue.pump()
    status = status_of(queue)
    assert (status.state, status.confirmations) == (TxState.MINED, 2)
    anvil.automine(False)
    anvil.ask("anvil_reorg", 2, [])
    assert await chain.token_balance(SOMEONE) == 0
    await queue.pump()
    status = status_of(queue)
    assert (status.state, status.confirmations) == (TxState.SENT, 0)
    anvil.mine()
    await queue.pump()
    assert status_of(queue).state is TxState.MINED
    assert await chain.token_balance(SOMEONE) == 5
    queue.close()


async def test_a_receipt_of_a_block_that_a_reorg_took_back_is_none(
    chain: AtollChain,
    anvil: Anvil,
    accounts: list[LocalAccount],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One node behind the endpoint has not seen the reorg yet."""
    clock = Clock()
    anvil.automine(False)
    anvil.mine()
    before = anvil.ask("evm_snapshot")
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER, clock=clock)
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
    await queue.pump()
    (sent,) = anvil.pending()
    anvil.mine()
    stale = await chain.receipt(sent["hash"])
    assert stale is not None
    anvil.ask("evm_revert", before)
    anvil.ask("evm_increaseTime", 7)
    anvil.mine()

    async def late(tx_hash: str) -> TxReceipt | None:
        return stale

    with monkeypatch.context() as patch:
        patch.setattr(chain, "receipt", late)
        await queue.pump()
    status = status_of(queue)
    assert (status.state, status.confirmations) == (TxState.SENT, 0)
    await look_twice(queue, clock)
    anvil.mine()
    await queue.pump()
    assert status_of(queue).has_effect
    assert await chain.token_balance(SOMEONE) == 5
    queue.close()


async def test_a_reorg_of_a_block_newer_than_the_head_that_was_read_loses_nothing(
    chain: AtollChain,
    anvil: Anvil,
    accounts: list[LocalAccount],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    anvil.automine(False)
    clock = Clock()
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER, clock=clock)
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
    await queue.pump()
    queue.close()
    # A new one has seen no head yet: the same one twice would not be looked at again.
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER, clock=clock)
    read_head = chain.head

    async def then_a_block(within: float) -> BlockRef:
        head = await read_head(within)
        anvil.mine()
        return head

    with monkeypatch.context() as patch:
        patch.setattr(chain, "head", then_a_block)
        await queue.pump()
    assert await chain.token_balance(SOMEONE) == 5
    anvil.ask("anvil_reorg", 1, [])
    assert await chain.token_balance(SOMEONE) == 0
    for _ in range(3):
        clock.now += 2
        await queue.pump()
        anvil.mine()
    assert await chain.token_balance(SOMEONE) == 5
    queue.close()


async def test_a_nonce_taken_by_another_program_is_survived(
    chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    anvil.automine(False)
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER)
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
    await queue.pump()
    (lost,) = anvil.pending()
    outbid(anvil, accounts[0], await nonce_of(chain, accounts[0]), SOMEONE, b"")
    for _ in range(6):
        anvil.mine()
        await queue.pump()
    assert status_of(queue).state is TxState.MINED
    assert await chain.token_balance(SOMEONE) == 5
    assert queue.has_signed(lost["hash"])
    queue.close()


async def test_a_nonce_counts_as_another_programs_only_where_its_block_says_so(
    chain: AtollChain,
    anvil: Anvil,
    accounts: list[LocalAccount],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    anvil.automine(False)
    nonce = await nonce_of(chain, accounts[0])
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER)
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
    await queue.pump()
    outbid(anvil, accounts[0], nonce, SOMEONE, b"")
    asked = chain.nonce

    async def of_the_newest(account: Address, block: str = "latest") -> int:
        if block != "latest":
            raise RpcUnavailable("this node has no old states")
        return await asked(account)

    with monkeypatch.context() as patch:
        patch.setattr(chain, "nonce", of_the_newest)
        for _ in range(20):
            anvil.mine()
            await queue.pump()
    status = status_of(queue)
    assert (status.state, status.nonce) == (TxState.SENT, nonce)
    for _ in range(4):
        anvil.mine()
        await queue.pump()
    status = status_of(queue)
    assert (status.state, status.nonce) == (TxState.MINED, nonce + 1)
    assert await chain.token_balance(SOMEONE) == 5
    queue.close()


async def test_a_receipt_that_is_late_is_not_a_second_payment(
    chain: AtollChain,
    anvil: Anvil,
    accounts: list[LocalAccount],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER)
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))

    async def not_indexed(tx_hash: str) -> None:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(chain, "receipt", not_indexed)
        for _ in range(8):
            await queue.pump()
            anvil.mine()
    assert status_of(queue).state is TxState.SENT
    await queue.pump()
    assert status_of(queue).has_effect
    assert await chain.token_balance(SOMEONE) == 5
    queue.close()


async def test_a_nonce_that_no_account_comes_to_is_no_answer(
    chain: AtollChain, accounts: list[LocalAccount], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one behind it fits into no database: an endpoint would end whoever asks it first."""
    told, lies = rpc.result_of, asyncio.Event()

    def lied(reply: Reply, method: str) -> Any:
        found = told(reply, method)
        if method != "eth_getTransactionCount":
            return found
        lies.set()
        return hex(2**63 - 1)

    monkeypatch.setattr(rpc, "result_of", lied)
    async with running(TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER)) as queue:
        for key in ("first", "second"):
            await queue.submit(key, chain.calls.transfer(SOMEONE, 5))
        await lies.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.wait("second"), 1.0)
        monkeypatch.setattr(rpc, "result_of", told)
        assert (await queue.wait("first")).has_effect
        assert (await queue.wait("second")).has_effect


async def test_a_chain_that_goes_away_is_waited_for(
    chain: AtollChain, accounts: list[LocalAccount], tmp_path: Path, monkeypatch: Any
) -> None:
    async with running(TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER)) as queue:
        asked = asyncio.Event()
        with monkeypatch.context() as patch:

            async def unreachable(*_: Any) -> Any:
                asked.set()
                raise RpcUnavailable("nobody answers")

            patch.setattr(FailoverProvider, "ask", unreachable)
            await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
            await asked.wait()
        assert (await queue.wait("pay")).has_effect


@pytest.fixture
def shown_to_all(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Filled with the method of whatever every endpoint is told."""
    sent: list[str] = []
    told = FailoverProvider.tell_all

    async def counted(self: FailoverProvider, method: str, params: Any, read: Any) -> Any:
        sent.append(method)
        return await told(self, method, params, read)

    monkeypatch.setattr(FailoverProvider, "tell_all", counted)
    return sent


async def test_an_endpoint_that_does_not_say_what_it_has_is_shown_it_again_and_holds_nothing_up(
    chain: AtollChain,
    anvil: Anvil,
    accounts: list[LocalAccount],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shown_to_all: list[str],
) -> None:
    ask = FailoverProvider.ask

    async def without(self: FailoverProvider, method: str, params: Any, read: Any) -> Any:
        if method == "eth_getTransactionByHash":
            raise RpcUnavailable("method not found")
        return await ask(self, method, params, read)

    monkeypatch.setattr(FailoverProvider, "ask", without)
    clock = Clock()
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER, clock=clock)
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
    anvil.automine(False)
    await queue.pump()
    await queue.submit("pay more", chain.calls.transfer(SOMEONE, 6))
    await look_twice(queue, clock)
    assert shown_to_all
    assert len(anvil.pending()) == 2
    anvil.mine()
    await queue.pump()
    assert await chain.token_balance(SOMEONE) == 11
    queue.close()


async def test_the_only_endpoint_is_shown_again_what_it_missed_at_two_looks(
    chain: AtollChain,
    anvil: Anvil,
    accounts: list[LocalAccount],
    tmp_path: Path,
    shown_to_all: list[str],
) -> None:
    clock = Clock()
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER, clock=clock)
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
    anvil.automine(False)
    await queue.pump()
    (pending,) = anvil.pending()

    async def look() -> int:
        clock.now += 2
        await queue.pump()
        return len(shown_to_all)

    assert [await look(), await look()] == [0, 0]  # it has it
    for times in (1, 2):
        anvil.ask("anvil_dropTransaction", pending["hash"])
        assert [await look(), await look()] == [times - 1, times]
    assert [found["hash"] for found in anvil.pending()] == [pending["hash"]]
    anvil.mine()
    await queue.pump()
    assert await chain.token_balance(SOMEONE) == 5
    queue.close()
