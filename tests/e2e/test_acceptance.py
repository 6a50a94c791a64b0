"""The run that the project is judged by, at its full size, through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .conftest import check_books, faults, provider

ARGUMENTS = ("--providers", "4", "--verifiers", "3", "--set", "rounds=4", "--set", "init.seed=7")
CHEATS = ("--cheat", "2:lazy", "--cheat", "3:sign-flip")


def _run(folder: Path) -> dict[str, Any]:
    report = folder / "report.json"
    command = [sys.executable, "-m", "atoll.cli.main", "devnet", "run", *ARGUMENTS, *CHEATS]
    command += ["--report", str(report), "--folder", str(folder / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=570, check=False)
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(report.read_text())
    return read


def test_two_cheats_are_slashed_and_the_honest_are_paid_each_round(tmp_path: Path) -> None:
    report = _run(tmp_path)
    check_books(report)
    assert report["job"]["status"] == "done"
    for seat, fault in ((2, "wrong-replay"), (3, "wrong-link")):
        assert int(provider(report, seat)["slashed_wei"]) > 0
        assert fault in faults(report, seat)
    for seat in (0, 1):
        honest = provider(report, seat)
        assert honest["accepted_rounds"] == 4
        assert int(honest["paid_wei"]) > 0
    assert report["eval"]["loss_end"] <= 0.75 * report["eval"]["loss_start"]
    assert all(cheat["caught"] for cheat in report["cheats"])
    assert report["bytes"]["update_bytes_per_parameter"] < 2.2
    assert (Path(report["result_dir"]) / "model.safetensors").is_file()
