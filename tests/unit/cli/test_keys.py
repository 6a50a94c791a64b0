"""`atoll keys`: what a person types once, and what twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from atoll.chain.keys import import_key, list_keys, verify_key
from atoll.cli.key_commands import app

SECRET = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"
PASSWORD, MISTYPED = "correct horse battery", "correct horse batery"


@pytest.mark.parametrize("has_password", [False, True])
def test_only_a_new_password_is_asked_twice(
    has_password: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    source, folder = tmp_path / "source", tmp_path / "keys"
    source.write_text(SECRET)
    typed = f"{MISTYPED}\n{PASSWORD}\n{PASSWORD}\n{PASSWORD}\n"
    if has_password:
        source = import_key(tmp_path / "old", SECRET, PASSWORD, devnet=True).path
        typed = f"{PASSWORD}\n"
    command = ["import", str(source), "--folder", str(folder)]
    done = CliRunner().invoke(app, command, input=typed)
    assert done.exit_code == 0, done.output
    (info,) = list_keys(folder)
    assert verify_key(info.path, PASSWORD) == info
