"""`atoll devnet demo` from the built wheel, in an empty folder: what a first user types.

`make test-wheels` does so on every Python, with libraries that pip fetches.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.installed import installed, run
from tests.support.releases import ROOT, build_wheel


def test_the_demo_runs_from_a_wheel(tmp_path: Path) -> None:
    """It fetches its own chain, since there is no checkout with one."""
    python = installed(build_wheel(ROOT, tmp_path / "wheels"), tmp_path / "environment")
    empty = tmp_path / "empty"
    empty.mkdir()
    run(python.with_name("atoll"), "devnet", "demo", "--report", "report.json", folder=empty)
    report = json.loads((empty / "report.json").read_text())
    assert report["job"]["status"] == "done"
    assert all(cheat["caught"] for cheat in report["cheats"])
    assert report["eval"]["loss_end"] <= 0.75 * report["eval"]["loss_start"]
    assert "Two of its four providers cheat" in report["what"]["about"]
    far = [seat["rounds"][-1]["distance"] for seat in report["seats"]]
    assert far[3] > 2 * max(far[:2])  # it turns its update around, five times as long
    assert (Path(report["result_dir"]) / "model.safetensors").is_file()
