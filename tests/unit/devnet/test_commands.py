"""`atoll devnet`: what its commands refuse before a network is started, and what they print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from atoll.errors import ConfigError
from atoll_devnet.cli import app
from atoll_devnet.run.standing import _environment


def test_a_job_is_of_a_file_or_of_a_preset() -> None:
    done = CliRunner().invoke(app, ["run", "--job", "absent.toml", "--preset", "demo"])
    assert isinstance(done.exception, ConfigError)
    assert "--preset demo is for a job without a file" in str(done.exception)


def test_what_up_prints_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stand(network: object, tell: Callable[[dict[str, str]], None]) -> None:
        tell({"ATOLL_RPC": "http://127.0.0.1:8545", "ATOLL_DEPLOYMENT": "/a b/$c/deployment.json"})

    monkeypatch.setattr("atoll_devnet.run.standing.stand", stand)
    done = CliRunner().invoke(app, ["up"])
    assert done.stdout == (
        "export ATOLL_RPC=http://127.0.0.1:8545\n"
        "export ATOLL_DEPLOYMENT='/a b/$c/deployment.json'\n"
    )


def test_each_network_that_stands_has_a_home_of_its_own(tmp_path: Path) -> None:
    """Its jobs have the numbers, and its contracts the addresses, of the one before."""
    homes = set()
    for name in ("first", "second"):
        folder = tmp_path / name
        (folder / "keys").mkdir(parents=True)
        (folder / "keys" / "0x1.json").touch()
        chain = SimpleNamespace(rpc_url="http://127.0.0.1:8545")
        cluster = cast(Any, SimpleNamespace(submitter_folder=folder, chain=chain))
        homes.add(_environment(cluster)["ATOLL_HOME"])
    assert homes == {str(tmp_path / name) for name in ("first", "second")}
