"""The run that the project is judged by, at its full size: what `make demo` runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .conftest import check_ledger, provider

CHEATS = (2, 3)
"""One has leaves that lie, and defends them; the other an update that is not its work's."""


def _run(folder: Path) -> dict[str, Any]:
    report = folder / "report.json"
    command = [sys.executable, "-m", "atoll.cli.main", "devnet", "demo", "--stranger"]
    command += ["--report", str(report), "--folder", str(folder / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(report.read_text())
    return read


def test_two_cheats_lose_their_bonds_and_the_honest_are_paid_each_round(tmp_path: Path) -> None:
    report = _run(tmp_path)
    check_ledger(report)
    assert report["job"]["status"] == "done"
    slashed = {game["seat"] for game in report["games"] if game["outcome"] == "holder lost"}
    assert slashed == set(CHEATS)
    caught = {cheat["who"]: cheat["round"] for cheat in report["cheats"]}
    for seat in CHEATS:
        cheat = provider(report, seat)
        # Chance draws some of the seats, in the last round all: what was FINAL before is paid.
        assert cheat["paid_rounds"] <= caught[f"provider {seat}"]
        assert int(cheat["slashed_wei"]) > 100 * int(cheat["paid_wei"])
    for seat in (0, 1):
        honest = provider(report, seat)
        assert honest["paid_rounds"] == 4
        assert int(honest["paid_wei"]) > 0
    assert report["eval"]["loss_end"] <= 0.75 * report["eval"]["loss_start"]
    assert all(cheat["caught"] for cheat in report["cheats"])
    assert report["measured"]["bytes"]["update_bytes_per_parameter"] < 2.2
    assert (Path(report["result_dir"]) / "model.safetensors").is_file()
