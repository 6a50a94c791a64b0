"""`atoll devnet`: what its commands refuse before a network is started, and what they print."""

from __future__ import annotations

from typer.testing import CliRunner

from atoll.errors import ConfigError
from atoll_devnet.cli import app


def test_a_job_is_of_a_file_or_of_a_preset() -> None:
    done = CliRunner().invoke(app, ["run", "--job", "absent.toml", "--preset", "demo"])
    assert isinstance(done.exception, ConfigError)
    assert "--preset demo is for a job without a file" in str(done.exception)
