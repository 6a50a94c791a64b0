"""What is at a deployment's addresses, as `atoll network verify` and `atoll doctor` say it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount
from tests.integration.chain.conftest import KEYS
from tests.integration.chain.local_anvil import Anvil

from atoll.chain.contracts import AtollChain
from atoll.chain.deploy import DeployConfig, deploy
from atoll.chain.deployment import Deployment
from atoll.chain.inspection import read_parameters, verify_contracts
from atoll.chain.keys import import_key
from atoll.protocol.types import Address
from atoll.service.doctor.chain_checks import DEEP_ENOUGH, check_chain
from atoll.service.doctor.findings import Level
from atoll.service.doctor.subject import Subject
from atoll_devnet.processes.faulty_rpc import faulty_rpc

PASSWORD = "correct horse battery"
NOWHERE = "http://127.0.0.1:9"  # the discard port: nothing listens


async def problems(chain: AtollChain) -> dict[str, tuple[str, ...]]:
    return {c.name: c.problems for c in await verify_contracts(chain) if c.problems}


def moved(chain: AtollChain, name: str, address: Address) -> AtollChain:
    addresses = {**chain.deployment.addresses, name: address}
    return AtollChain(chain.provider.urls, replace(chain.deployment, addresses=addresses))


@pytest.fixture
def subject(anvil: Anvil, deployment: Deployment, tmp_path: Path) -> Subject:
    """The deployer's key on its network."""
    deployment.save(tmp_path / "deployment.json")
    key = import_key(tmp_path / "keys", KEYS[0], PASSWORD, devnet=True)
    return Subject((anvil.url,), tmp_path / "deployment.json", key.path)


async def levels(subject: Subject) -> dict[str, Level]:
    return {finding.name: finding.level for finding in await check_chain(subject)}


async def test_a_fresh_deployment_is_what_the_artefacts_say(chain: AtollChain) -> None:
    checks = await verify_contracts(chain)
    assert {check.name for check in checks} == set(chain.deployment.addresses)
    assert [check for check in checks if check.problems or check.note] == []


async def test_another_owner_and_token_are_no_fault(
    anvil: Anvil, deployment: Deployment, accounts: list[LocalAccount]
) -> None:
    config = DeployConfig(
        token=deployment.addresses["AtollToken"], owner=Address(accounts[2].address)
    )
    other = AtollChain(anvil.url, await deploy(anvil.url, accounts[1], config))
    assert await problems(other) == {}
    await other.close()


async def test_code_that_is_not_there_or_differs_in_one_byte(
    anvil: Anvil, chain: AtollChain
) -> None:
    address = chain.deployment.addresses["Jobs"]
    code = bytearray.fromhex(anvil.ask("eth_getCode", address, "latest")[2:])
    code[10] ^= 1
    anvil.ask("anvil_setCode", address, f"0x{code.hex()}")
    assert await problems(chain) == {"Jobs": ("its code is not this version's",)}
    nobody = moved(chain, "Jobs", Address("0x" + "11" * 20))
    found = await problems(nobody)
    assert found["Jobs"] == ("there is no code at its address",)
    await nobody.close()


async def test_a_contract_of_another_deployment_is_named(
    anvil: Anvil, chain: AtollChain, accounts: list[LocalAccount]
) -> None:
    other = await deploy(anvil.url, accounts[1])
    mixed = moved(chain, "Stakes", other.addresses["Stakes"])
    found = await problems(mixed)
    assert any("not of this deployment" in text for text in found["Stakes"])
    assert any("stakes is" in text for text in found["Members"])
    await mixed.close()


async def test_parameters_are_read_by_name(chain: AtollChain, accounts: list[LocalAccount]) -> None:
    found = await read_parameters(chain)
    assert found["Config"]["owner"] == accounts[0].address
    assert found["Config"]["params"]["minProviderBond"] == str(10**18)
    assert found["Config"]["unbondingDelay"] == 7 * 86400
    assert found["Jobs"]["jobCount"] == 0


async def test_doctor_finds_a_good_network_good(subject: Subject) -> None:
    second = replace(subject, rpc_urls=subject.rpc_urls * 2)
    assert set((await levels(second)).values()) == {Level.OK}
    assert (await levels(subject))["endpoints"] is Level.WARNING  # there is only one


async def test_doctor_tells_a_dead_endpoint_from_a_wrong_chain(
    subject: Subject, spawn: Callable[..., Anvil]
) -> None:
    dead = replace(subject, rpc_urls=(NOWHERE,))
    assert (await levels(dead))["endpoint"] is Level.FAILURE
    other = spawn("--chain-id", "77")
    wrong = replace(subject, rpc_urls=(*subject.rpc_urls, other.url))
    assert (await levels(wrong))["chain id"] is Level.FAILURE


@pytest.mark.parametrize("lie", ["liar", "hider"])
async def test_doctor_names_endpoints_that_show_two_chains(
    subject: Subject,
    anvil: Anvil,
    accounts: list[LocalAccount],
    request: pytest.FixtureRequest,
    lie: str,
) -> None:
    liar: dict[str, Any] = request.getfixturevalue(lie)
    sent = anvil.ask(
        "eth_sendTransaction", {"from": accounts[0].address, "to": accounts[1].address}
    )
    while anvil.ask("eth_getTransactionReceipt", sent) is None:
        continue
    anvil.mine(DEEP_ENOUGH)
    async with faulty_rpc(anvil.url, 0) as proxy:
        both = replace(subject, rpc_urls=(*subject.rpc_urls, proxy.url))
        assert (await levels(both))["agreement"] is Level.OK
    async with faulty_rpc(anvil.url, 0, **liar) as proxy:
        both = replace(subject, rpc_urls=(*subject.rpc_urls, proxy.url))
        found = {finding.name: finding for finding in await check_chain(both)}
    assert found["agreement"].level is Level.FAILURE
    assert proxy.url in found["agreement"].text
    assert anvil.url in found["agreement"].text


async def test_doctor_names_missing_code(
    subject: Subject, anvil: Anvil, deployment: Deployment
) -> None:
    anvil.ask("anvil_setCode", deployment.addresses["Rounds"], "0x")
    found = {finding.name: finding for finding in await check_chain(subject)}
    assert found["contracts"].level is Level.FAILURE
    assert "Rounds" in found["contracts"].text


async def test_doctor_names_an_empty_purse(subject: Subject, tmp_path: Path) -> None:
    key = import_key(tmp_path / "poor", bytes(Account.create().key).hex(), PASSWORD, devnet=True)
    found = await levels(replace(subject, keystore=key.path))
    assert (found["gas"], found["bond"]) == (Level.FAILURE, Level.FAILURE)


async def test_doctor_names_a_clock_that_is_behind(
    subject: Subject, anvil: Anvil, spawn: Callable[..., Anvil]
) -> None:
    """Not behind a chain for development, whose time is moved on where windows are skipped."""
    other = spawn("--chain-id", "77")
    for chain in (anvil, other):
        chain.ask("evm_increaseTime", 3600)
        chain.mine()
    assert (await levels(subject))["clock"] is Level.OK
    elsewhere = replace(subject, rpc_urls=(other.url,), deployment=None)
    assert (await levels(elsewhere))["clock"] is Level.FAILURE
