"""`atoll network deploy`: what is paid for on the chain has a file here, or is printed."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from atoll.chain.deployment import REQUIRED, Deployment
from atoll.chain.keys import create_key
from atoll.cli.deploying import app
from atoll.errors import ConfigError, StorageError
from atoll.protocol.types import Address

PASSWORD = "correct horse battery"
MADE = Deployment(1, 7, {name: Address(f"0x{i:040}") for i, name in enumerate(REQUIRED, 1)})


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The environment names a key; the list has what was put on a chain, which is none."""
    (tmp_path / "password").write_text(PASSWORD)
    info = create_key(tmp_path / "keys", PASSWORD, devnet=True)
    monkeypatch.setenv("ATOLL_KEYSTORE", str(info.path))
    monkeypatch.setenv("ATOLL_PASSWORD_FILE", str(tmp_path / "password"))
    paid: list[str] = []

    async def put(urls: list[str], *_: object) -> Deployment:
        paid.extend(urls)
        return MADE

    async def chain_id(_: list[str]) -> int:
        return MADE.chain_id

    monkeypatch.setattr("atoll.chain.deploy.deploy", put)
    monkeypatch.setattr("atoll.chain.deploy.ask_chain_id", chain_id)
    return paid


def deploy(out: Path, *more: str) -> Any:
    return CliRunner().invoke(app, ["deploy", "--yes", "--json", "--out", str(out), *more])


@pytest.mark.parametrize("folder", ["absent", "a file"])
def test_a_file_that_cannot_be_made_costs_nothing(
    key: list[str], tmp_path: Path, folder: str
) -> None:
    (tmp_path / "a file").touch()
    done = deploy(tmp_path / folder / "deployment.json")
    assert isinstance(done.exception, ConfigError)
    assert "no file can be made in the folder" in str(done.exception)
    assert key == []


def test_a_deployment_that_cannot_be_saved_is_printed(
    key: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Deployment, "save", full)
    done = deploy(tmp_path / "deployment.json")
    assert isinstance(done.exception, StorageError)
    assert Deployment.from_json(done.stdout) == MADE
    assert len(done.stdout.splitlines()) == 1
    assert key != []
    assert list(tmp_path.glob("*.json")) == []


def test_the_file_names_the_explorer_that_was_named(
    key: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.cli.deploying._verify", lambda *_, **__: None)
    done = deploy(tmp_path / "net.json", "--explorer", "https://explorer.example/")
    assert done.exit_code == 0, done.exception
    made = Deployment.load(tmp_path / "net.json")
    assert made == replace(MADE, explorer="https://explorer.example")


def test_an_explorer_that_is_no_web_address_costs_nothing(key: list[str], tmp_path: Path) -> None:
    done = deploy(tmp_path / "net.json", "--explorer", "javascript:alert(1)")
    assert isinstance(done.exception, ConfigError)
    assert key == []
