"""A provider that is paid: from a settled round to tokens in its wallet, by commands alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.chain.conftest import KEYS
from tests.integration.chain.test_job_cli import PASSWORD, Submitted, submitted
from typer.testing import CliRunner

from atoll.chain.contracts import AtollChain
from atoll.chain.keys import import_key
from atoll.cli.main import app
from atoll.cli.services import Choices, write_config
from atoll.errors import ConfigError, InsufficientFunds
from atoll.protocol.types import Address

__all__ = ["submitted"]


def told(*arguments: object) -> Any:
    """The one document that a command prints."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    (line,) = done.stdout.splitlines()
    return json.loads(line)


def config_of(submitted: Submitted, number: int, role: str) -> Path:
    """A member's folder with one of Anvil's keys."""
    folder = submitted.folder / f"{role}-{number}"
    (folder / "keys").mkdir(parents=True, mode=0o700)
    password = folder / "password"
    password.touch(mode=0o600)
    password.write_text(PASSWORD)
    key = import_key(folder / "keys", KEYS[number], PASSWORD, devnet=True)
    deployment = submitted.folder / "deployment.json"
    choices = Choices(role, submitted.anvil.url, deployment, password, key.path)
    return Path(write_config(folder, choices)["config"])


def pass_time(submitted: Submitted, seconds: int) -> None:
    submitted.anvil.ask("evm_increaseTime", seconds)
    submitted.anvil.mine(2)


def test_pay_and_stake_end_in_the_wallet(submitted: Submitted) -> None:
    manifest = asyncio.run(submitted.until_settled())
    terms, config = manifest.terms, config_of(submitted, 1, "provider")
    earned = terms.segments * terms.segment_pay

    (job,) = told("earnings", "--config", config)["jobs"]
    assert (job["pending_wei"], job["due_wei"], job["faults"]) == (str(earned), "0", [])
    early = told("claim", "--config", config)
    assert (early["claimed"], early["later"][0]["wei"]) == ([], str(earned))
    (mine, _) = told("stake", "show", "--config", config)["stakes"]
    assert mine["locked_wei"] == str(terms.provider_bond)
    assert "the window of round 0, its last, is open" in mine["bonds"][0]["text"]

    asyncio.run(submitted.audit(manifest))
    (job,) = told("earnings", "--config", config, "--job", 1)["jobs"]
    assert job["due_wei"] == str(earned)
    paid = told("claim", "--config", config)
    assert (paid["claimed_wei"], paid["wallet_wei"]) == (str(earned), str(earned))
    assert told("claim", "--config", config)["claimed"] == []
    found = told("earnings", "--config", config)
    assert (found["jobs"][0]["paid_wei"], found["jobs"][0]["faults"]) == (str(earned), [])
    assert found["gas"]["transactions"] == 1
    assert found["gas"]["unknown_transactions"] > 0

    first = told("stake", "withdraw", "--config", config)
    bond = str(terms.provider_bond)
    assert (first["released_wei"], first["unbonded_wei"], first["taken_wei"]) == (bond, bond, "0")
    again = told("stake", "withdraw", "--config", config)
    assert (again["unbonded_wei"], again["again_at"]) == ("0", first["again_at"])
    newest = submitted.anvil.ask("eth_getBlockByNumber", "latest", False)
    pass_time(submitted, first["again_at"] - int(newest["timestamp"], 16))
    last = told("stake", "withdraw", "--config", config)
    assert (last["taken_wei"], last["again_at"]) == (bond, None)
    assert int(last["wallet_wei"]) == earned + terms.provider_bond
    end = told("earnings", "--config", config)
    lies, beside = end["lies"], end["beside"]
    staked = sum(int(one["active_wei"]) + int(one["unbonding_wei"]) for one in lies["stakes"])
    wallet = int(lies["wallets_wei"][lies["payee"]])
    assert (wallet, staked, beside["faults"]) == (earned + terms.provider_bond, 0, [])
    net = wallet + staked - int(beside["deposited_wei"])
    assert net == int(end["jobs"][0]["paid_wei"]) + int(beside["won_wei"]) - int(
        beside["slashed_wei"]
    )
    assert told("stake", "withdraw", "--config", config)["taken_wei"] == "0"


def test_stake_is_added_from_the_wallet(submitted: Submitted) -> None:
    config = config_of(submitted, 0, "verifier")
    (_, before) = told("stake", "show", "--config", config)["stakes"]
    (_, after) = told("stake", "add", "12.5", "--config", config)["stakes"]
    assert int(after["free_wei"]) - int(before["free_wei"]) == 125 * 10**17
    (_, twice) = told("stake", "add", "12.5", "--config", config)["stakes"]
    assert int(twice["active_wei"]) - int(before["active_wei"]) == 25 * 10**18
    with pytest.raises(InsufficientFunds, match="are to be staked"):
        told("stake", "add", "5000000000", "--config", config)
    part = told("stake", "withdraw", "10", "--config", config)
    assert (part["unbonded_wei"], part["lacking_wei"]) == (str(10**19), "0")
    same = told("stake", "withdraw", "10", "--config", config)
    assert same["unbonded_wei"] == "0"
    too_much = told("stake", "withdraw", "30", "--config", config)
    assert (too_much["unbonded_wei"], too_much["lacking_wei"]) == (
        str(15 * 10**18),
        str(5 * 10**18),
    )


def test_a_keystore_alone_is_an_account_too(submitted: Submitted) -> None:
    """The environment names the submitter's."""
    assert told("stake", "show")["wallet_wei"] == str(10**27)
    assert told("earnings")["jobs"] == []
    with pytest.raises(ConfigError, match="a provider's or a verifier's"):
        told("stake", "add", "1")
    (stake, _) = told("stake", "add", "1", "--as", "provider")["stakes"]
    assert stake["free_wei"] == str(10**18)


def test_accounts_are_brought_up_to_an_amount_once(submitted: Submitted) -> None:
    folder = config_of(submitted, 2, "verifier").parent
    fresh = "0x00000000000000000000000000000000000A7011"
    amounts = ("--tokens", "500", "--coin", "2")
    there, new = told("network", "fund", folder, fresh, *amounts)
    assert (there["tokens_wei"], there["coin_wei"]) == (str(500 * 10**18), "0")
    assert (new["address"], new["coin_wei"]) == (fresh, str(2 * 10**18))
    again = told("network", "fund", folder, fresh, *amounts)
    assert {one["tokens_wei"] for one in again} == {one["coin_wei"] for one in again} == {"0"}
    told("stake", "add", "500", "--config", folder / "config.toml")  # it has nothing, as before
    (more,) = told("network", "fund", folder, *amounts)
    assert more["tokens_wei"] == there["tokens_wei"] == str(has(more["address"], submitted))
    with pytest.raises(InsufficientFunds, match="are lacking elsewhere"):
        told("network", "fund", fresh, "--tokens", "5000000000")
    with pytest.raises(ConfigError, match="no address"):
        told("network", "fund", "nobody")


WALLET = "0x00000000000000000000000000000000000A7011"


def has(account: str, submitted: Submitted) -> int:
    """Its tokens."""

    async def ask() -> int:
        chain = await AtollChain.connect(submitted.anvil.url, submitted.deployment)
        try:
            return await chain.token_balance(Address(account))
        finally:
            await chain.close()

    return asyncio.run(ask())


@pytest.fixture
def earning(submitted: Submitted) -> tuple[Path, int]:
    """A provider's config, and what it can claim, wei."""
    manifest = asyncio.run(submitted.until_settled())
    asyncio.run(submitted.audit(manifest))
    terms = manifest.terms
    return config_of(submitted, 1, "provider"), terms.segments * terms.segment_pay


def test_what_is_claimed_goes_to_the_wallet_that_was_named(
    submitted: Submitted, earning: tuple[Path, int]
) -> None:
    config, earned = earning
    assert told("stake", "owner", "reward", WALLET, "--config", config)["payee"] == WALLET
    paid = told("claim", "--config", config, "--wait")
    assert (paid["claimed_wei"], paid["payee"], paid["wallet_wei"]) == (
        *(str(earned), WALLET),
        str(earned),
    )
    assert has(WALLET, submitted) == earned
    again = told("claim", "--config", config, "--wait")  # there is nothing to wait for
    assert (again["claimed"], again["wallet_wei"]) == ([], str(earned))
