"""`atoll stake add`: an amount that adds nothing is refused before the chain is asked."""

from __future__ import annotations

from typer.testing import CliRunner

from atoll.cli.main import app
from atoll.errors import ConfigError


def test_nothing_is_no_amount() -> None:
    done = CliRunner().invoke(app, ["stake", "add", "0", "--as", "provider"])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == "amount is 0"
