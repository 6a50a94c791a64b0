"""What a client takes for its settings, and refuses before it connects or pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll.chain.deployment import Deployment
from atoll.errors import ConfigError
from atoll.job.client import Client, ClientConfig

MAINNET, ANVIL = 1, 31337


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
    ],
)
async def test_an_address_that_no_member_asks_is_refused_before_anything_is_sent(
    config: ClientConfig,
) -> None:
    client = client_of(config)
    for sent in (client.submit("job.toml", max_spend="1"), client.serve()):
        with pytest.raises(ConfigError, match="nobody could fetch the data") as refused:
            await sent
        assert "--public-url" in (refused.value.next_step or "")


@pytest.mark.parametrize(
    ("config", "chain_id"),
    [
        (ClientConfig(), ANVIL),
        (ClientConfig(private_peers=True), MAINNET),
        (ClientConfig(host="8.8.8.8"), MAINNET),
        (ClientConfig(port=4001, public_url="https://example.org/atoll"), MAINNET),
    ],
)
def test_an_address_that_members_ask_is_none_to_refuse(config: ClientConfig, chain_id: int) -> None:
    client_of(config, chain_id).check_reach()


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


@pytest.mark.parametrize(
    "config", [ClientConfig(public_url="ftp://example.org", port=1), ClientConfig(port=1 << 16)]
)
def test_what_no_gateway_can_be_is_a_sentence(config: ClientConfig) -> None:
    with pytest.raises(ConfigError, match=r"where the data is served: (public_url|port) is"):
        client_of(config)
