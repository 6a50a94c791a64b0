"""`atoll network pause | resume | propose | apply | owner`, as a network's owner gives them."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import pytest
from tests.integration.chain.benches import JOB, NUMERICS, PLENTY, answered_here
from tests.integration.chain.conftest import KEYS
from tests.integration.chain.one_round import OneRound, initial_model
from tests.integration.chain.test_account_cli import config_of, pass_time, told
from tests.integration.chain.test_job_cli import PASSWORD, Submitted, submitted
from typer.testing import CliRunner

from atoll import Client
from atoll.chain.contract_views import is_policy
from atoll.chain.contracts import AtollChain
from atoll.chain.default_params import default_params
from atoll.chain.keys import import_key
from atoll.chain.txfile import QUEUE_FILE
from atoll.chain.txqueue import TxQueue
from atoll.cli.governing import OURS
from atoll.cli.main import app
from atoll.errors import AtollError, ConfigError, TransactionFailed
from atoll.job.readable import moment
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import TOKEN, Address

__all__ = ["submitted"]
DELAY = 2 * 86_400
ZERO = "0x" + "00" * 20


def network(*command: object) -> Any:
    """What `atoll network` prints with the owner's key, which asks nothing."""
    return told("network", *command, "--yes")


def spoken(*command: object) -> str:
    """What it prints for a person, on both outputs."""
    done = CliRunner().invoke(app, ["network", *map(str, command)])
    assert done.exception is None, done.output
    return done.output


def stranger(submitted: Submitted, number: int = 1) -> tuple[str, ...]:
    """Options of another of Anvil's keys, with a home of its own."""
    folder = submitted.folder / f"stranger-{number}"
    key = import_key(folder / "keys", KEYS[number], PASSWORD, devnet=True)
    return ("--keystore", str(key.path), "--home", str(folder / "home"))


def clock(submitted: Submitted) -> int:
    newest = submitted.anvil.ask("eth_getBlockByNumber", "latest", False)
    return int(newest["timestamp"], 16)


def transactions(submitted: Submitted, number: int = 0) -> int:
    account = submitted.accounts[number].address
    return int(submitted.anvil.ask("eth_getTransactionCount", account, "latest"), 16)


def test_a_pause_stops_new_jobs_and_only_that(submitted: Submitted) -> None:
    """Behind it members join the job that is open, train it, settle, audit, are paid and leave."""
    assert not told("network", "owner", "show")["paused"]
    manifest = asyncio.run(worked_through_a_pause(submitted))
    asyncio.run(submitted.audit(manifest))
    config = config_of(submitted, 1, "provider")
    paid = told("claim", "--config", config)["claimed_wei"]
    assert paid == str(manifest.terms.segments * manifest.terms.segment_pay)
    first = told("stake", "withdraw", "--config", config)
    assert first["unbonded_wei"] == str(manifest.terms.provider_bond)
    pass_time(submitted, first["again_at"] - clock(submitted))
    assert told("stake", "withdraw", "--config", config)["taken_wei"] == first["unbonded_wei"]
    told("stake", "add", "1", "--as", "verifier")
    assert told("network", "owner", "show")["paused"]

    assert not network("resume")["paused"]
    assert asyncio.run(created(submitted, seed=2)) == 2


async def worked_through_a_pause(submitted: Submitted) -> Manifest:
    """A job that was created before the pause and settles in it; another one is refused."""
    async with client_of(submitted) as client:
        draft = await client.draft(JOB.but(text_of(submitted)), NUMERICS)
        job = await client.submit(draft, max_spend=PLENTY)
    done = await asyncio.to_thread(network, "pause")
    assert done["paused"]
    sent = transactions(submitted)
    assert (await asyncio.to_thread(network, "pause"))["paused"]  # it is so already
    assert transactions(submitted) == sent
    with pytest.raises(ConfigError, match="paused"):
        await created(submitted, seed=1)
    assert transactions(submitted) == sent
    async with client_of(submitted) as client:
        job = client.attach(job.id)
        manifest, members = await job.manifest(), await submitted.members(job.id)
        await members.join(client.address)
        await members.work(manifest)
        members.settle(await job.view(), initial_model(manifest, client.store))
        await check_contract_refuses(members, manifest)
        await members.chain.close()
    return manifest


async def check_contract_refuses(members: OneRound, manifest: Manifest) -> None:
    """A program of another make than ours is refused, too."""
    calls, policy = members.chain.calls, members.chain.deployment.addresses["EcdsaPolicy"]
    creation = calls.create(manifest.digest(), b"", manifest.terms, policy, PLENTY)
    with pytest.raises(TransactionFailed, match="Paused"):
        await members.chain.simulate(creation, members.provider)


def client_of(submitted: Submitted) -> Client:
    urls, account = submitted.anvil.url, submitted.accounts[0]
    return Client(urls, submitted.deployment, account, submitted.home, ask=answered_here)


def text_of(submitted: Submitted) -> dict[str, Any]:
    return {"data.paths": [str(submitted.folder / "text")]}


async def created(submitted: Submitted, *, seed: int) -> int:
    """The number of a new job; each seed is another one."""
    async with client_of(submitted) as client:
        job = JOB.but({**text_of(submitted), "init.seed": seed})
        draft = await client.draft(job, NUMERICS)
        return int((await client.submit(draft, max_spend=PLENTY)).id)


def test_parameters_wait_for_the_delay_and_are_read_back(submitted: Submitted) -> None:
    proposed = network("propose", "--set", "min_provider_bond=2.5", "--set", "penalty_bps=200")
    waits = proposed["proposed_params"]
    assert waits["applicable_at"] == clock(submitted) + DELAY
    assert waits["params"]["min_provider_bond"] == str(25 * TOKEN // 10)
    assert proposed["params"]["penalty_bps"] == default_params(31337).penalty_bps
    date = moment(waits["applicable_at"])
    for command in (("network", "apply", "--yes"), ("network", "apply", "--unsigned")):
        with pytest.raises(ConfigError, match=f"applied from {date} on"):
            told(*command)
    text = spoken("show")
    assert f"proposed: parameters, to be applied from {date} on" in text
    assert "min_provider_bond    1 → 2.5" in text

    again = network("propose", "--set", "min_provider_bond=2.5", "--set", "penalty_bps=200")
    assert again == proposed  # the delay does not begin anew
    pass_time(submitted, DELAY)
    assert again["proposed_policy"] is None
    applied = told("network", "apply", "--yes", *stranger(submitted))  # anybody may
    assert applied["params"] == waits["params"]
    assert applied["proposed_params"] is None
    shown = told("network", "show")
    assert shown["configuration"] == applied
    assert shown["parameters"]["Config"]["params"]["minProviderBond"] == str(25 * TOKEN // 10)
    assert "nothing is proposed" in spoken("show")
    with pytest.raises(ConfigError, match="nothing is proposed"):
        network("apply")
    with pytest.raises(ConfigError, match="parameters already"):
        network("propose", "--set", "penalty_bps=200")
    assert told("network", "verify")["ok"]


def test_a_policy_is_proposed_dropped_and_allowed(submitted: Submitted) -> None:
    policy = submitted.deployment.addresses["Game"]
    for wrong, why in ((submitted.accounts[2].address, "no contract"), ("0x12", "no address")):
        with pytest.raises(ConfigError, match=why):
            network("propose", "--policy", wrong)
    with pytest.raises(ConfigError, match="allowed already"):
        network("propose", "--policy", submitted.deployment.addresses["EcdsaPolicy"])
    assert network("propose", "--policy", policy)["proposed_policy"]["policy"] == policy
    assert network("propose", "--drop")["proposed_policy"] is None
    pass_time(submitted, DELAY)
    with pytest.raises(ConfigError, match="nothing is proposed"):
        network("apply")
    network("propose", "--policy", policy)
    pass_time(submitted, DELAY // 2)
    network("propose", "--set", "min_window=5")
    pass_time(submitted, DELAY // 2)
    part = network("apply")  # the policy is due, and the parameters are not
    assert (part["proposed_policy"], part["params"]["min_window"]) == (None, 1)
    assert part["proposed_params"]["params"]["min_window"] == 5
    assert asyncio.run(is_allowed(submitted, policy))
    assert not network("propose", "--forbid", policy)["proposed_policy"]["is_allowed"]
    assert asyncio.run(is_allowed(submitted, policy))
    pass_time(submitted, DELAY)
    network("apply")
    assert not asyncio.run(is_allowed(submitted, policy))
    with pytest.raises(ConfigError, match="is not allowed"):
        network("propose", "--forbid", policy)


async def is_allowed(submitted: Submitted, policy: Address) -> bool:
    chain = await AtollChain.connect(submitted.anvil.url, submitted.deployment)
    allowed = await chain.ask(is_policy(policy))
    await chain.close()
    return allowed


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("propose", "--set", "penalty_bps=1251"), "penalty_bps may be 1 to 1250, not 1251"),
        (("propose", "--set", "penalty_bps=70000"), "penalty_bps: 70000 is less or more"),
        (("propose", "--set", "min_window=-1"), "min_window: -1 is less or more"),
        (
            ("propose", "--set", "min_verifier_bond=2000000000000"),
            "min_verifier_bond may be 0.00000000000000008 to 1000000000000, not 2000000000000",
        ),
        (("propose", "--set", "owner=1"), "no parameter 'owner'"),
        (("propose",), "what is proposed"),
        (("propose", "--drop", "--set", "min_window=5"), "what is proposed"),
        (("owner", "propose", "0x12"), "no address"),
    ],
)
def test_what_the_contract_would_refuse_is_refused_in_words(
    submitted: Submitted, command: tuple[str, ...], why: str
) -> None:
    before = transactions(submitted)
    with pytest.raises(AtollError, match=why):
        network(*command)
    assert transactions(submitted) == before


def test_nobody_but_the_owner_may(submitted: Submitted) -> None:
    options, owner = stranger(submitted), submitted.accounts[0].address
    before = transactions(submitted, 1)
    for command in (
        ("pause",),
        ("propose", "--set", "min_window=5"),
        ("propose", "--policy", submitted.deployment.addresses["Game"]),
        ("owner", "propose", submitted.accounts[1].address),
    ):
        with pytest.raises(ConfigError, match=f"the network belongs to {owner}"):
            network(*command, *options)
    with pytest.raises(ConfigError, match=f"belongs to {owner} and is offered to nobody"):
        network("owner", "accept", *options)
    with pytest.raises(ConfigError, match="nobody to ask whether to pause the network"):
        told("network", "pause")
    assert transactions(submitted, 1) == before


def test_a_network_changes_hands_in_two_steps(submitted: Submitted) -> None:
    options, (old, new) = stranger(submitted), (a.address for a in submitted.accounts[:2])
    offered = network("owner", "propose", new)
    assert (offered["owner"], offered["proposed_owner"]) == (old, new)
    assert network("owner", "propose", ZERO)["proposed_owner"] is None
    with pytest.raises(ConfigError, match="offered to nobody"):
        network("owner", "accept", *options)
    network("owner", "propose", new)
    assert network("owner", "accept", *options)["owner"] == new
    assert network("owner", "accept", *options)["proposed_owner"] is None  # it is so already
    with pytest.raises(ConfigError, match=f"the network belongs to {new}"):
        network("pause")
    assert network("pause", *options)["paused"]


def test_what_was_agreed_to_before_and_is_in_no_block_yet_comes_first(
    submitted: Submitted,
) -> None:
    """Or `resume` would find nothing paused, and the pause would come behind it."""
    asyncio.run(cut_off_in_a_pause(submitted))
    assert not told("network", "owner", "show")["paused"]
    before = transactions(submitted)
    assert not network("resume")["paused"]
    assert transactions(submitted) == before + 2


async def cut_off_in_a_pause(submitted: Submitted) -> None:
    """What a process leaves that is killed behind the question: queued, and never sent."""
    async with client_of(submitted) as client:
        path = submitted.folder / "home" / QUEUE_FILE
        with closing(TxQueue(client.chain, submitted.accounts[0], path)) as queue:
            await queue.submit(f"{OURS}setPaused:0", client.chain.calls.set_paused(True))


def test_a_wallet_that_has_the_key_sends_what_is_printed(
    submitted: Submitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No keystore is on this machine; Anvil is the wallet."""
    monkeypatch.delenv("ATOLL_KEYSTORE")
    monkeypatch.delenv("ATOLL_PASSWORD_FILE")
    with pytest.raises(ConfigError, match="needs a key to sign with"):
        network("pause")
    owner, new = (account.address for account in submitted.accounts[:2])
    for command, sender in (
        (("propose", "--set", "min_window=7"), owner),
        (("pause",), owner),
        (("owner", "propose", new), owner),
        (("owner", "accept"), new),
    ):
        (each,) = told("network", *command, "--unsigned")["transactions"]
        assert (each["from"], each["value"]) == (sender, "0")
        assert each["chain_id"] == submitted.deployment.chain_id
        sent = {name: each[name] for name in ("from", "to", "data")}
        submitted.anvil.ask("eth_sendTransaction", sent)
        if command != ("owner", "accept"):
            assert told("network", *command, "--unsigned")["transactions"] == []
    with pytest.raises(ConfigError, match=f"belongs to {new}, and is offered to nobody"):
        told("network", "owner", "accept", "--unsigned")
    now = told("network", "owner", "show")
    assert (now["owner"], now["paused"]) == (new, True)
    assert now["proposed_params"]["params"]["min_window"] == 7


def test_what_is_about_to_be_done_is_said(submitted: Submitted) -> None:
    said = spoken("pause", "--yes")
    assert "no new job is created; open jobs, claims, refunds and stake go on as before" in said
    assert "no new one is created: the network is paused" in said
    said = spoken("propose", "--set", "min_window=5", "--yes")
    assert "min_window           1 → 5" in said and "anybody can apply it from about" in said
    said = spoken("propose", "--set", "min_window=6", "--yes")
    assert "it takes the place of what can be applied from" in said
    assert "data 0x" in spoken("resume", "--unsigned")
