"""A real Anvil with the contracts on it, fresh for each test."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount
from tests.integration.chain.benches import Bench, answered_here, config
from tests.integration.chain.local_anvil import Anvil, start_anvil, stop
from tests.integration.chain.queues import EAGER, running

from atoll import Client
from atoll.chain.contracts import AtollChain
from atoll.chain.deploy import deploy
from atoll.chain.deployment import Deployment
from atoll.chain.txqueue import TxQueue
from atoll_devnet.processes.faulty_rpc import FAULTS

KEYS = (
    "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
    "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
    "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
    "0x7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
    "0x47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a",
)
"""Anvil's own accounts: known to everyone, worth nothing."""


@pytest.fixture
def spawn() -> Iterator[Callable[..., Anvil]]:
    """Starts further nodes, with options; they end with the test."""
    nodes: list[Anvil] = []

    def start(*options: str) -> Anvil:
        nodes.append(start_anvil(*options))
        return nodes[-1]

    yield start
    for node in nodes:
        stop(node)


@pytest.fixture
def anvil(spawn: Callable[..., Anvil]) -> Anvil:
    return spawn()


@pytest.fixture
def accounts() -> list[LocalAccount]:
    return [Account.from_key(key) for key in KEYS]


@pytest.fixture
async def deployment(anvil: Anvil, accounts: list[LocalAccount]) -> Deployment:
    return await deploy(anvil.url, accounts[0])


@pytest.fixture
async def chain(anvil: Anvil, deployment: Deployment) -> AsyncIterator[AtollChain]:
    connected = await AtollChain.connect(anvil.url, deployment)
    yield connected
    await connected.close()


def _other_hash(text: str) -> str:
    return text[:-1] + format(int(text[-1], 16) ^ 1, "x")


def _forged(value: Any) -> Any:
    """The same with every block's hash another one, each time the same."""
    if isinstance(value, list):
        return [_forged(each) for each in value]
    if not isinstance(value, dict):
        return value
    of_blocks = {"hash", "parentHash", "blockHash"} if "parentHash" in value else {"blockHash"}
    return {
        name: _other_hash(each) if name in of_blocks else _forged(each)
        for name, each in value.items()
    }


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of an endpoint that shows a chain of its own, in which all fits together."""

    def forged(answer: dict[str, Any]) -> str:
        return json.dumps({**answer, "result": _forged(answer.get("result"))})

    monkeypatch.setitem(FAULTS, "forged", forged)
    return {"rate": 1.0, "only": ("forged",)}


@pytest.fixture
def hider(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of an endpoint that gives every block its true hash and nothing that is in it."""

    def emptied(answer: dict[str, Any]) -> str:
        result = answer.get("result")
        if isinstance(result, dict) and "parentHash" in result:
            result |= {"transactions": []}
        return json.dumps({**answer, "result": [] if isinstance(result, list) else result})

    monkeypatch.setitem(FAULTS, "emptied", emptied)
    return {"rate": 1.0, "only": ("emptied",)}


@pytest.fixture
async def bench(
    anvil: Anvil,
    chain: AtollChain,
    deployment: Deployment,
    accounts: list[LocalAccount],
    tmp_path: Path,
) -> AsyncIterator[Bench]:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 800)
    client = Client(
        anvil.url, deployment, accounts[0], config(tmp_path / "client"), ask=answered_here
    )
    async with client:
        yield Bench(anvil, chain, deployment, accounts, tmp_path, client)


@pytest.fixture
async def queue(
    chain: AtollChain, accounts: list[LocalAccount], tmp_path: Path
) -> AsyncIterator[TxQueue]:
    async with running(TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER)) as started:
        yield started
