"""web3.py over our endpoints: the same answers as ours, whatever one of the endpoints says."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import fields, is_dataclass, replace
from enum import IntEnum
from inspect import isfunction
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount
from tests.integration.chain.altered import altered, says
from tests.integration.chain.local_anvil import Anvil
from tests.support.jobs import manifest_of_preset
from tests.support.manifests import make_terms
from web3.exceptions import (
    BlockNotFound,
    ContractCustomError,
    MethodUnavailable,
    TransactionNotFound,
    Web3RPCError,
)

from atoll import Client, ClientConfig
from atoll.chain import contract_views as views
from atoll.chain import rpc as rpc_module
from atoll.chain.call import Call
from atoll.chain.contracts import AtollChain
from atoll.chain.decode import to_abi
from atoll.chain.deployment import Deployment
from atoll.chain.revert import decode_revert
from atoll.chain.view import View
from atoll.chain.web3_client import deployed, web3_over
from atoll.errors import ConfigError, RpcUnavailable
from atoll.protocol.types import Address, Digest, HolderId, JobId, Role, RoundIndex, Terms
from atoll_devnet.processes.faulty_rpc import BY_STATUS, FAULTS, TROUBLE, faulty_rpc

SOMEONE = Address("0x00000000000000000000000000000000000000AA")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_module, "TRY_PAUSE_SECONDS", 0.0)


def plain(value: Any) -> Any:
    """Our types as web3.py has them: structs and several outputs are lists."""
    if is_dataclass(value):
        return [plain(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return int(value) if isinstance(value, IntEnum) else value


def of_network(deployment: Deployment, me: Address) -> list[View[Any]]:
    policy = deployment.addresses["EcdsaPolicy"]
    return [
        views.kept_of(me),
        views.owner_of(me),
        views.payee_of(me),
        views.proposed_owner_of(me),
        views.stake_of(me, Role.PROVIDER),
        views.stake_of(me, Role.VERIFIER),
        views.owed(me),
        views.key_of(me),
        views.delegate_of(me),
        views.sum_of([me, SOMEONE]),
        views.owner(),
        views.paused(),
        views.params(),
        views.proposed_params(),
        views.proposed_policy(),
        views.is_policy(policy),
        views.is_policy(me),
        views.change_delay(),
        views.pending_owner(),
        views.allowance(me, deployment.addresses["Jobs"]),
        views.balance_of(me),
        views.announced_in(Digest(b"\x07" * 32)),
    ]


def of_job(job: JobId, me: Address, terms: Terms) -> list[View[Any]]:
    return [
        views.state(job),
        views.awaited_block(job),
        views.absolute_end(job),
        views.id_of(job, me),
        views.budget(terms),
        views.terms_of(job),
        views.escrow_of(job),
        views.claimed_to(job, Role.PROVIDER, HolderId(1)),
        views.refundable(job),
        views.credit_of(job, me),
        views.shown_of(job, RoundIndex(0), 1 << 64),
    ]


OF_DRAND = frozenset({"awaited", "genesis", "period", "randomness"})
"""Of a deployment that draws by drand, which these chains do not: test_drand.py asks them."""


def test_no_view_is_left_out() -> None:
    """A view that the contracts gain has to be compared, too."""
    here, nobody = Address(f"0x{0:040x}"), JobId(0)
    deployment = Deployment(1, 0, dict.fromkeys(("EcdsaPolicy", "Jobs"), here))
    compared = [*of_network(deployment, here), *of_job(nobody, here, make_terms())]
    known = {name for name, made in vars(views).items() if isfunction(made)}
    known = {name for name in known if getattr(views, name).__module__ == views.__name__}
    assert {view.name for view in compared} == {_camel(name) for name in known} - OF_DRAND


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


async def test_every_view_is_what_web3_reads(
    anvil: Anvil, chain: AtollChain, accounts: list[LocalAccount]
) -> None:
    me, job = Address(accounts[0].address), JobId(1)
    known = {"expiry": int(time.time()) + 10**6, "program": Digest(b"\x07" * 32)}
    terms = replace(manifest_of_preset("nano").terms, **known)
    await open_job(anvil, chain, me, terms)
    w3 = web3_over(chain.provider)
    for view in (*of_network(chain.deployment, me), *of_job(job, me, terms)):
        contract = deployed(w3, chain.deployment, view.contract)
        answer = await contract.functions[view.name](*to_abi(view.args)).call()
        assert plain(answer) == plain(await chain.ask(view)), view.name


async def open_job(anvil: Anvil, chain: AtollChain, me: Address, terms: Terms) -> None:
    policy, budget = chain.deployment.addresses["EcdsaPolicy"], await chain.budget(terms)
    for call in (
        chain.calls.approve(chain.deployment.addresses["Jobs"], budget),
        chain.calls.create(Digest(bytes(32)), b"", terms, policy, budget),
    ):
        await chain.simulate(call, me)
        sent(anvil, me, call)


def sent(anvil: Anvil, me: Address, call: Call) -> str:
    """A call's transaction in a block, by an account that the node has unlocked."""
    order = {"from": me, "to": call.to, "data": f"0x{call.data.hex()}", "gas": "0x7a1200"}
    hash_ = str(anvil.ask("eth_sendTransaction", order))
    while (receipt := anvil.ask("eth_getTransactionReceipt", hash_)) is None:
        continue
    assert receipt["status"] == "0x1", call.label
    return hash_


async def everything(w3: Any, deployment: Deployment, me: Address, hash_: str) -> list[Any]:
    """One answer of each shape."""
    eth, token = w3.eth, deployed(w3, deployment, "AtollToken")
    receipt = await eth.get_transaction_receipt(hash_)
    number = receipt["blockNumber"]
    return [
        await eth.chain_id,
        await eth.block_number,
        await eth.get_balance(me),
        await eth.get_transaction_count(me),
        await eth.get_code(token.address),
        await eth.get_storage_at(token.address, 0),
        await eth.get_block("latest"),
        await eth.get_block(number, full_transactions=True),
        await eth.get_block((await eth.get_block(number))["hash"]),
        await eth.get_block_receipts(number),
        await eth.get_transaction(hash_),
        receipt,
        await eth.fee_history(2, "latest", [50]),
        await eth.estimate_gas({"from": me, "to": SOMEONE, "value": 1}),
        await token.functions.balanceOf(me).call(),
        await token.events.Transfer.get_logs(from_block=number, to_block=number),
        token.events.Transfer().process_receipt(receipt),
    ]


@pytest.mark.parametrize("fault", [*FAULTS, *TROUBLE, *BY_STATUS])
async def test_a_second_endpoint_gives_the_same_answers(
    anvil: Anvil, deployment: Deployment, accounts: list[LocalAccount], fault: str
) -> None:
    me = Address(accounts[1].address)
    async with faulty_rpc(anvil.url, 0) as proxy:
        chain = await AtollChain.connect([proxy.url, anvil.url], deployment)
        transfer = sent(anvil, Address(accounts[0].address), chain.calls.transfer(SOMEONE, 5))
        w3 = web3_over(chain.provider)
        expected = await everything(w3, deployment, me, transfer)
        proxy.rate, proxy.only = 1.0, (fault,)
        assert await everything(w3, deployment, me, transfer) == expected
        await chain.close()
    assert proxy.counts.total() > 0


@pytest.mark.parametrize("fault", [*FAULTS, *TROUBLE, *BY_STATUS])
async def test_alone_it_is_one_error(anvil: Anvil, deployment: Deployment, fault: str) -> None:
    async with faulty_rpc(anvil.url, 0) as proxy:
        chain = await AtollChain.connect(proxy.url, deployment)
        w3, token = web3_over(chain.provider), deployment.addresses["AtollToken"]
        proxy.rate, proxy.only = 1.0, (fault,)
        questions: list[Callable[[], Awaitable[Any]]] = [
            lambda: w3.eth.block_number,
            lambda: w3.eth.get_block("latest"),
            lambda: w3.eth.get_balance(SOMEONE),
            lambda: w3.eth.get_code(token),
            lambda: w3.eth.estimate_gas({"to": SOMEONE}),
            lambda: deployed(w3, deployment, "AtollToken").functions.totalSupply().call(),
        ]
        for question in questions:
            with pytest.raises(RpcUnavailable):
                await question()
        assert not await w3.is_connected()
        proxy.rate = 0.0
        assert await w3.is_connected()
        assert await w3.eth.block_number == anvil.height()
        await chain.close()


async def test_a_client_s_web3_takes_whatever_an_endpoint_says(
    anvil: Anvil, deployment: Deployment, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    """Eight clients, since each asks who once answered wrongly last."""
    me, chain = Address(accounts[0].address), await AtollChain.connect(anvil.url, deployment)
    transfer = sent(anvil, me, chain.calls.transfer(SOMEONE, 5))
    expected = await everything(web3_over(chain.provider), deployment, me, transfer)
    await chain.close()
    config = ClientConfig(home=tmp_path)
    async with faulty_rpc(anvil.url, 0) as proxy:
        proxy.rate, proxy.only = 0.5, (*FAULTS, *TROUBLE, *BY_STATUS)
        for _ in range(8):
            async with Client([proxy.url, anvil.url], deployment, accounts[0], config) as client:
                assert await everything(client.web3, deployment, me, transfer) == expected
                balance = client.contract("AtollToken").functions.balanceOf(SOMEONE)
                assert await balance.call() == 5
    assert len(proxy.counts) > 4


async def test_nulls_are_nulls_errors_keep_their_codes_and_reverts_their_data(
    chain: AtollChain, anvil: Anvil
) -> None:
    w3, nothing = web3_over(chain.provider), "0x" + "11" * 32
    with pytest.raises(BlockNotFound):
        await w3.eth.get_block(anvil.height() + 100)
    for question in (w3.eth.get_transaction, w3.eth.get_transaction_receipt):
        with pytest.raises(TransactionNotFound):
            await question(nothing)
    rounds = deployed(w3, chain.deployment, "Rounds")
    with pytest.raises(ContractCustomError) as reverted:
        await rounds.functions.state(99).call()
    assert decode_revert(bytes.fromhex(str(reverted.value.data)[2:])).args == (99,)
    raw = signed(Account.create(), 0)
    with pytest.raises(RuntimeError) as said:
        anvil.ask("eth_sendRawTransaction", f"0x{raw.hex()}")
    code = int(str(said.value).split("'code': ")[1].split(",")[0])
    with pytest.raises(Web3RPCError) as refused:
        await w3.eth.send_raw_transaction(raw)
    response = refused.value.rpc_response
    assert response is not None and response["error"]["code"] == code
    assert "nsufficient funds" in response["error"]["message"]


def signed(account: LocalAccount, nonce: int) -> bytes:
    fees = {"maxFeePerGas": 10**10, "maxPriorityFeePerGas": 1, "gas": 21_000, "chainId": 31337}
    order = {"to": SOMEONE, "value": 1, "nonce": nonce, "data": b"", **fees}
    return bytes(account.sign_transaction(order).raw_transaction)


@pytest.mark.parametrize("fault", [*FAULTS, *TROUBLE])
async def test_what_is_sent_and_not_confirmed_was_sent(
    anvil: Anvil, deployment: Deployment, accounts: list[LocalAccount], fault: str
) -> None:
    """The first endpoint takes it and says so wrongly; the next one has it in a block."""
    async with faulty_rpc(anvil.url, 0) as proxy:
        chain = await AtollChain.connect([proxy.url, anvil.url], deployment)
        w3 = web3_over(chain.provider)
        proxy.rate, proxy.only = 1.0, (fault,)
        hash_ = await w3.eth.send_raw_transaction(signed(accounts[1], 0))
        assert (await w3.eth.wait_for_transaction_receipt(hash_))["status"] == 1
        await chain.close()
    assert anvil.ask("eth_getBalance", SOMEONE, "latest") == "0x1"


async def test_what_hangs_on_one_endpoint_is_not_passed_on(chain: AtollChain) -> None:
    w3 = web3_over(chain.provider)
    for question in (w3.eth.filter("latest"), w3.eth.send_transaction({"to": SOMEONE, "value": 1})):
        with pytest.raises(MethodUnavailable):
            await question


async def test_a_client_has_web3_and_its_network_s_contracts(
    anvil: Anvil, deployment: Deployment, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    client = Client(anvil.url, deployment, accounts[0], ClientConfig(home=tmp_path))
    with pytest.raises(ConfigError, match="not open"):
        client.contract("AtollToken")
    async with client:
        assert client.web3 is client.web3
        assert await client.web3.eth.chain_id == deployment.chain_id
        balance = client.contract("AtollToken").functions.balanceOf(client.address)
        assert await balance.call() == await client.chain.token_balance(client.address)
        with pytest.raises(ConfigError, match="no contract"):
            client.contract("Token")


async def test_without_the_extra_the_error_names_it(
    chain: AtollChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "web3", None)
    with pytest.raises(ConfigError) as missing:
        web3_over(chain.provider)
    assert missing.value.next_step == "pip install 'atoll[web3]'"


async def test_a_call_that_nobody_can_pay_is_refused_and_no_trouble(
    anvil: Anvil, deployment: Deployment
) -> None:
    poor = says("eth_estimateGas", -32000, "insufficient funds for gas * price + value")
    async with altered(anvil.url, poor) as url:
        chain = await AtollChain.connect(url, deployment)
        with pytest.raises(Web3RPCError, match="insufficient funds for gas"):
            await web3_over(chain.provider).eth.estimate_gas({"to": SOMEONE, "value": 1})
        assert chain.provider.useless_answers == 0
        await chain.close()
