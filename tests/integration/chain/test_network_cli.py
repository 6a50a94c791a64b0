"""`atoll network`: a network from a key alone, as somebody who starts one does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.chain.conftest import KEYS
from tests.integration.chain.local_anvil import Anvil
from typer.testing import CliRunner

from atoll.chain.deployment import Deployment
from atoll.chain.keys import import_key
from atoll.cli.deploying import app
from atoll.errors import ChainError, ConfigError

PASSWORD = "correct horse battery"


@pytest.fixture
def key(anvil: Anvil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment names the chain, a rich key and its password."""
    (tmp_path / "password").write_text(PASSWORD)
    info = import_key(tmp_path / "keys", KEYS[0], PASSWORD, devnet=True)
    monkeypatch.setenv("ATOLL_RPC", anvil.url)
    monkeypatch.setenv("ATOLL_KEYSTORE", str(info.path))
    monkeypatch.setenv("ATOLL_PASSWORD_FILE", str(tmp_path / "password"))
    return info.path


def run(*arguments: str | Path) -> Any:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return json.loads(done.stdout)


def test_deploy_show_verify(key: Path, tmp_path: Path, anvil: Anvil) -> None:
    out = tmp_path / "deployment.json"
    options = ("--set", "min_provider_bond=25", "--set", "penalty_bps=50", "--unbonding-days", "3")
    done = run("deploy", "--out", out, "--yes", *options)
    known = Deployment.load(out)
    assert done["ok"]
    requests = {path.stem for path in (tmp_path / "deployment.sources").iterdir()}
    assert requests == {f"{name}.{address}" for name, address in known.addresses.items()}
    assert {c["contract"] for c in done["contracts"]} == set(known.addresses)
    shown = run("show", "--deployment", out)
    assert shown["addresses"] == dict(known.addresses)
    assert shown["parameters"]["Config"]["params"]["minProviderBond"] == str(25 * 10**18)
    assert shown["parameters"]["Config"]["params"]["penaltyBps"] == 50
    assert shown["parameters"]["Config"]["unbondingDelay"] == 3 * 86400
    assert run("verify", "--deployment", out)["ok"]
    anvil.ask("anvil_setCode", known.addresses["Members"], "0x00")
    with pytest.raises(ChainError, match="Members: its code"):
        run("verify", "--deployment", out)


def test_a_file_is_never_replaced_and_gas_never_paid_unasked(
    key: Path, tmp_path: Path, anvil: Anvil
) -> None:
    out = tmp_path / "deployment.json"
    with pytest.raises(ConfigError, match="nobody to ask"):
        run("deploy", "--out", out)
    with pytest.raises(ConfigError, match="no parameter 'bond'"):
        run("deploy", "--out", out, "--yes", "--set", "bond=1")
    with pytest.raises(ConfigError, match="no address"):
        run("deploy", "--out", out, "--yes", "--owner", "me")
    out.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        run("deploy", "--out", out, "--yes")
    assert out.read_text() == "mine"
    assert anvil.height() == 0
