"""`atoll judge watch` and `defend`: which player runs, of which jobs, with which config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from atoll.cli import services
from atoll.cli.main import app
from atoll.errors import ConfigError
from atoll.service.watcher import Player

KEY = bytes(range(32))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was to run, and nothing runs."""
    found: list[Any] = []

    def play(name: str, player: Player, config: Path, jobs: Any, **_: bool) -> None:
        found.append((name, player, config, jobs))

    monkeypatch.setattr(services, "play", play)
    return found


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words, catch_exceptions=True)


@pytest.mark.parametrize(
    ("words", "player"),
    [
        ((), Player(share=0.0)),
        (("--audit",), Player()),
        (("--audit", "--share", "0.25"), Player(share=0.25)),
        (("--key", "0x" + KEY.hex()), Player(share=0.0, keys=(KEY,))),  # type: ignore[arg-type]
    ],
)
def test_only_an_audit_replays(played: list[Any], words: tuple[str, ...], player: Player) -> None:
    assert run("judge", "watch", *words, "--config", "mine.toml", "--job", "3").exit_code == 0
    assert played == [("atoll judge watch", player, Path("mine.toml"), [3])]


def test_who_defends_looks_for_nothing(played: list[Any]) -> None:
    assert run("judge", "defend", "--config", "node.toml").exit_code == 0
    assert played == [("atoll judge defend", Player(watches=False), Path("node.toml"), None)]


def test_a_delegate_names_whom_it_defends(played: list[Any]) -> None:
    holder = "0x" + "ab" * 20
    words = ("judge", "defend", "--config", "own.toml", "--holder", holder)
    assert run(*words).exit_code == 0
    (_, player, config, _) = played[0]
    assert (player.defends.lower(), player.watches, config) == (holder, False, Path("own.toml"))
    assert isinstance(run(*words[:-1], "0x12").exception, ConfigError)


@pytest.mark.parametrize(
    "words", [("--share", "0.5"), ("--audit", "--share", "0"), ("--key", "12"), ("--key", "zz")]
)
def test_what_cannot_be_watched_is_refused(played: list[Any], words: tuple[str, ...]) -> None:
    assert isinstance(run("judge", "watch", *words).exception, ConfigError)
    assert played == []
