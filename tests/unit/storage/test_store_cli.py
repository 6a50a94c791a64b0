"""`atoll store`, as a person or a script uses it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from atoll.cli.store import app
from atoll.errors import AtollError, ConfigError, NotFound, StorageError, TooLarge
from atoll.storage import Cid, LocalStore

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATOLL_STORE", str(tmp_path / "store"))
    return tmp_path


def run(*arguments: str | Path, stdin: bytes = b"") -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], input=stdin)
    if isinstance(result.exception, AtollError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_add_then_get(folder: Path) -> None:
    (folder / "in").write_bytes(os.urandom(2 * MIB + 1))
    added = run("add", folder / "in")
    assert (added["bytes"], added["blocks"]) == (2 * MIB + 1, 4)
    assert run("add", folder / "in", "--only-hash") == added
    got = run("get", added["cid"], "-o", folder / "out")
    assert got == {**added, "path": str(folder / "out")}
    assert (folder / "out").read_bytes() == (folder / "in").read_bytes()
    with pytest.raises(TooLarge):
        run("get", added["cid"], "-o", folder / "out", "--max-bytes", "5")


def test_get_to_standard_output(folder: Path) -> None:
    data = os.urandom(20 * MIB + 1)
    cid = run("add", "-", stdin=data)["cid"]
    assert CliRunner().invoke(app, ["get", cid, "-o", "-"]).stdout_bytes == data
    refused = CliRunner().invoke(app, ["get", cid, "-o", "-", "--max-bytes", "5"])
    assert isinstance(refused.exception, TooLarge)
    assert refused.stdout_bytes == b""


def test_a_strangers_names_do_not_steer_the_terminal(folder: Path) -> None:
    named = folder / "named"
    named.mkdir()
    (named / "a\n\x1b]0;title\x07\x9b2J\u202e").write_bytes(b"")
    cid = run("add", named)["cid"]
    line = CliRunner().invoke(app, ["ls", cid]).stdout
    assert line.endswith("  a??]0;title??2J?\n") and line.count("\n") == 1
    with pytest.raises(NotFound):
        run("get", cid + "/b", "-o", folder / "out")


def test_legacy_profile_and_standard_input(folder: Path) -> None:
    added = run("add", "-", "--profile", "legacy", stdin=b"hello world\n")
    assert added["cid"] == "QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o"
    hashed = run("add", "-", "--profile", "legacy", "--only-hash", stdin=b"hello world\n")
    assert hashed == added


def test_only_hash_stores_nothing(folder: Path) -> None:
    (folder / "in").write_bytes(b"secret")
    run("add", folder / "in", "--only-hash")
    assert not (folder / "store").exists()


def test_folders(folder: Path) -> None:
    (folder / "in" / "sub").mkdir(parents=True)
    (folder / "in" / "sub" / "file").write_bytes(b"below")
    (folder / "in" / "top").write_bytes(b"above")
    cid = run("add", folder / "in")["cid"]
    assert [entry["name"] for entry in run("ls", cid)] == ["sub", "top"]
    assert [entry["name"] for entry in run("ls", cid + "/sub")] == ["file"]
    got = run("get", cid, "-o", folder / "out")
    assert (got["cid"], got["bytes"], got["blocks"]) == (cid, 10, 4)
    assert (folder / "out" / "sub" / "file").read_bytes() == b"below"
    one = run("get", cid + "/sub/file", "-o", folder / "one")
    assert (one["cid"], one["bytes"]) == (str(Cid.of(b"below")), 5)
    assert (folder / "one").read_bytes() == b"below"
    with pytest.raises(NotFound):
        run("get", cid + "/nothing", "-o", folder / "one")


def test_stat_says_what_is_missing(folder: Path) -> None:
    (folder / "in").write_bytes(os.urandom(2 * MIB))
    cid = run("add", folder / "in")["cid"]
    whole = run("stat", cid)
    assert (whole["kind"], whole["bytes"], whole["blocks_here"]) == ("file", 2 * MIB, 3)
    leaf = max((folder / "store" / "blocks").rglob("*"), key=lambda path: path.stat().st_size)
    leaf.unlink()
    assert run("stat", cid)["blocks_missing"] == 1


def test_pins_collection_and_verification(folder: Path) -> None:
    store = LocalStore(folder / "store")
    kept, spare = store.add_bytes(b"kept"), store.add_bytes(b"spare")
    for path in (folder / "store" / "blocks").rglob("*"):
        os.utime(path, (1, 1))
    assert run("pin", str(kept), "--reason", "job/1") == [{"cid": str(kept), "reason": "job/1"}]
    assert run("gc", "--grace-s", "0")["freed_bytes"] == 5
    assert (store.has(kept), store.has(spare)) == (True, False)
    assert run("verify")["blocks"] == 1
    next(p for p in (folder / "store" / "blocks").rglob("*") if p.is_file()).write_bytes(b"kepT")
    with pytest.raises(StorageError, match="1 damaged, 1 pinned"):
        run("verify")
    with pytest.raises(ConfigError, match="is not kept for 'manual'") as caught:
        run("pin", str(kept), "--remove")
    assert caught.value.next_step == "pass --reason, of: job/1"
    assert run("pin", str(kept), "--reason", "job/1", "--remove") == []
    with pytest.raises(ConfigError) as caught:
        run("pin", str(kept), "--reason", "job/1", "--remove")
    assert caught.value.next_step == "`atoll store pin` lists what is kept"


def test_bad_input_is_one_clear_line(folder: Path) -> None:
    for arguments, error in [
        (("add", folder / "absent"), NotFound),
        (("add", folder, "--profile", "v9"), ConfigError),
        (("get", "nonsense", "-o", folder / "x"), ConfigError),
        (("get", str(Cid.of(b"")), "-o", "-"), ConfigError),  # beside --json
        (("stat", "Qm"), ConfigError),
        (("add", folder, "--backend", "floppy"), ConfigError),
        (("pin", "--remove"), ConfigError),
        (("pin", "--reason", "job/1"), ConfigError),
        (("get", str(Cid.of(b"")), "-o", folder / "x", "--gateway", "notaurl"), ConfigError),
    ]:
        with pytest.raises(error):
            run(*arguments)
