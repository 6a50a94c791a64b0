"""Every intent becomes one transaction or a reason, whatever happens in between."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount
from tests.integration.chain.local_anvil import Anvil, until
from tests.integration.chain.queues import (
    EAGER,
    SOMEONE,
    Clock,
    nonce_of,
    outbid,
    running,
    status_of,
)

from atoll.chain.call import Call
from atoll.chain.contracts import AtollChain
from atoll.chain.rpc import FailoverProvider
from atoll.chain.txconfig import MOST_CALLDATA, MOST_GAS
from atoll.chain.txqueue import TxQueue
from atoll.chain.txrecords import TxState
from atoll.chain.txstatus import NO_MONEY, TOO_LARGE
from atoll.errors import (
    ChainError,
    ConfigError,
    InsufficientFunds,
    TransactionFailed,
)
from atoll.protocol.types import Address, JobId, Role


class PowerCut(Exception):
    """The process ends here."""


def cut_power_before_sending(chain: AtollChain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets nothing out: a signed transaction is on disk and nowhere else."""
    ask = FailoverProvider.ask

    async def cut(self: FailoverProvider, method: str, params: Any, read: Any) -> Any:
        if method == "eth_sendRawTransaction":
            raise PowerCut
        return await ask(self, method, params, read)

    monkeypatch.setattr(FailoverProvider, "ask", cut)


async def test_a_transaction_is_mined_and_its_gas_is_counted(
    chain: AtollChain, queue: TxQueue
) -> None:
    status = await queue.execute("pay", chain.calls.transfer(SOMEONE, 5))
    assert status.has_effect
    assert await chain.token_balance(SOMEONE) == 5
    use = queue.gas_by_label()["transfer"]
    assert (use.transactions, use.gas, use.highest) == (1, status.gas_used, status.gas_used)
    assert use.fees == status.fee_wei
    assert [entry.key for entry in queue.transactions()] == ["pay"]


async def test_the_same_key_is_one_transaction(
    chain: AtollChain, queue: TxQueue, accounts: list[LocalAccount]
) -> None:
    before = await nonce_of(chain, accounts[0])
    call = chain.calls.transfer(SOMEONE, 5)
    for _ in range(3):
        await queue.submit("pay", call)
    await queue.wait("pay")
    await queue.execute("pay", call)
    assert await chain.token_balance(SOMEONE) == 5
    assert await nonce_of(chain, accounts[0]) == before + 1


async def test_a_key_never_changes_its_call(chain: AtollChain, queue: TxQueue) -> None:
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
    with pytest.raises(ChainError, match="already stands for another transfer"):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 6))


async def test_many_tasks_share_one_key(
    chain: AtollChain, queue: TxQueue, accounts: list[LocalAccount]
) -> None:
    before = await nonce_of(chain, accounts[0])
    calls = {f"pay:{amount}": chain.calls.transfer(SOMEONE, amount) for amount in range(1, 26)}
    results = await asyncio.gather(*(queue.execute(key, call) for key, call in calls.items()))
    assert all(result.has_effect for result in results)
    assert sorted(result.nonce or 0 for result in results) == list(range(before, before + 25))
    assert await chain.token_balance(SOMEONE) == sum(range(1, 26))


async def test_a_refusal_takes_no_nonce_and_names_the_error(
    chain: AtollChain, queue: TxQueue, accounts: list[LocalAccount]
) -> None:
    before = await nonce_of(chain, accounts[0])
    with pytest.raises(TransactionFailed, match="cancel reverted: UnknownJob") as caught:
        await queue.execute("cancel", chain.calls.cancel(JobId(99)))
    assert caught.value.error == "UnknownJob"
    await queue.execute("pay", chain.calls.transfer(SOMEONE, 1))
    assert await nonce_of(chain, accounts[0]) == before + 1


async def test_a_refused_key_can_be_asked_for_again(chain: AtollChain, queue: TxQueue) -> None:
    deposit = chain.calls.deposit(Role.PROVIDER, 100)
    with pytest.raises(TransactionFailed, match="ERC20InsufficientAllowance"):
        await queue.execute("deposit", deposit)
    with pytest.raises(TransactionFailed):
        await queue.execute("deposit", deposit)
    await queue.execute("allow", chain.calls.approve(chain.deployment.addresses["Stakes"], 100))
    await queue.submit("deposit", deposit, retry_failed=True)
    assert (await queue.wait("deposit")).has_effect
    assert (await chain.stake(queue.address, Role.PROVIDER)).active == 100
    await queue.submit("deposit", deposit, retry_failed=True)
    assert (await queue.wait("deposit")).has_effect
    assert (await chain.stake(queue.address, Role.PROVIDER)).active == 100


async def test_what_was_refused_and_is_asked_for_again_takes_no_more_room(
    chain: AtollChain, tmp_path: Path
) -> None:
    queue = TxQueue(chain, Account.from_key("0x" + "33" * 32), tmp_path / "tx.sqlite", EAGER)
    for number in range(3):
        url = f"http://127.0.0.1:{number}"
        await queue.submit("gateway", chain.calls.announce_gateway(url), retry_failed=True)
        (status,) = queue.transactions()
        assert (status.state, status.error, status.message) == (TxState.QUEUED, None, "")
        await queue.pump()
        (status,) = queue.transactions()
        assert (status.state, status.error) == (TxState.FAILED, NO_MONEY)
    queue.close()


async def test_what_anyone_may_do_fails_quietly(chain: AtollChain, queue: TxQueue) -> None:
    status = await queue.execute("advance", chain.calls.advance(JobId(99)))
    assert status.state is TxState.MOOT
    assert status.error == "UnknownJob"


async def test_a_race_that_is_lost_in_the_block_is_told(
    chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    """Passes the simulation, reverts in the block: another took the tokens just before."""
    taker, owner = accounts[0], accounts[1]
    token = chain.deployment.addresses["AtollToken"]
    async with running(TxQueue(chain, taker, tmp_path / "taker.sqlite", EAGER)) as queue:
        await queue.execute("give", chain.calls.transfer(Address(owner.address), 5))
    async with running(TxQueue(chain, owner, tmp_path / "owner.sqlite", EAGER)) as queue:
        await queue.execute("allow", chain.calls.approve(Address(taker.address), 5))
        anvil.automine(False)
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        await until(lambda: len(anvil.pending()) == 1)
        take = chain.calls.build("transferFrom", owner.address, taker.address, 5)
        outbid(anvil, taker, await nonce_of(chain, taker), token, take.data)
        anvil.mine()
        with pytest.raises(TransactionFailed, match="transfer reverted: ERC20InsufficientBalance"):
            await queue.wait("pay")
        status = status_of(queue)
    assert status.state is TxState.REVERTED
    assert status.gas_used


async def test_a_crash_between_signing_and_sending_loses_nothing(
    chain: AtollChain, accounts: list[LocalAccount], tmp_path: Path, monkeypatch: Any
) -> None:
    path = tmp_path / "tx.sqlite"
    before = await nonce_of(chain, accounts[0])
    crashed = TxQueue(chain, accounts[0], path, EAGER)
    await crashed.submit("pay", chain.calls.transfer(SOMEONE, 5))
    with monkeypatch.context() as patch:
        cut_power_before_sending(chain, patch)
        with pytest.raises(PowerCut):
            await crashed.pump()
    crashed.close()
    assert await nonce_of(chain, accounts[0]) == before
    async with running(TxQueue(chain, accounts[0], path, EAGER)) as queue:
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        status = await queue.wait("pay")
    assert status.nonce == before
    assert await chain.token_balance(SOMEONE) == 5
    assert await nonce_of(chain, accounts[0]) == before + 1


async def test_a_crash_after_sending_is_not_a_second_payment(
    chain: AtollChain, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    path = tmp_path / "tx.sqlite"
    crashed = TxQueue(chain, accounts[0], path, EAGER)
    await crashed.submit("pay", chain.calls.transfer(SOMEONE, 5))
    await crashed.pump()
    crashed.close()
    async with running(TxQueue(chain, accounts[0], path, EAGER)) as queue:
        assert (await queue.execute("pay", chain.calls.transfer(SOMEONE, 5))).has_effect
    assert await chain.token_balance(SOMEONE) == 5


async def test_a_finished_transaction_is_known_after_a_restart(
    chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    path = tmp_path / "tx.sqlite"
    config = replace(EAGER, final_blocks=3)
    async with running(TxQueue(chain, accounts[0], path, config)) as queue:
        await queue.execute("pay", chain.calls.transfer(SOMEONE, 5))
        anvil.mine(5)
        await queue.wait("pay", confirmations=3)
    async with running(TxQueue(chain, accounts[0], path, config)) as queue:
        assert (await queue.wait("pay", confirmations=100)).has_effect


async def test_kill_9_at_any_moment_pays_each_once(
    chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    """A real process pays 1 wei twenty times and is killed again and again."""
    anvil.automine(False)
    anvil.ask("evm_setIntervalMining", 1)
    deployment = tmp_path / "deployment.json"
    chain.deployment.save(deployment)
    script = Path(__file__).with_name("paying_process.py")
    command = [sys.executable, str(script), anvil.url, str(deployment), str(tmp_path / "tx.sqlite")]
    for lines in (1, 8, 15):
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(lines):
            await process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    assert await chain.token_balance(SOMEONE) == 20


async def test_a_stuck_transaction_is_sent_again_for_more(
    chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    clock = Clock()
    anvil.automine(False)
    config = replace(EAGER, replace_seconds=30.0)
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", config, clock=clock)
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
    await queue.pump()
    (first,) = anvil.pending()
    clock.now += 29
    await queue.pump()
    assert anvil.pending() == [first]
    clock.now += 2
    await queue.pump()
    (second,) = anvil.pending()
    assert second["nonce"] == first["nonce"]
    assert int(second["maxFeePerGas"], 16) * 8 > int(first["maxFeePerGas"], 16) * 9
    anvil.mine()
    await queue.pump()
    status = status_of(queue)
    assert (status.state, status.tx_hash) == (TxState.MINED, second["hash"])
    assert await chain.token_balance(SOMEONE) == 5
    queue.close()


async def test_a_clock_that_starts_anew_holds_no_higher_bid_up(
    chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    """The machine was started again; nobody asks what time it was before."""

    def bids() -> int:
        (pending,) = anvil.pending()
        return int(pending["maxFeePerGas"], 16)

    anvil.automine(False)
    clock, path = Clock(), tmp_path / "tx.sqlite"
    queue = TxQueue(chain, accounts[0], path, EAGER, clock=clock)
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
    await queue.pump()
    queue.close()
    found = [bids()]
    clock.now = 1.0
    queue = TxQueue(chain, accounts[0], path, EAGER, clock=clock)
    for seconds in (0, EAGER.replace_seconds):
        clock.now += seconds
        await queue.pump()
        found.append(bids())
    for _ in range(2):
        await queue.bump("pay")
        found.append(bids())
    queue.close()
    assert found[0] == found[1] < found[2] < found[3] < found[4]


async def test_the_fee_cap_is_never_exceeded(
    chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    clock = Clock()
    anvil.automine(False)
    base = int(anvil.ask("eth_getBlockByNumber", "latest", False)["baseFeePerGas"], 16)
    config = replace(EAGER, fee_cap=2 * base, priority_fee=1)
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", config, clock=clock)
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
    for _ in range(5):
        await queue.pump()
        clock.now += 60
    (pending,) = anvil.pending()
    assert int(pending["maxFeePerGas"], 16) <= 2 * base
    with pytest.raises(ChainError, match="fee cap"):
        await queue.bump("pay")
    assert status_of(queue).message == "stuck at the fee cap"
    queue.close()


async def test_above_the_fee_cap_the_queue_holds_back(
    chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", replace(EAGER, fee_cap=1))
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
    await queue.pump()
    status = status_of(queue)
    assert (status.state, status.nonce) == (TxState.QUEUED, None)
    assert "above the fee cap" in status.message
    queue.close()


async def test_a_call_gone_wrong_while_stuck_is_replaced_by_nothing(
    chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    clock = Clock()
    queue = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER, clock=clock)
    await queue.submit("pay", chain.calls.transfer(SOMEONE, 10**27))
    anvil.automine(False)
    await queue.pump()
    (pending,) = anvil.pending()
    token = chain.deployment.addresses["AtollToken"]
    anvil.ask("anvil_dropTransaction", pending["hash"])
    anvil.ask("anvil_setCode", token, "0x60006000fd")  # the token now refuses everything
    clock.now += 60
    await queue.pump()
    (empty,) = anvil.pending()
    assert empty["nonce"] == pending["nonce"]
    assert empty["to"].lower() == accounts[0].address.lower()
    anvil.mine()
    await queue.pump()
    status = status_of(queue)
    assert status.state is TxState.REVERTED
    assert "transfer reverted" in status.message
    queue.close()


async def test_a_transaction_can_be_withdrawn(
    chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    anvil.automine(False)
    async with running(TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER)) as queue:
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        await until(lambda: len(anvil.pending()) == 1)
        await queue.cancel("pay")
        anvil.mine()
        with pytest.raises(TransactionFailed, match="transfer was withdrawn"):
            await queue.wait("pay")
        with pytest.raises(ChainError, match="no transaction is under way"):
            await queue.bump("pay")
    assert await chain.token_balance(SOMEONE) == 0


async def test_no_money_for_gas_is_said_in_numbers(chain: AtollChain, tmp_path: Path) -> None:
    poor = Account.from_key("0x" + "33" * 32)
    async with running(TxQueue(chain, poor, tmp_path / "tx.sqlite", EAGER)) as queue:
        with pytest.raises(InsufficientFunds):
            await queue.execute("gateway", chain.calls.announce_gateway("http://127.0.0.1:1"))


async def test_what_no_node_takes_holds_up_nothing_behind_it(
    chain: AtollChain, queue: TxQueue, accounts: list[LocalAccount]
) -> None:
    """Nodes refuse more than 128 KiB, though they estimate its gas: its nonce would never pass."""
    before, pay = await nonce_of(chain, accounts[0]), chain.calls.transfer(SOMEONE, 5)
    most = replace(pay, data=pay.data.ljust(MOST_CALLDATA, b"\0"))
    with pytest.raises(TransactionFailed, match="130049 bytes of calldata") as caught:
        await queue.execute("too large", replace(most, data=most.data + b"\0"))
    assert caught.value.error == TOO_LARGE
    assert (await queue.execute("largest", most)).has_effect
    assert await nonce_of(chain, accounts[0]) == before + 1


async def test_the_margin_of_a_dear_call_stays_below_what_a_transaction_may_use(
    anvil: Anvil, chain: AtollChain, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    """As of a claim of 3,000 rounds: thrice its gas no node takes, and its nonce would never pass.

    The code writes behind 2.4 MB of memory, which costs 12M gas; behind 3.3 MB it is 22M.
    """
    before = await nonce_of(chain, accounts[0])
    config = replace(EAGER, gas_margin_percent=200)
    async with running(TxQueue(chain, accounts[0], tmp_path / "dear.sqlite", config)) as queue:
        anvil.ask("anvil_setCode", SOMEONE, "0x6000622500005200")
        dear = await queue.execute("dear", Call(SOMEONE, b"", "burn"))
        assert dear.gas_used is not None and 3 * dear.gas_used > MOST_GAS
        sent = anvil.ask("eth_getTransactionByHash", dear.tx_hash)
        assert int(sent["gas"], 16) == MOST_GAS
        anvil.ask("anvil_setCode", SOMEONE, "0x6000623300005200")
        with pytest.raises(TransactionFailed, match="gas, 16777216 are the most") as caught:
            await queue.execute("dearer", Call(SOMEONE, b"", "burn"))
    assert caught.value.error == TOO_LARGE
    assert await nonce_of(chain, accounts[0]) == before + 1


async def test_a_key_has_one_writer(
    chain: AtollChain, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    first = TxQueue(chain, accounts[0], tmp_path / "tx.sqlite")
    with pytest.raises(ConfigError, match="another process already sends"):
        TxQueue(chain, accounts[0], tmp_path / "tx.sqlite")
    first.close()
    with pytest.raises(ConfigError, match="belongs to"):
        TxQueue(chain, accounts[1], tmp_path / "tx.sqlite")
    TxQueue(chain, accounts[0], tmp_path / "tx.sqlite").close()
