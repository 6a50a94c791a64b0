"""A node whose stake and pay belong to a key kept elsewhere: by commands, on a real chain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.chain.test_account_cli import config_of, has, pass_time, told
from tests.integration.chain.test_job_cli import Submitted, submitted

from atoll.chain.contracts import AtollChain
from atoll.chain.decode import decode_log
from atoll.errors import ConfigError, TransactionFailed
from atoll.protocol.owners import Ownership, owners_of, ownership_of
from atoll.protocol.types import TOKEN, Address, Role
from atoll.service.doctor.chain_checks import check_chain
from atoll.service.doctor.findings import Finding
from atoll.service.doctor.subject import Subject

__all__ = ["submitted"]
THIEF = Address("0x000000000000000000000000000000000007413f")
WALLET = Address("0x00000000000000000000000000000000000A7011")


@dataclass
class Owned:
    """A provider that earned a round's pay, and a key of its owner's in a folder of its own."""

    submitted: Submitted
    config: Path
    hot: Address
    cold: Address
    keystore: str
    earned: int
    bond: int

    def owner(self, *command: object) -> Any:
        """What a command prints that the owner gives, on a machine of its own."""
        own = ("--keystore", self.keystore, "--home", self.submitted.folder / "cold-home")
        return told(*command, "--node", self.hot, *own)

    def node(self, *command: object) -> Any:
        """What one prints that is given with the node's key, by its operator or by a thief."""
        return told(*command, "--config", self.config)

    def finding(self, owner: str | None = None) -> Finding:
        """What `atoll doctor` says of whose the money is."""
        folder = self.config.parent
        (key,) = (folder / "keys").glob("*.json")
        deployment = folder / "deployment.json"
        subject = Subject((self.submitted.anvil.url,), deployment, key, owner=owner)
        (found,) = (f for f in asyncio.run(check_chain(subject)) if f.name == "owner")
        return found


@pytest.fixture
def owned(submitted: Submitted) -> Iterator[Owned]:
    manifest = asyncio.run(submitted.until_settled())
    asyncio.run(submitted.audit(manifest))
    made = told("keys", "new", "--folder", submitted.folder / "cold")
    submitted.anvil.ask("anvil_setBalance", made["address"], hex(10**18))
    config, terms = config_of(submitted, 1, "provider"), manifest.terms
    hot = Address(submitted.accounts[1].address)
    money = (terms.segments * terms.segment_pay, terms.provider_bond)
    yield Owned(submitted, config, hot, made["address"], made["keystore"], *money)


def handed_over(owned: Owned) -> None:
    """From the key that works to the owner's, by commands."""
    assert owned.node("stake", "owner", "propose", owned.cold)["proposed_owner"] == owned.cold
    done = owned.owner("stake", "owner", "accept")
    assert (done["owner"], done["payee"]) == (owned.cold, owned.cold)
    assert owned.owner("stake", "owner", "accept") == done  # once


def test_a_stolen_key_takes_nothing_and_the_owner_has_stake_and_pay(owned: Owned) -> None:
    handed_over(owned)
    before = has(owned.hot, owned.submitted)
    asyncio.run(check_refused(owned))
    for command in (
        ("stake", "withdraw"),
        ("stake", "owner", "propose", THIEF),
        ("stake", "owner", "propose", owned.hot),
        ("stake", "owner", "reward", THIEF),
    ):
        with pytest.raises(ConfigError, match=f"belongs to {owned.cold}"):
            owned.node(*command)
    with pytest.raises(ConfigError, match="proposed is nobody"):
        owned.node("stake", "owner", "accept")

    paid = owned.node("claim")  # which the thief may: it pays the owner
    assert (paid["claimed_wei"], paid["payee"]) == (str(owned.earned), owned.cold)
    assert has(owned.cold, owned.submitted) == owned.earned
    assert owned.node("earnings")["jobs"][0]["faults"] == []

    bond = str(owned.bond)
    first = owned.owner("stake", "withdraw", "--as", "provider")
    assert (first["released_wei"], first["unbonded_wei"]) == (bond, bond)
    newest = owned.submitted.anvil.ask("eth_getBlockByNumber", "latest", False)
    pass_time(owned.submitted, first["again_at"] - int(newest["timestamp"], 16))
    asyncio.run(check_refused(owned))
    last = owned.owner("stake", "withdraw", "--as", "provider")
    assert (last["taken_wei"], last["again_at"]) == (bond, None)
    assert has(owned.cold, owned.submitted) == owned.earned + owned.bond
    assert (has(owned.hot, owned.submitted), has(THIEF, owned.submitted)) == (before, 0)


async def check_refused(owned: Owned) -> None:
    """Everything that moves money, by the node's key and by a stranger, as the contracts see it."""
    chain = await AtollChain.connect(owned.submitted.anvil.url, owned.submitted.deployment)
    calls, role = chain.calls, Role.PROVIDER
    for thief in (owned.hot, THIEF):
        for call in (
            calls.unbond(owned.hot, role, 1),
            *(calls.stakes_withdraw(owned.hot, role, number) for number in range(3)),
            calls.deposit_for(owned.hot, role, 1),
            calls.propose_owner(owned.hot, thief),
            calls.accept_owner(owned.hot),
            calls.set_payee(owned.hot, thief),
        ):
            with pytest.raises(TransactionFailed, match=r"Owner|OnlyProposed"):
                await chain.simulate(call, thief)
    await chain.close()


def test_an_owner_adds_stake_and_names_a_wallet(owned: Owned) -> None:
    submitter = Address(owned.submitted.accounts[0].address)
    with pytest.raises(ConfigError, match=f"belongs to {owned.hot}"):
        told("stake", "add", "1", "--as", "provider", "--node", owned.hot)
    with pytest.raises(ConfigError, match="proposed is nobody"):
        told("stake", "owner", "accept", "--node", owned.hot)
    owned.node("stake", "owner", "propose", submitter)
    told("stake", "owner", "accept", "--node", owned.hot)
    (stake, _) = told("stake", "show", "--node", owned.hot)["stakes"]
    added = told("stake", "add", "2.5", "--as", "provider", "--node", owned.hot)
    assert added["owner"] == submitter
    assert int(added["stakes"][0]["active_wei"]) - int(stake["active_wei"]) == 25 * TOKEN // 10
    named = told("stake", "owner", "reward", WALLET, "--node", owned.hot)
    assert (named["owner"], named["payee"]) == (submitter, WALLET)
    assert told("claim", "--node", owned.hot)["claimed_wei"] == str(owned.earned)
    assert has(WALLET, owned.submitted) == owned.earned
    with pytest.raises(ConfigError, match="zero address"):
        told("stake", "owner", "reward", "0x" + "00" * 20, "--node", owned.hot)
    with pytest.raises(ConfigError, match="no address"):
        told("stake", "owner", "propose", WALLET.lower()[:-1], "--node", owned.hot)
    assert asyncio.run(folded_and_read(owned)) == Ownership(submitter, WALLET)


async def folded_and_read(owned: Owned) -> Ownership:
    """What the chain says, which is what its events come to."""
    chain = await AtollChain.connect(owned.submitted.anvil.url, owned.submitted.deployment)
    said = await chain.ownership(owned.hot)
    logs = await chain.logs(0, (await chain.head()).number)
    await chain.close()
    events = [event for log in logs if (event := decode_log(log)) is not None]
    assert ownership_of(owners_of(events), owned.hot) == said
    return said


def test_doctor_says_what_the_key_on_this_machine_could_lose(owned: Owned) -> None:
    found = owned.finding()
    assert (found.level, owned.hot in found.next_step) == ("warning", True)
    assert f"can take {owned.bond / TOKEN:g} staked tokens" in found.text
    wanted = owned.finding(owned.cold)
    assert (wanted.level, "propose" in wanted.next_step) == ("failure", True)
    owned.node("stake", "owner", "propose", owned.cold)
    asked = owned.finding(owned.cold)
    assert asked.next_step.startswith(f"`atoll stake owner accept --node {owned.hot}`")
    owned.owner("stake", "owner", "accept")
    assert owned.finding(owned.cold.lower()).level == "ok"
    assert owned.cold in owned.finding().text


def test_a_node_names_its_delegate_and_takes_it_back(owned: Owned) -> None:
    """By its own key, whoever owns it; the same twice, and one that was named before, too."""

    for delegate in (WALLET, WALLET, THIEF, WALLET, Address("0x" + "00" * 20)):
        done = owned.node("judge", "delegate", delegate)
        assert (done["account"], done["delegate"].lower()) == (owned.hot, delegate.lower())
    with pytest.raises(ConfigError, match="names its delegate itself"):
        owned.owner("judge", "delegate", THIEF)
