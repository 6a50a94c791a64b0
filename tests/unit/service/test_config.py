"""Service settings: a good file is read, a bad one is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.errors import ConfigError
from atoll.service.config import ServiceConfig, read_config

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
        ("[1, 2]", '"some"', "jobs"),
        ('data_dir = "data"', "", "data_dir"),
        ("[gateway]", "[gatway]", "gatway"),
        ('["http://127.0.0.1:8545"]', "[]", "rpc_urls"),
        ("[gateway]", "[gateway", "not TOML"),
        ("[gateway]", '[store]\nbackend = "s3:bucket"\n[gateway]', "store.backend"),
        ("[gateway]", '[store]\nbackend = "gateway:https://example.org"\n[gateway]', "keep its"),
        ("[gateway]", '[store]\nbackend = "kubo:nowhere"\n[gateway]', "Kubo daemon"),
        ("[gateway]", "[store]\nquota_bytes = 0\n[gateway]", "store.quota_bytes"),
    ],
)
def test_one_wrong_setting_is_named(tmp_path: Path, find: str, put: str, message: str) -> None:
    assert find in GOOD
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(ServiceConfig, written(tmp_path, GOOD.replace(find, put)))
    assert caught.value.next_step is not None
    assert caught.value.exit_code == 2


def test_a_missing_file_says_what_to_pass(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the config") as caught:
        read_config(ServiceConfig, tmp_path / "absent.toml")
    assert "--config" in str(caught.value.next_step)
