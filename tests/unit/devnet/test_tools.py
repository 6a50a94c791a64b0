"""Where a devnet's local chains are from: the checkout, this machine, or npm."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll.errors import ConfigError
from atoll_devnet.processes import tools

PINNED = json.loads(
    (Path(__file__).parents[3] / "contracts" / "package.json").read_text(encoding="utf-8")
)["dependencies"]
PROGRAMS = {
    f"@foundry-rs/anvil-linux-amd64@{tools.ANVIL}": "@foundry-rs/anvil-linux-amd64/bin/anvil",
    f"ganache@{tools.GANACHE}": "ganache/dist/node/cli.js",
}


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Installed from a wheel, in an empty folder on a machine with npm alone: what npm was told."""
    told = list[list[str]]()

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        told.append(command)
        program = Path(
            command[command.index("--prefix") + 1], "node_modules", PROGRAMS[command[-1]]
        )
        program.parent.mkdir(parents=True)
        program.touch(mode=0o755)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.delenv("ATOLL_ANVIL", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tools, "ROOT", tmp_path / "lib")
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    there = {"npm": "/bin/npm", "node": "/bin/node"}
    monkeypatch.setattr("shutil.which", there.get)
    monkeypatch.setattr(subprocess, "run", run)
    return told


def test_the_versions_are_those_of_the_checkout() -> None:
    assert PINNED["@foundry-rs/anvil"] == tools.ANVIL
    assert PINNED["ganache"] == tools.GANACHE


def test_what_is_missing_is_fetched_once(npm: list[list[str]], tmp_path: Path) -> None:
    home = tmp_path / ".atoll" / "tools"
    for find in (tools.find_anvil, tools.find_ganache) * 2:
        place = find()
        assert home in place.parents
        assert place.is_file()
    assert [command[-1] for command in npm] == list(PROGRAMS)
    for command in npm:
        assert command[:2] == ["/bin/npm", "install"]
        assert "--ignore-scripts" in command


def test_one_on_the_path_is_not_fetched(
    npm: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert tools.find_anvil() == Path("/bin/anvil")
    assert not npm


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ({}, "Node.js, which runs Ganache and npm, was not found"),
        ({"node": "/nowhere/bin/node"}, "npm, which installs Anvil, was not found"),
    ],
)
def test_what_fetching_lacks_is_named(
    npm: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    there: dict[str, str],
    words: str,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("shutil.which", there.get)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))  # no Node.js beside it
    with pytest.raises(ConfigError, match=words):
        tools.find_anvil()
    assert not npm


def test_what_npm_says_is_told(npm: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    failed = SimpleNamespace(returncode=1, stderr="npm error\nno such host\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ConfigError, match=r"npm could not install @foundry-rs/anvil.*no such host"):
        tools.find_anvil()
