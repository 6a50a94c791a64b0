"""`atoll devnet`: what its commands refuse before a network is started, and what they print."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from atoll.errors import ConfigError
from atoll_devnet.cli import app


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
