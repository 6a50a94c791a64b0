"""Service settings: a good file is read, a bad one is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from atoll.errors import ConfigError
from atoll.service.config import (
    VARIABLES,
    FeeConfig,
    GatewaySection,
    ServiceConfig,
    read_config,
    read_layers,
)
from atoll.service.role import run_role
from atoll.storage import GatewayConfig

GOOD = """
rpc_urls = ["http://127.0.0.1:8545"]
deployment = "deployment.json"
keystore = "key.json"
password_file = "/etc/atoll/password"
data_dir = "data"
jobs = [1, 2]

[gateway]
port = 4040
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return path


def test_relative_paths_are_beside_the_file(tmp_path: Path) -> None:
    config = read_config(ServiceConfig, written(tmp_path, GOOD)).beside(tmp_path)
    assert config.data_dir == tmp_path / "data"
    assert config.password_file == Path("/etc/atoll/password")
    assert config.journal_file.parent == config.store_dir.parent == config.data_dir
    assert config.jobs == (1, 2)
    assert config.gateway.port == 4040
    assert config.log_file is None


@pytest.mark.parametrize(
    ("find", "put", "message"),
    [
        ("4040", "70000", "gateway.port"),
        (
            "[gateway]",
            "worker_niceness = 0\n[schedule]\nmost_by_others = 0.5\n[gateway]",
            "have worker_niceness be 1 or more",
        ),
        (
            "[gateway]",
            f'owner = "0x{"77" * 20}"\nreward_address = "0x{"77" * 20}"\n[gateway]',
            "an owner names who is paid by itself",
        ),
        ("[gateway]", 'device = "cuda"\n[gateway]', "there is no device"),
        ("[gateway]", "ranks = 2\n[gateway]", "there is no ranks"),
        ("[gateway]", '[machine]\ndevices = "cuda"\n[gateway]', 'should be "all" or a list'),
        ("[gateway]", "[machine]\ndevices = 2\n[gateway]", 'should be "all" or a list'),
        ("[gateway]", "[machine]\ndevices = [0]\n[gateway]", 'should be "all" or a list'),
        ("[gateway]", "[machine]\ndevices = []\n[gateway]", "0 devices are named"),
        ("[gateway]", '[machine]\ndevices = ["gpu"]\n[gateway]', "'gpu' is no device"),
        (
            "[gateway]",
            '[machine]\ndevices = ["cuda:0", "cuda:0"]\n[gateway]',
            "cuda:0 is named twice",
        ),
        ("[1, 2]", '"some"', "jobs"),
        ('data_dir = "data"', "", "data_dir"),
        (
            'data_dir = "data"',
            f'data_dir = "data"\nowner = "0x{"0" * 40}"',
            "owner .* nobody has the key",
        ),
        ('data_dir = "data"', f'data_dir = "d"\nreward_address = "0x{"0" * 40}"', "nobody has the"),
        ("http://127", "127", "rpc_urls: RPC endpoint '127.0.0.1:8545' is not an http"),
        ("http://127.0.0.1:8545", "", "rpc_urls: RPC endpoint '' is not"),
        ("[gateway]", "[gatway]", "there is no gatway: did you mean gateway?"),
        ("4040", "70000", r"gateway\.port is 70000: it should be less than"),
        ("port = 4040", "prt = 4040", r"there is no gateway\.prt: did you mean gateway\.port\?"),
        ('data_dir = "data"', "", "data_dir is missing"),
        ('["http://127.0.0.1:8545"]', "[]", "rpc_urls"),
        ("[gateway]", "[gateway", "not TOML"),
        ("[gateway]", '[store]\nbackend = "s3:bucket"\n[gateway]', "store.backend"),
        ("[gateway]", '[store]\nbackend = "gateway:https://example.org"\n[gateway]', "keep its"),
        ("[gateway]", '[store]\nbackend = "kubo:nowhere"\n[gateway]', "Kubo daemon"),
        ("[gateway]", "[store]\nquota_bytes = 0\n[gateway]", "store.quota_bytes"),
        ("port = 4040", 'port = 4040\npublic_url = "example.org:4040"', "gateway.public_url"),
        ("port = 4040", 'port = 4040\npublic_url = "http://[::1]@"', "gateway.public_url"),
        ("port = 4040", 'port = 4040\npublic_url = "http://h/?token=1"', "without user"),
    ],
)
def test_one_wrong_setting_is_named(tmp_path: Path, find: str, put: str, message: str) -> None:
    assert find in GOOD
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(ServiceConfig, written(tmp_path, GOOD.replace(find, put)))
    assert caught.value.next_step is not None
    assert caught.value.exit_code == 2


def test_a_missing_file_says_what_makes_one_and_what_to_pass(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no config") as caught:
        read_config(ServiceConfig, tmp_path / "absent.toml")
    made, _, named = str(caught.value.next_step).partition(" --config FILE")
    assert all(f"`atoll {command} init`" in made for command in ("node", "verifier", "judge"))
    assert named


def test_a_folder_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the config") as caught:
        read_config(ServiceConfig, tmp_path)
    assert "--config" in str(caught.value.next_step)


def test_a_flag_beats_a_variable_that_beats_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    variables = {
        "ATOLL_SERVICE__GATEWAY__PORT": "5050",
        "ATOLL_SERVICE__JOBS": "[7]",
        "ATOLL_SERVICE__LOG_LEVEL": "debug",
        "ATOLL_RPC": "of another program",
    }
    config = read_config(ServiceConfig, path, ["gateway.port=6060"], variables)
    assert (config.gateway.port, config.jobs, config.log_level) == (6060, (7,), "debug")
    origins = read_layers(path, ["gateway.port=6060"], variables).origins
    assert origins["gateway.port"] == "--set gateway.port=6060"
    assert origins["jobs"] == "the variable ATOLL_SERVICE__JOBS"
    assert origins["keystore"] == str(path)
    assert "fees.max_fee_gwei" not in origins


@pytest.mark.parametrize(
    ("setting", "message"),
    [("gateway.port=high", "gateway.port"), ("gateway.prt=1", "gateway.prt"),
     ("gatewy.port=1", "gatewy"), ("rpc_urls=[1]", "rpc_urls.0")],
)  # fmt: skip
def test_a_wrong_flag_is_named(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(ServiceConfig, written(tmp_path, GOOD), [setting], {})
    assert caught.value.next_step == f"correct --set {setting}"


@pytest.mark.parametrize(
    ("setting", "message"), [("gateway.port", "no value"), ("keystore.path=x", "no section")]
)
def test_what_is_no_setting_is_refused(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(ServiceConfig, written(tmp_path, GOOD), [setting], {})
    assert caught.value.next_step is not None


@pytest.mark.parametrize(("agree", "holds"), [(1, True), (2, True), (3, False)])
def test_no_more_endpoints_can_agree_than_there_are(
    tmp_path: Path, agree: int, holds: bool
) -> None:
    endpoints = 'rpc_urls=["http://one", "http://two", "http://two"]'
    settings = [endpoints, f"rpc_agreement={agree}"]
    if holds:
        found = read_config(ServiceConfig, written(tmp_path, GOOD), settings, {})
        assert found.rpc_agreement == agree
    else:
        with pytest.raises(ConfigError, match=r"rpc_agreement.* rpc_urls names 2"):
            read_config(ServiceConfig, written(tmp_path, GOOD), settings, {})


@pytest.mark.parametrize("connections", [8, 100, 512])
def test_neither_one_member_nor_strangers_may_have_every_connection(connections: int) -> None:
    budget = GatewaySection(connections=connections).budget()
    assert 0 < budget.per_member * 8 <= budget.connections
    strangers = budget.connections - budget.reserved
    assert 0 < GatewayConfig(budget=budget).strangers_requests < strangers


async def test_a_folder_is_one_roles(tmp_path: Path) -> None:
    config = read_config(ServiceConfig, written(tmp_path, 'role = "verifier"\n' + GOOD), (), {})
    with pytest.raises(ConfigError, match="this config is of a verifier"):
        await run_role("provider", config.beside(tmp_path), None, lambda state, event: (state, []))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["owner", "reward_address"])
def test_an_address_can_be_a_flag_s_and_a_variable_s(tmp_path: Path, name: str) -> None:
    path, wallet = written(tmp_path, GOOD), "0x" + "77" * 20
    flag = read_config(ServiceConfig, path, [f"{name}={wallet}"], {})
    variable = read_config(ServiceConfig, path, (), {f"ATOLL_SERVICE__{name.upper()}": wallet})
    assert getattr(flag, name) == getattr(variable, name) == wallet


def test_an_endpoint_that_is_none_is_named_without_its_secrets(tmp_path: Path) -> None:
    endpoints = ["rpc_urls=['http://a/secret', 'user:secret@b:8545/secret']"]
    with pytest.raises(ConfigError, match="'b:8545' is not an http") as caught:
        read_config(ServiceConfig, written(tmp_path, GOOD), endpoints, {})
    assert "secret" not in str(caught.value)


def test_what_does_not_go_together_is_said_without_all_that_is_set(tmp_path: Path) -> None:
    wallets = [f"owner=0x{'77' * 20}", f"reward_address=0x{'66' * 20}"]
    path = written(tmp_path, GOOD)
    with pytest.raises(ConfigError) as caught:
        read_config(ServiceConfig, path, wallets, {})
    assert str(caught.value).startswith(f"{path}: owner and reward_address: an owner names")
    assert "keystore" not in str(caught.value)


def test_what_a_bond_may_be_bid_for_is_a_part_of_what_it_is_worth() -> None:
    assert FeeConfig().per_stake == 0.0  # nobody has said what a token is worth
    assert FeeConfig(token_in_coin=0.5, bond_share=0.25).per_stake == 0.125
    for worth in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValidationError):
            FeeConfig(token_in_coin=worth)


@pytest.mark.parametrize(
    ("said", "devices"),
    [
        ("machine.devices=all", "all"),
        ('machine.devices=["cuda:1", "cuda:0"]', ("cuda:1", "cuda:0")),
        ('machine.devices=["cpu", "cpu"]', ("cpu", "cpu")),
    ],
)
def test_devices_are_all_or_a_list(tmp_path: Path, said: str, devices: object) -> None:
    path = written(tmp_path, GOOD)
    assert read_config(ServiceConfig, path).machine.devices is None
    assert read_config(ServiceConfig, path, [said]).machine.devices == devices
    name, _, value = said.partition("=")
    variables = {f"{VARIABLES}{name.replace('.', '__').upper()}": value}
    assert read_config(ServiceConfig, path, (), variables).machine.devices == devices
