"""What a client takes for its settings, and refuses before it connects or pays."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from eth_account import Account

from atoll.chain.deployment import REQUIRED, Deployment
from atoll.chain.keys import create_key
from atoll.errors import ConfigError
from atoll.job.client import Client
from atoll.job.connection import HOME, MAX_WATCHERS, ClientConfig
from atoll.job.groups import wei_of
from atoll.protocol.types import TOKEN, Address
from atoll.service.lock import FolderHeld, hold_folder

MAINNET, ANVIL = 1, 31337
ADDRESSES = {name: Address(f"0x{i:040x}") for i, name in enumerate(REQUIRED, 1)}


def client_of(config: ClientConfig, chain_id: int = MAINNET) -> Client:
    return Client("http://127.0.0.1:1", Deployment(chain_id, 0, {}), None, config)


@pytest.mark.parametrize(
    "config",
    [
        ClientConfig(),
        ClientConfig(host="0.0.0.0", port=4001),
        ClientConfig(host="192.168.1.5", port=4001),
        ClientConfig(port=4001, public_url="http://localhost:4001"),
        ClientConfig(port=4001, public_url="http://[::1]:4001"),
        ClientConfig(host="8.8.8.8", private_peers=False, public_url="http://10.0.0.1", port=1),
        ClientConfig(private_peers=True),
    ],
)
async def test_an_address_that_no_member_asks_is_refused_before_anything_is_sent(
    config: ClientConfig,
) -> None:
    sure = replace(config, announce=True)
    sent = [client_of(sure).submit("job.toml", max_spend="1"), client_of(config).serve()]
    if config.public_url:  # which is meant to be reached
        sent.append(client_of(config).submit("job.toml", max_spend="1"))
    for each in sent:
        with pytest.raises(ConfigError, match="nobody could fetch the data") as refused:
            await each
        assert "--detach" in (refused.value.next_step or "")
        assert "--public-url" in (refused.value.next_step or "")


@pytest.mark.parametrize(
    "config",
    [
        ClientConfig(),
        ClientConfig(host="192.168.1.5", port=4001),
        ClientConfig(private_peers=True),
        ClientConfig(port=4001, public_url="https://example.org", announce=False),
        ClientConfig(public_url="http://localhost:4001", announce=False),
    ],
)
def test_who_needs_no_address_announces_none_and_is_not_refused(config: ClientConfig) -> None:
    client = client_of(config)
    assert not client.announces
    client.check_reach()


@pytest.mark.parametrize(
    ("config", "chain_id"),
    [
        (ClientConfig(), ANVIL),
        (ClientConfig(host="10.0.0.2", private_peers=True), MAINNET),
        (ClientConfig(host="8.8.8.8"), MAINNET),
        (ClientConfig(port=4001, public_url="https://example.org/atoll"), MAINNET),
    ],
)
def test_an_address_that_members_ask_is_none_to_refuse(config: ClientConfig, chain_id: int) -> None:
    client = client_of(config, chain_id)
    client.check_reach()
    assert client.announces


def test_a_public_url_needs_a_port_that_it_leads_to() -> None:
    with pytest.raises(ConfigError, match="the port is any free one"):
        client_of(ClientConfig(public_url="http://example.org:4001"), ANVIL).check_reach()


def test_what_is_announced_is_listened_on() -> None:
    said: dict[str, Any] = {"port": 4001, "public_url": "https://example.org"}
    for config, host in (
        (ClientConfig(), "127.0.0.1"),
        (ClientConfig(**said), "0.0.0.0"),
        (ClientConfig(**said, host="127.0.0.1"), "127.0.0.1"),
    ):
        assert client_of(config)._session_config(Path()).gateway.host == host


def test_the_port_is_that_which_is_listened_on_whatever_is_announced() -> None:
    client = client_of(ClientConfig(port=4001, public_url="https://example.org"))
    session: Any = SimpleNamespace(gateway=SimpleNamespace(url="https://example.org"))
    client._session = session
    assert client.port == 4001


@pytest.mark.parametrize(
    "config", [ClientConfig(public_url="ftp://example.org", port=1), ClientConfig(port=1 << 16)]
)
def test_what_no_gateway_can_be_is_a_sentence(config: ClientConfig) -> None:
    with pytest.raises(ConfigError, match=r"where the data is served: (public_url|port) is"):
        client_of(config)


def test_paths_can_be_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    Deployment(ANVIL, 0, ADDRESSES).save(tmp_path / "network.json")
    client = Client("http://127.0.0.1:1", "~/network.json", None, ClientConfig(home="~/mine"))
    assert (client.deployment.chain_id, client.home) == (ANVIL, tmp_path / "mine")
    (tmp_path / "password").touch(mode=0o600)
    (tmp_path / "password").write_text("correct horse battery")
    key = create_key(tmp_path / "keys", "correct horse battery", devnet=True)
    named = "~/network.json", f"~/keys/{key.path.name}", "~/password"
    assert Client.from_keystore("http://127.0.0.1:1", *named).can_sign


def test_another_home_would_pay_for_a_job_again_so_a_config_does_not_drop_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Deployment(ANVIL, 0, ADDRESSES).save(tmp_path / "network.json")
    monkeypatch.setenv("ATOLL_DEPLOYMENT", str(tmp_path / "network.json"))
    monkeypatch.delenv("ATOLL_KEYSTORE", raising=False)
    monkeypatch.setenv("ATOLL_HOME", str(tmp_path / "mine"))
    assert Client.from_env().home == tmp_path / "mine"
    assert Client.from_env(ClientConfig(confirmations=3)).home == tmp_path / "mine"
    assert Client.from_env(ClientConfig(home=tmp_path / "other")).home == tmp_path / "other"
    monkeypatch.setenv("ATOLL_HOME", "")
    assert Client.from_env().home == HOME.expanduser()


@pytest.mark.parametrize("signs", [True, False])
async def test_a_home_in_use_ends_with_its_own_exit_code_and_no_advice_that_pays_twice(
    tmp_path: Path, signs: bool
) -> None:
    used = [tmp_path / "watching" / str(i) for i in range(MAX_WATCHERS)]
    account = Account.create() if signs else None
    client = Client(
        "http://127.0.0.1:1", Deployment(ANVIL, 0, {}), account, ClientConfig(home=tmp_path)
    )
    with ExitStack() as held:
        for folder in used:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(hold_folder(folder))
        with pytest.raises(FolderHeld) as refused:
            await client.__aenter__()
    assert refused.value.exit_code == 6
    assert "home" not in (refused.value.next_step or "")


@pytest.mark.parametrize("amount", [2.5, 25.0, True, None, Decimal("25")])
def test_an_amount_of_neither_wei_nor_text_is_refused(amount: Any) -> None:
    with pytest.raises(ConfigError, match="an integer is wei, text is tokens"):
        wei_of(amount)


def test_an_integer_is_wei_and_text_is_tokens() -> None:
    assert (wei_of(25), wei_of("25"), wei_of("0.5")) == (25, 25 * TOKEN, TOKEN // 2)
