"""Where a submitter's data is served: what the options and variables say reaches the client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import pytest
from typer.testing import CliRunner

from atoll.chain.deployment import REQUIRED
from atoll.chain.keys import create_key
from atoll.cli.main import app
from atoll.cli.network_commands import Network
from atoll.errors import AtollError, ConfigError
from atoll.job.client import Client
from atoll.job.connection import ClientConfig
from atoll.job.presets import preset
from atoll.job.toml_files import to_toml

PASSWORD = "correct horse battery"
URL = "https://example.org/data"


@pytest.fixture(autouse=True)
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables name a chain on which strangers are members, and a key."""
    (tmp_path / "password").touch(mode=0o600)
    (tmp_path / "password").write_text(PASSWORD)
    addresses = {name: f"0x{i:040x}" for i, name in enumerate(REQUIRED, 1)}
    document = {"chain_id": 1, "block": 0, "addresses": addresses}
    (tmp_path / "deployment.json").write_text(json.dumps(document))
    (tmp_path / "text").write_text("to be or not to be\n")
    (tmp_path / "job.toml").write_text(to_toml(preset("nano").but({"data.paths": ["text"]})))
    for name, value in {
        "DEPLOYMENT": tmp_path / "deployment.json",
        "KEYSTORE": create_key(tmp_path / "keys", PASSWORD, devnet=True).path,
        "PASSWORD_FILE": tmp_path / "password",
        "HOME": tmp_path / "home",
    }.items():
        monkeypatch.setenv(f"ATOLL_{name}", str(value))
    for name in ("HOST", "PORT", "PUBLIC_URL", "PRIVATE_PEERS"):
        monkeypatch.delenv(f"ATOLL_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


class Opened(Exception):
    """A client would connect now, with this config."""


@pytest.fixture
def unconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def opened(client: Client) -> Client:
        raise Opened(client.config)

    monkeypatch.setattr(Client, "__aenter__", opened)


def config_of(*words: str) -> ClientConfig:
    done = CliRunner().invoke(app, ["job", *words])
    assert isinstance(done.exception, Opened), done.output
    config: ClientConfig = done.exception.args[0]
    return config


@pytest.mark.usefixtures("unconnected")
@pytest.mark.parametrize(
    "words",
    [
        ("submit", "job.toml", "--max-spend", "1", "--yes"),
        ("serve", "1"),
        ("continue", "1", "--rounds", "1", "--max-spend", "1", "--yes"),
    ],
)
def test_where_the_data_is_served_can_be_said(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ("--host", "0.0.0.0", "--port", "4001", "--public-url", URL, "--private-peers")
    for name, value in {"HOST": "::", "PORT": "4002", "PUBLIC_URL": "https://a.b"}.items():
        monkeypatch.setenv(f"ATOLL_{name}", value)
    found = config_of(*words)
    assert (found.host, found.port, found.public_url) == ("::", 4002, "https://a.b")
    assert found.private_peers is None
    found = config_of(*words, *said)
    assert (found.host, found.port, found.public_url) == ("0.0.0.0", 4001, URL)
    assert found.private_peers is True


@pytest.mark.usefixtures("unconnected")
def test_who_detaches_announces_nothing_and_who_archives_is_to_be_reached() -> None:
    submit = ("submit", "job.toml", "--max-spend", "1", "--yes")
    assert config_of(*submit).announce is None
    assert config_of(*submit, "--detach").announce is False
    assert config_of(*submit, "--archive", "1").announce is True
    assert config_of("serve", "1", "--detach").announce is False


@pytest.mark.usefixtures("unconnected")
def test_who_fetches_can_say_that_members_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_of("result", "1", "model").private_peers is None
    assert config_of("result", "1", "model", "--private-peers").private_peers is True
    monkeypatch.setenv("ATOLL_PRIVATE_PEERS", "1")
    assert config_of("result", "1", "model").private_peers is True


@pytest.mark.usefixtures("unconnected")
async def test_who_goes_on_serving_announces_the_same() -> None:
    network = Network(
        "http://127.0.0.1:1", Path("deployment.json"), Path("home"),
        host="0.0.0.0", port=4001, public_url=URL,
    )  # fmt: skip
    with pytest.raises(Opened) as opened:
        async with network.watching(4001):
            pass
    (found,) = opened.value.args
    assert (found.host, found.port, found.public_url) == ("0.0.0.0", 4001, URL)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--archive", "1"), "nobody could fetch the data from 127.0.0.1"),
        (("--public-url", URL), "a public URL is set, and the port is any free one"),
        ((), "the text is prepared"),
        (("--detach",), "the text is prepared"),
        (("--detach", "--public-url", URL), "the text is prepared"),
    ],
)
def test_a_job_whose_data_nobody_could_fetch_is_refused_before_its_text_is_prepared(
    monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], complaint: str
) -> None:
    """Where it has to be fetched: what is brought to verifiers takes no address."""

    async def opened(client: Client) -> Self:  # type: ignore[misc]
        return client  # type: ignore[return-value]

    async def prepared(*_: Any, **__: Any) -> None:
        raise AtollError("the text is prepared")

    monkeypatch.setattr(Client, "__aenter__", opened)
    monkeypatch.setattr(Client, "draft", prepared)
    words = ["job", "submit", "job.toml", "--max-spend", "1", "--yes", *more]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, AtollError)
    assert complaint in str(done.exception)


@pytest.mark.usefixtures("unconnected")
def test_a_script_has_them_from_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOST": "::", "PORT": "4002", "PRIVATE_PEERS": "1"}.items():
        monkeypatch.setenv(f"ATOLL_{name}", value)
    found = Client.from_env(ClientConfig(port=4003)).config
    assert (found.host, found.port, found.public_url) == ("::", 4003, None)
    assert found.private_peers is True
    monkeypatch.setenv("ATOLL_PORT", "many")
    with pytest.raises(ConfigError, match="port is 'many'"):
        Client.from_env()
