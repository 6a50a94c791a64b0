"""The program as a process: what it loads, how it completes and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from atoll.cli.main import MOUNTED

HEAVY = ["torch", "web3", "numpy", "aiohttp"]


LOADED = """
import io, json, sys
from contextlib import redirect_stdout
from atoll.cli.main import main

heavy, runs = json.loads(sys.argv[1])
told = []
for arguments in runs:
    sys.argv, out, code = ["atoll", *arguments], io.StringIO(), 0
    try:
        with redirect_stdout(out):
            main()
    except SystemExit as end:
        code = end.code or 0
    told.append([code, bool(out.getvalue()), [name for name in heavy if name in sys.modules]])
print(json.dumps(told))
"""
"""Runs commands one after another: of each the exit code, whether it printed, what is loaded."""


def run_and_look(runs: list[tuple[str, ...]]) -> list[Any]:
    """What `LOADED` prints of these commands in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, json.dumps([HEAVY, runs])],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_help_loads_nothing_heavy() -> None:
    runs = [(*group.split(), "--help") for group in ("", *MOUNTED, "devnet")]
    assert run_and_look(runs) == [[0, True, []]] * len(runs)


def test_commands_that_need_nothing_heavy_load_nothing_heavy(folder: Path) -> None:
    keys, password = str(folder / "keys"), str(folder / "password")
    deployment, member = str(folder / "deployment.json"), str(folder / "member")
    runs = [
        ("--version",),
        ("keys", "list", "--folder", keys),
        ("node", "init", "--folder", member, "--deployment", deployment,
         "--password-file", password),
        ("node", "status", "--config", f"{member}/config.toml", "--json"),
        ("store", "pin", "--root", str(folder / "store"), "--json"),
        ("job", "new", "--preset", "nano"),
        ("devnet", "cheats"),
    ]  # fmt: skip
    assert run_and_look(runs) == [[0, True, []]] * len(runs)


def run_main(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The program as a shell runs it."""
    code = "import sys; from atoll.cli.main import main; sys.argv[0] = 'atoll'; main()"
    environment = os.environ | variables
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("typed", "at", "offered"),
    [
        ("atoll ear", 1, ["earnings"]),
        ("atoll job can", 2, ["cancel"]),
        ("atoll dev", 1, ["devnet"]),
    ],
)
def test_a_shell_completes_commands(typed: str, at: int, offered: list[str]) -> None:
    asked = {"_ATOLL_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(at)}
    assert run_main(**asked).stdout.split() == offered
    (line,) = [
        text
        for text in run_main(_ATOLL_COMPLETE="source_bash").stdout.splitlines()
        if text.startswith("complete ")
    ]
    assert line.endswith(" atoll")


@pytest.mark.parametrize(
    ("arguments", "code"), [(("keys", "new", "--help"), 0), (("job", "check", "gone.toml"), 2)]
)
def test_a_program_without_output_and_errors_still_has_its_exit_code(
    arguments: tuple[str, ...], code: int
) -> None:
    started = ["sh", "-c", 'exec "$0" -m atoll.cli.main "$@" >&- 2>&-', sys.executable, *arguments]
    assert subprocess.run(started, check=False).returncode == code
