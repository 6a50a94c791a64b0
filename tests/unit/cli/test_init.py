"""`init`: a folder that a service can start from, with what is there already or what is asked."""

from __future__ import annotations

import json
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from atoll.chain.deployment import REQUIRED
from atoll.chain.keys import create_key, verify_key
from atoll.cli import services
from atoll.cli.judge_commands import app as judge
from atoll.cli.members import node, verifier
from atoll.errors import ConfigError, KeystoreError
from atoll.service.config import ServiceConfig, read_config

PASSWORD = "correct horse battery"


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    addresses = {name: f"0x{i:040x}" for i, name in enumerate(REQUIRED, 1)}
    path = tmp_path / "deployment.json"
    path.write_text(json.dumps({"chain_id": 1, "block": 0, "addresses": addresses}))
    return path


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.touch(mode=0o600)
    path.write_text(PASSWORD + "\n")
    return path


def run(app: Any, *arguments: str | Path, typed: str | None = None) -> Any:
    done = CliRunner().invoke(app, ["init", *map(str, arguments)], input=typed)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done


def settings_in(folder: Path) -> ServiceConfig:
    path = folder / services.CONFIG_NAME
    return read_config(ServiceConfig, path, (), {}).beside(folder)


def test_an_existing_key_a_port_and_a_public_url(
    tmp_path: Path, deployment: Path, password: Path
) -> None:
    key = create_key(tmp_path / "keys", PASSWORD, devnet=True)
    folder = tmp_path / "me"
    done = run(
        node, "--folder", folder, "--key", key.path, "--password-file", password,
        "--deployment", deployment, "--host", "0.0.0.0", "--port", "4001",
        "--public-url", "http://203.0.113.7:4001", "--rpc", "http://a,http://b", "--json",
    )  # fmt: skip
    assert json.loads(done.stdout)["address"] == key.address
    config = settings_in(folder)
    assert (config.role, config.keystore) == ("provider", key.path)
    assert config.rpc_urls == ("http://a", "http://b")
    gateway = config.gateway
    assert (gateway.host, gateway.port) == ("0.0.0.0", 4001)
    assert gateway.public_url == "http://203.0.113.7:4001"
    assert (config.policy.jobs_at_once, config.policy.largest_share) == (1, 0.5)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not (folder / "keys").exists()


@pytest.mark.parametrize(
    ("options", "host"),
    [
        ((), "127.0.0.1"),
        (("--public-url", "http://203.0.113.7:4001"), "0.0.0.0"),
        (("--public-url", "https://a.example", "--host", "127.0.0.1"), "127.0.0.1"),
    ],
)
def test_what_is_announced_is_listened_on(
    tmp_path: Path, deployment: Path, password: Path, options: tuple[str, ...], host: str
) -> None:
    named = ("--deployment", deployment, "--password-file", password, "--port", "4001")
    run(node, "--folder", tmp_path / "me", *named, *options)
    assert settings_in(tmp_path / "me").gateway.host == host


def test_what_is_excluded_is_asked_at_a_terminal(
    tmp_path: Path, deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    folder = tmp_path / "auditor"
    typed = f"{deployment}\nhttp://203.0.113.7:4002\n4002\n{PASSWORD}\n{PASSWORD}\n"
    run(verifier, "--folder", folder, typed=typed)
    config = settings_in(folder)
    assert (config.role, config.gateway.port) == ("verifier", 4002)
    assert config.gateway.host == "0.0.0.0"
    verify_key(config.keystore, PASSWORD)
    assert stat.S_IMODE(config.password_file.stat().st_mode) == 0o600
    assert config.password_file.read_text() == PASSWORD + "\n"


def test_what_is_typed_wrong_is_asked_again(
    tmp_path: Path, deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    folder, ports = tmp_path / "me", "web\n0\n99999\n4003\n"
    typed = f"\n{deployment}\nhttp://203.0.113.7:4003\n{ports}{PASSWORD}\n{PASSWORD}\n"
    run(node, "--folder", folder, typed=typed)
    assert settings_in(folder).gateway.port == 4003


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--public-url", "foo"), r"gateway\.public_url is 'foo': .* no gateway's address"),
        (("--owner", "0x" + "77" * 20, "--reward", "0x" + "66" * 20), "leave one of them out"),
        (("--owner", "0x" + "00" * 20), "zero address"),
        (("--rpc", "localhost:8545"), "'localhost:8545' is not an http"),
        (("--rpc", ""), "'' is not an http"),
    ],
)
def test_what_no_service_could_run_with_makes_no_key(
    tmp_path: Path, deployment: Path, password: Path, options: tuple[str, ...], message: str
) -> None:
    named = ("--deployment", deployment, "--password-file", password)
    with pytest.raises(ConfigError, match=message):
        run(node, "--folder", tmp_path / "me", *named, *options)
    assert not (tmp_path / "me").exists()


@pytest.mark.parametrize("app", [node, verifier, judge])
def test_the_environment_names_the_password(
    app: Any, tmp_path: Path, deployment: Path, password: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOLL_PASSWORD_FILE", str(password))
    run(app, "--folder", tmp_path / "me", "--deployment", deployment)
    assert settings_in(tmp_path / "me").password_file == password


@pytest.mark.parametrize(
    ("app", "words"),
    [
        (node, ["node", "run"]),
        (verifier, ["verifier", "run"]),
        (judge, ["judge", "watch", "--audit"]),
    ],
)
def test_what_starts_it_can_be_pasted(
    app: Any, words: list[str], tmp_path: Path, deployment: Path, password: Path
) -> None:
    folder = tmp_path / "n 1"
    named = ("--deployment", deployment, "--password-file", password)
    start = run(app, "--folder", folder, *named).stdout.partition("then: ")[2]
    config = folder / services.CONFIG_NAME
    assert shlex.split(start) == ["atoll", *words, "--config", str(config)]
    if app is not judge:
        step = services.status_of(config)["blocking"]["next_step"]
        assert shlex.split(step) == shlex.split(start)


def test_a_folder_can_be_moved_with_the_key_and_the_password_in_it(
    tmp_path: Path, deployment: Path
) -> None:
    folder, moved = tmp_path / "me", tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "secret").touch(mode=0o600)
    (folder / "secret").write_text(PASSWORD + "\n")
    key = create_key(folder / "own", PASSWORD, devnet=True)
    named = ("--password-file", folder / "secret", "--key", key.path)
    run(node, "--folder", folder, "--deployment", deployment, *named)
    folder.rename(moved)
    config = settings_in(moved)
    assert config.password_file == moved / "secret"
    assert verify_key(config.keystore, PASSWORD).address == key.address


def test_a_password_that_is_there_is_not_replaced(
    tmp_path: Path, deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    folder = tmp_path / "me"
    options = ("--folder", folder, "--deployment", deployment, "--public-url", "http://a:1")
    run(node, *options, "--port", "1", typed=f"{PASSWORD}\n{PASSWORD}\n")
    (folder / services.CONFIG_NAME).unlink()
    with pytest.raises(ConfigError, match="password exists already"):
        run(node, *options, "--port", "1", typed="another password\n" * 2)
    assert (folder / "password").read_text() == PASSWORD + "\n"


def test_without_a_terminal_what_is_missing_is_named(tmp_path: Path, deployment: Path) -> None:
    with pytest.raises(ConfigError, match="which network"):
        run(node, "--folder", tmp_path / "me")
    with pytest.raises(KeystoreError, match="no terminal to ask at"):
        run(node, "--folder", tmp_path / "me", "--deployment", deployment)


def test_a_password_that_others_can_read_is_refused(
    tmp_path: Path, deployment: Path, password: Path
) -> None:
    password.chmod(0o644)
    options = ("--password-file", password, "--deployment", deployment)
    with pytest.raises(ConfigError, match="others can use it") as caught:
        run(node, "--folder", tmp_path / "me", *options)
    assert caught.value.next_step == f"chmod 600 {password}"
    password.chmod(0o600)
    run(node, "--folder", tmp_path / "me", *options)
    with pytest.raises(ConfigError, match="exists already"):
        run(node, "--folder", tmp_path / "me", *options)


def test_a_reward_address_is_written_and_has_to_be_an_address(
    tmp_path: Path, deployment: Path, password: Path
) -> None:
    folder, wallet = tmp_path / "me", "0x" + "77" * 20
    named = ("--folder", folder, "--deployment", deployment, "--password-file", password)
    run(node, *named, "--reward", wallet)
    assert settings_in(folder).reward_address == wallet
    with pytest.raises(ConfigError, match="no address"):
        run(verifier, "--folder", tmp_path / "other", "--reward", "me")


def test_an_owner_is_written_and_has_to_be_an_address(
    tmp_path: Path, deployment: Path, password: Path
) -> None:
    folder, cold = tmp_path / "me", "0x" + "77" * 20
    named = ("--deployment", deployment, "--password-file", password)
    run(node, "--folder", folder, *named, "--owner", cold)
    assert settings_in(folder).owner == cold
    with pytest.raises(ConfigError, match="no address"):
        run(verifier, "--folder", tmp_path / "other", *named, "--owner", "0x" + "77" * 19)
