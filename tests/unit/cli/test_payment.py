"""What a payment needs is known before anything is done for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from atoll.cli import serving
from atoll.cli.job import app
from atoll.cli.network_commands import Network
from atoll.cli.serving import Payment, Serving
from atoll.errors import ConfigError


@pytest.fixture(autouse=True)
def unconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(network: Network, **_: Any) -> None:
        raise AssertionError("a client would connect now")

    monkeypatch.setattr(Network, "open", opened)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--max-spend", "plenty", "--yes"), "plenty"),
        (("--max-spend", "-1", "--yes"), "-1"),
        (("--max-spend", "1"), "there is nobody to ask whether to pay"),
        (("--max-spend", "1", "--json"), "there is nobody to ask whether to pay"),
    ],
)
@pytest.mark.parametrize("command", [("submit", "job.toml"), ("continue", "1", "--rounds", "1")])
def test_a_payment_that_cannot_be_made_costs_no_work(
    command: tuple[str, ...], words: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    (tmp_path / "job.toml").touch()
    with pytest.MonkeyPatch.context() as here:
        here.chdir(tmp_path)
        done = CliRunner().invoke(app, [*command, *words])
    assert isinstance(done.exception, ConfigError)
    assert why in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["job.toml"]


@pytest.mark.parametrize("size", ["1e400", "1e300", "nan", "0"])
@pytest.mark.parametrize(
    "command", [("serve", "1"), ("submit", "job.toml", "--max-spend", "1", "--yes")]
)
def test_an_archive_has_a_size(command: tuple[str, ...], size: str) -> None:
    done = CliRunner().invoke(app, [*command, "--archive", size])
    assert done.exit_code == 2
    assert "--archive" in done.stderr


def test_what_lets_a_program_submit_again_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError) as caught:
        Payment.of("1", Serving(), sure=False, as_json=True)
    assert "pass --yes" in str(caught.value.next_step)
    assert "not again what is paid" in str(caught.value.next_step)
    monkeypatch.setenv("COLUMNS", "200")
    for command in ("submit", "continue"):
        told = " ".join(CliRunner().invoke(app, [command, "--help"]).output.split())
        assert "needed without a terminal" in told


def test_who_is_at_a_terminal_can_be_asked_unless_json_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving.sys.stdin, "isatty", lambda: True)
    assert Payment.of("0.5", Serving(), sure=False, as_json=False).max_spend == "0.5"
    with pytest.raises(ConfigError, match="nobody to ask"):
        Payment.of("0.5", Serving(), sure=False, as_json=True)
    assert Payment.of("0.5", Serving(), sure=True, as_json=True).sure
