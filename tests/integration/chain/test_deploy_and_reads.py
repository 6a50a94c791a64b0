"""Deploying, reading, and what happens when endpoints fail or lie."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount
from tests.integration.chain.local_anvil import Anvil, stop, until

from atoll.chain import contract_views as views
from atoll.chain.contract_views import Stake
from atoll.chain.contracts import AtollChain
from atoll.chain.default_params import default_params
from atoll.chain.deploy import DeployConfig, deploy
from atoll.chain.deployment import Deployment
from atoll.errors import (
    ChainError,
    InsufficientFunds,
    RpcUnavailable,
    TransactionFailed,
    WrongChain,
)
from atoll.job.event_text import tokens
from atoll.protocol import bls
from atoll.protocol.token_units import use_decimals
from atoll.protocol.types import Address, JobId, Role

NOWHERE = "http://127.0.0.1:9"  # the discard port: nothing listens


async def test_a_deployment_can_be_read(chain: AtollChain, accounts: list[LocalAccount]) -> None:
    owner = Address(accounts[0].address)
    assert await chain.token_balance(owner) == 10**27
    assert await chain.stake(owner, Role.PROVIDER) == Stake(0, 0, 0)
    assert await chain.id_of(JobId(99), owner) is None
    head = await chain.head()
    assert await chain.block(head.number) == head
    assert await chain.block(head.number + 1000) is None


async def test_what_no_block_takes_is_bid_for_again(
    accounts: list[LocalAccount], spawn: Callable[..., Anvil], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.chain.deploy.BID_SECONDS", 0.5)
    node = spawn("--no-mining")
    deploying = asyncio.create_task(deploy(node.url, accounts[0]))
    bids: set[int] = set()

    def has_bid_again() -> bool:
        first = (one for one in node.pending() if int(one["nonce"], 16) == 0)
        bids.update(int(one["maxFeePerGas"], 16) for one in first)
        return len(bids) >= 3

    await until(has_bid_again)
    assert all(8 * higher >= 9 * lower for lower, higher in pairwise(sorted(bids)))
    node.ask("anvil_setIntervalMining", 1)
    assert "Rounds" in (await deploying).addresses


async def test_wiring_is_done(chain: AtollChain, accounts: list[LocalAccount]) -> None:
    known = chain.deployment.addresses
    wire = chain.calls.build("wire", known["Members"], known["Jobs"], contract="Stakes")
    with pytest.raises(TransactionFailed, match="AlreadyWired"):
        await chain.simulate(wire, Address(accounts[0].address))


async def test_a_key_is_registered_where_the_chain_has_its_curve(
    chain: AtollChain, accounts: list[LocalAccount], anvil: Anvil, spawn: Callable[..., Anvil]
) -> None:
    known, me = chain.deployment.addresses, Address(accounts[0].address)
    assert await chain.bls_key(me) == b""
    secret = bls.secret_of(bytes(32))
    key = bls.key_of(secret)
    message = bls.proof_message(chain.deployment.chain_id, known["BlsPolicy"], me, key)
    proof = bls.added([bls.sign(secret, message, bls.PROVE)])
    with pytest.raises(TransactionFailed, match="NotProven"):
        await chain.simulate(chain.calls.register(key, proof), Address(accounts[1].address))
    for call in (chain.calls.register(key, proof), chain.calls.keep([me, me])):
        order = {"from": me, "to": call.to, "data": f"0x{call.data.hex()}", "gas": hex(10**6)}
        sent = anvil.ask("eth_sendTransaction", order)
        while anvil.ask("eth_getTransactionReceipt", sent) is None:
            continue
    assert await chain.bls_key(me) == key
    assert await chain.bls_sum([me]) == b""
    assert await chain.bls_sum([me, me]) == bls.key_sum([key, key])
    with pytest.raises(TransactionFailed, match="HasKey"):
        await chain.simulate(chain.calls.register(key, proof), me)
    older = await deploy(spawn("--hardfork", "shanghai").url, accounts[0])
    assert "BlsPolicy" not in older.addresses


async def test_a_view_that_reverts_names_its_error(chain: AtollChain) -> None:
    with pytest.raises(
        TransactionFailed, match=r"state reverted: UnknownJob\(jobId=99\)"
    ) as caught:
        await chain.state(JobId(99))
    assert (caught.value.error, caught.value.args_) == ("UnknownJob", (99,))


async def test_an_existing_token_is_used(
    anvil: Anvil, deployment: Deployment, accounts: list[LocalAccount]
) -> None:
    token = deployment.addresses["AtollToken"]
    again = await deploy(anvil.url, accounts[1], DeployConfig(token=token))
    assert again.addresses["AtollToken"] == token
    assert again.addresses["Rounds"] != deployment.addresses["Rounds"]


async def test_a_token_of_six_decimals_is_what_amounts_are_counted_in(
    anvil: Anvil, accounts: list[LocalAccount]
) -> None:
    made = await deploy(anvil.url, accounts[0], DeployConfig(decimals=6))
    chain = await AtollChain.connect(anvil.url, made)
    try:
        params = await chain.ask(views.params())
        assert (params.min_provider_bond, params.min_verifier_bond) == (10**6, 10**6)
        held = await chain.token_balance(Address(accounts[0].address))
        assert tokens(held) == "1,000,000,000"
        again = await deploy(
            anvil.url, accounts[1], DeployConfig(token=made.addresses["AtollToken"])
        )
        assert (made.decimals, again.decimals) == (6, 6)
    finally:
        use_decimals(18)
        await chain.close()


async def test_a_refused_constructor_is_named(anvil: Anvil, accounts: list[LocalAccount]) -> None:
    config = DeployConfig(params=replace(default_params(31337), penalty_bps=9_999))
    with pytest.raises(TransactionFailed, match="creating Config reverted"):
        await deploy(anvil.url, accounts[0], config)


async def test_deploying_without_money_says_how_much(anvil: Anvil) -> None:
    with pytest.raises(InsufficientFunds, match="has 0 wei"):
        await deploy(anvil.url, Account.from_key("0x" + "22" * 32))


async def test_a_dead_endpoint_is_passed_over(anvil: Anvil, deployment: Deployment) -> None:
    chain = await AtollChain.connect([NOWHERE, anvil.url], deployment)
    assert (await chain.head()).number == anvil.height()
    await chain.close()


async def test_no_endpoint_is_one_clear_error(deployment: Deployment) -> None:
    with pytest.raises(RpcUnavailable, match=r"127\.0\.0\.1:9") as caught:
        await AtollChain.connect([NOWHERE], deployment)
    assert caught.value.next_step
    assert caught.value.exit_code == 3


async def test_another_chain_is_one_clear_error(anvil: Anvil, deployment: Deployment) -> None:
    elsewhere = replace(deployment, chain_id=1)
    with pytest.raises(WrongChain, match="serves chain 31337, but the deployment is on chain 1"):
        await AtollChain.connect(anvil.url, elsewhere)


async def test_a_fresh_chain_without_the_contracts_is_noticed(
    anvil: Anvil, deployment: Deployment
) -> None:
    addresses = {name: Address(f"0x{index + 1:040x}") for index, name in
                 enumerate(deployment.addresses)}  # fmt: skip
    with pytest.raises(ChainError, match="no contract at"):
        await AtollChain.connect(anvil.url, replace(deployment, addresses=addresses))


async def test_an_endpoint_that_dies_midway_is_replaced(
    anvil: Anvil, deployment: Deployment, spawn: Callable[..., Anvil]
) -> None:
    second = spawn("--fork-url", anvil.url)
    chain = await AtollChain.connect([second.url, anvil.url], deployment)
    second.mine(5)
    assert (await chain.head()).number == second.height()
    stop(second)
    assert (await chain.head()).number == anvil.height()
    await chain.close()
