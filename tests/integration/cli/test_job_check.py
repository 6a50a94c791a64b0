"""`atoll job check` says what becomes of every file and row that a job names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.jobs import PLAIN, tiny_model
from typer.testing import CliRunner

from atoll.cli.main import app
from atoll.job.toml_files import to_toml


@pytest.mark.parametrize("as_json", [False, True])
def test_every_file_and_row_is_told(as_json: bool, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    rows = [{"text": f"row {i}, of which there are many\n" * 9} for i in range(400)]
    lines = [json.dumps(row) for row in rows] + ['{"text": null}'] * 3
    (texts / "train.jsonl").write_text("\n".join(lines))
    (texts / "notes.csv").write_text("text\nletters of Windows\n", encoding="utf-16")
    (texts / "test.jsonl").write_text(lines[0])
    (texts / "README.md").write_text("about it")
    (texts / ".gitattributes").write_text("x")
    job = PLAIN.but({"model": tiny_model(), "rounds": 1, "data.paths": [str(texts)]})
    file, home = tmp_path / "job.toml", tmp_path / "home"
    file.write_text(to_toml(job))
    ask = ["job", "check", str(file), "--home", str(home), "--json" if as_json else "--explain"]

    refused = CliRunner().invoke(app, ask)
    assert refused.exit_code != 0
    assert "train.jsonl, line 401: 'text' is null" in str(refused.exception)
    done = CliRunner().invoke(app, [*ask, "--set", "data.bad_rows=skip"])
    assert done.exit_code == 0, done.output
    if as_json:
        assert json.loads(done.stdout)["kept_share"] > 0.9
        assert 0 < json.loads(done.stdout)["training_share"] < 1
        assert int(json.loads(done.stdout)["million_wei"]) > 0
        data = json.loads(done.stdout)["data"]
        assert [Path(name).name for name in data["train"]] == ["notes.csv", "train.jsonl"]
        assert {Path(one["path"]).name: one["reason"] for one in data["excluded"]} == {
            ".gitattributes": "hidden",
            "README.md": "it describes the data set",
            "test.jsonl": "split test",
        }
        assert data["skipped_rows"] == {"null in place of text": 3}
    else:
        brief = CliRunner().invoke(app, [*ask[:-1], "--set", "data.bad_rows=skip"])
        assert brief.stdout.splitlines()[0] == done.stdout.splitlines()[0]
        assert len(brief.stdout.splitlines()) <= 10 < len(done.stdout.splitlines())
        share = re.search(r"^updates    (\d+)% of a first one's squared length", done.stdout, re.M)
        assert share is not None and int(share[1]) > 90
        assert "2 files (notes.csv, train.jsonl) to train on" in done.stdout
        assert "excluded   3 of the folders: .gitattributes (hidden); README.md" in done.stdout
        assert "skipped    3 rows: 3 null in place of text" in done.stdout


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # as if it were not installed
from atoll.cli.main import main
sys.argv = ["atoll", *sys.argv[1:]]
main()
"""


def test_without_torch_it_is_sized_and_priced_by_its_shape(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("to be or not to be, that is the question\n" * 9000)
    file = tmp_path / "job.toml"
    job = PLAIN.but({"model": tiny_model(), "rounds": 1, "data.paths": [str(text)]})
    file.write_text(to_toml(job))
    ask = ["job", "check", str(file), "--home", str(tmp_path / "home"), "--json"]
    told = {}
    for name, start in (("here", ["-m", "atoll"]), ("nowhere", ["-c", WITHOUT_TORCH])):
        command = [sys.executable, *start, *ask]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told[name] = json.loads(done.stdout)
    here, nowhere = told["here"], told["nowhere"]
    for same in ("budget_wei", "million_wei", "training_share", "parameters", "train_tokens"):
        assert nowhere[same] == here[same]
    assert nowhere["kept_share"] is None and here["kept_share"] is not None
    assert any("torch is not installed here" in warning for warning in nowhere["warnings"])
    assert not any("torch" in warning for warning in here["warnings"])
    for role, other in zip(here["roles"], nowhere["roles"], strict=True):
        assert 0.9 * role["down"] <= other["down"] <= 1.2 * role["down"]
