"""A file that is missing is named at once, before another option is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from atoll.cli.main import app
from atoll.errors import ConfigError


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("job submit missing.toml", "no such job file: missing.toml"),
        ("job submit missing.toml --max-spend 25 --json", "no such job file: missing.toml"),
        ("job check missing.toml", "no such job file: missing.toml"),
        ("job new --data here --data nothere", "no such file or folder: nothere"),
        ("job new --init nothere", "no such folder: nothere"),
        ("job new --init here", "no such folder: here"),  # it is a file
        ("devnet run --data nothere", "no such file or folder: nothere"),
    ],
)
def test_a_missing_file_is_named_at_once(
    words: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").touch()
    done = CliRunner().invoke(app, words.split())
    assert isinstance(done.exception, ConfigError), done.output
    assert str(done.exception) == reason
    assert done.exception.next_step
    assert not done.stdout


def test_what_is_there_or_of_a_hub_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").touch()
    hub = "hf://datasets/user/name"
    done = CliRunner().invoke(app, ["job", "new", "--data", "here", "--data", hub])
    assert not isinstance(done.exception, ConfigError) or "no such" not in str(done.exception)
