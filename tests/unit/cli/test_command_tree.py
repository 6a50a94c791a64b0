"""The `atoll` command as a tree: what loading it costs, and how every command speaks to scripts."""

from __future__ import annotations

import importlib
import importlib.resources
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import typer
from typer.testing import CliRunner

from atoll.chain.deployment import REQUIRED
from atoll.chain.keys import create_key
from atoll.cli.main import MOUNTED, app, main
from atoll.cli.output import configure_logs, emit
from atoll.errors import AtollError, ConfigError, ManifestError
from atoll.job.presets import PRESETS
from atoll.job.spec import JobSpec

PASSWORD = "correct horse battery"
SILENT = {
    "job new": "prints a job file",
    "node run": "logs only",
    "release serve": "speaks with a service, a message a line",
    "verifier run": "logs only",
}
"""Commands without `--json`, and why."""


def atoll(*arguments: str) -> Any:
    """A command in this process."""
    return CliRunner().invoke(app, arguments)


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command below a group, by its words."""
    context = typer.Context(group)
    for name in group.list_commands(context):
        _, command, _ = group.resolve_command(context, [name])
        if hasattr(command, "list_commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a password, a deployment, and a key."""
    (tmp_path / "password").touch(mode=0o600)
    (tmp_path / "password").write_text(PASSWORD)
    addresses = {name: f"0x{i:040x}" for i, name in enumerate(REQUIRED, 1)}
    document = {"chain_id": 1, "block": 0, "addresses": addresses}
    (tmp_path / "deployment.json").write_text(json.dumps(document))
    create_key(tmp_path / "keys", PASSWORD, devnet=True)
    (tmp_path / "file").write_bytes(b"content")
    return tmp_path


def test_help_names_every_group() -> None:
    told = atoll("--help").output
    for name in (*MOUNTED, "devnet"):
        assert re.search(rf"^\W*{name}\b", told, re.MULTILINE), name


def test_what_help_says_of_a_group_is_what_the_group_says() -> None:
    for place, text in MOUNTED.values():
        module, _, attribute = place.partition(":")
        assert getattr(importlib.import_module(module), attribute).info.help == text


def test_every_command_speaks_json() -> None:
    found = dict(commands(typer.main.get_command(app)))
    assert len(found) > 30
    without = {
        name
        for name, command in found.items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == set(SILENT)


def test_no_help_has_brackets_that_would_be_taken_for_markup() -> None:
    for name, command in commands(typer.main.get_command(app)):
        texts = [command.help or "", *(getattr(p, "help", "") or "" for p in command.params)]
        assert not [text for text in texts if re.search(r"\[/?[a-z#@]", text)], name


def test_no_command_has_options_of_the_shell() -> None:
    found = dict(commands(typer.main.get_command(app)))
    options = {o for command in found.values() for p in command.params for o in p.opts}
    assert {option for option in options if "completion" in option} == set()


def test_every_preset_is_in_the_help() -> None:
    words = CliRunner().invoke(app, ["job", "new", "--help"]).stdout
    assert [name for name in PRESETS if not re.search(rf"\b{name}\b", words)] == []


def test_a_new_job_file_names_the_same_paths_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / 'my "own" text', tmp_path / "jobs"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    (here / "a text.txt").touch()
    (here / "model").mkdir()
    options = ("--data", "a text.txt", "--init", "model", "--set", "data.tokenizer=tokens",
               "--set", 'data.held_out_paths=["kept.txt"]')  # fmt: skip
    told = CliRunner().invoke(app, ["job", "new", *options])
    assert told.exit_code == 0, told.output
    (elsewhere / "job.toml").write_text(told.stdout, encoding="utf-8")
    spec = JobSpec.read(elsewhere / "job.toml")
    assert spec.data.paths == (str(here / "a text.txt"),)
    assert spec.data.held_out_paths == (str(here / "kept.txt"),)
    assert spec.data.tokenizer == str(here / "tokens")
    assert spec.init.folder == str(here / "model")


def test_a_paragraph_of_a_help_is_wrapped_by_the_terminal() -> None:
    """In the source the first line ends behind "Run"; "as by `submit`." stands in it, too."""
    told = CliRunner().invoke(app, ["job", "continue", "--help"], env={"COLUMNS": "240"})
    assert "by `submit`. Run again, it submits the file that is there" in told.stdout


def test_an_interrupted_command_says_so(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("atoll.chain.keys.list_keys", interrupted)
    monkeypatch.setattr(sys, "argv", ["atoll", "keys", "list"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "interrupted\n")


def test_json_is_one_document_and_nothing_else(folder: Path) -> None:
    keys, password = str(folder / "keys"), str(folder / "password")
    key = str(next((folder / "keys").glob("*.json")))
    root = ("--root", str(folder / "store"))
    named = ("--deployment", str(folder / "deployment.json"), "--password-file", password)
    cid = json.loads(atoll("store", "add", str(folder / "file"), *root, "--json").stdout)["cid"]
    for arguments in (
        ("keys", "new", "--folder", str(folder / "new"), "--password-file", password),
        ("keys", "list", "--folder", keys),
        ("keys", "verify", key, "--password-file", password),
        ("node", "init", "--folder", str(folder / "node"), *named),
        ("node", "status", "--config", str(folder / "node" / "config.toml")),
        ("verifier", "init", "--folder", str(folder / "verifier"), *named),
        ("judge", "init", "--folder", str(folder / "judge"), *named),
        ("store", "get", cid, "-o", str(folder / "out"), *root),
        ("store", "stat", cid, *root),
        ("store", "pin", cid, *root),
        ("store", "gc", *root),
        ("store", "verify", *root),
        ("config", "show", "--config", str(folder / "node" / "config.toml")),
        ("devnet", "cheats"),
    ):
        done = atoll(*arguments, "--json")
        assert (arguments, done.exit_code) == (arguments, 0)
        assert done.stdout.count("\n") == 1
        json.loads(done.stdout)


def test_a_strangers_words_do_not_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        emit(None, "a\tb\n\x9b2J", as_json=False)
        raise ManifestError("no \x1b]0;title\x07", next_step="do not \u202ejoin")

    monkeypatch.setattr("atoll.cli.main.app", refuse)
    with pytest.raises(SystemExit):
        main()
    assert tuple(capsys.readouterr()) == (
        "a\tb\n?2J\n",
        "error: no ?]0;title?\nnext: do not ?join\n",
    )


@pytest.mark.parametrize(("asked", "is_colourful"), [("", True), ("1", False)])
def test_no_color_is_obeyed(
    asked: str, is_colourful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setenv("NO_COLOR", asked)
    monkeypatch.setattr(sys, "stderr", terminal)
    before = structlog.get_config()
    try:
        configure_logs()
        structlog.get_logger().warning("a word", of="warning")
    finally:
        structlog.configure(**before)
    assert "a word" in terminal.getvalue()
    assert ("\x1b[" in terminal.getvalue()) == is_colourful


def test_a_logged_exception_does_not_print_what_was_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    before = structlog.get_config()
    try:
        configure_logs()
        view = {"a_whole_view": list(range(1000))}
        try:
            _ = view["seat"]
        except KeyError:
            structlog.get_logger().exception("an event is passed over", job=1)
    finally:
        structlog.configure(**before)
    assert "KeyError: 'seat'" in said.getvalue()
    assert "'a_whole_view'" not in said.getvalue()


def test_every_exit_code_is_in_the_help() -> None:
    def below(kind: type[AtollError]) -> Iterator[type[AtollError]]:
        yield kind
        for each in kind.__subclasses__():
            yield from below(each)

    told = {int(code) for code in re.findall(r"\d+", app.info.epilog)}
    codes = {kind.exit_code for kind in below(AtollError)}
    assert codes <= told


def test_an_error_prints_nothing_where_data_is_expected(folder: Path) -> None:
    done = atoll("node", "status", "--config", str(folder / "none.toml"), "--json")
    assert isinstance(done.exception, ConfigError)
    assert done.stdout == ""


@pytest.mark.parametrize("package", ["atoll", "atoll_node", "atoll_verifier", "atoll_devnet"])
def test_every_package_is_typed(package: str) -> None:
    assert importlib.resources.files(package).joinpath("py.typed").is_file()
