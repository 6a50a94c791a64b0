"""Gas and tokens for the local network's accounts, from the chain's one rich account."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atoll.chain.contract_calls import Calls
from atoll.chain.deploy import DeployConfig, deploy
from atoll.chain.deployment import Deployment
from atoll.chain.keys import account_of
from atoll.errors import TransactionFailed
from atoll.protocol.types import TOKEN, Address
from atoll_devnet.processes.chain import FAUCET_KEY, Endpoint

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

GAS_MONEY = 100 * TOKEN
TRANSFER_GAS = 21_000
TOKEN_GAS = 100_000
FEE = 100 * 10**9
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Grant:
    """What one account starts with; `tokens` in units."""

    account: Address
    tokens: int


def faucet() -> LocalAccount:
    """The account that every development chain makes rich."""
    return account_of(FAUCET_KEY)


async def deploy_contracts(chain: Endpoint, config: DeployConfig | None = None) -> Deployment:
    """A new network; its whole token supply is the faucet's. Raises what `deploy` raises."""
    return await deploy(chain.rpc_url, faucet(), config)


async def fund(chain: Endpoint, deployment: Deployment, grants: Sequence[Grant]) -> None:
    """Sends every account its gas money and tokens; returns when blocks hold all of it.

    Raises:
        TransactionFailed: the chain refused one of the transfers.
    """
    account, calls = faucet(), Calls(deployment)
    nonce = int(await chain.rpc("eth_getTransactionCount", account.address, "latest"), 16)
    sent: list[str] = []
    for grant in grants:
        tokens = calls.transfer(grant.account, grant.tokens)
        for to, value, data, gas in (
            (grant.account, GAS_MONEY, b"", TRANSFER_GAS),
            (tokens.to, 0, tokens.data, TOKEN_GAS),
        ):
            transaction: dict[str, Any] = {
                "type": 2,
                "chainId": chain.chain_id,
                "nonce": nonce + len(sent),
                "to": to,
                "value": value,
                "data": data,
                "gas": gas,
                "maxFeePerGas": FEE,
                "maxPriorityFeePerGas": 10**9,
            }
            raw = account.sign_transaction(transaction).raw_transaction
            sent.append(await chain.rpc("eth_sendRawTransaction", f"0x{bytes(raw).hex()}"))
    for tx_hash in sent:
        await _succeeded(chain, tx_hash)


async def _succeeded(chain: Endpoint, tx_hash: str) -> None:
    receipt = await chain.rpc("eth_getTransactionReceipt", tx_hash)
    while receipt is None or receipt.get("blockNumber") is None:
        await asyncio.sleep(POLL_SECONDS)
        receipt = await chain.rpc("eth_getTransactionReceipt", tx_hash)
    if int(receipt["status"], 16) != 1:
        raise TransactionFailed(f"a transfer to the network's accounts reverted ({tx_hash})")
