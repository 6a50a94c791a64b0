"""Benches that no other test runs still run, in their smallest setting, and are compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SMALL = ("--width", "64", "--layers", "1", "--seq", "16", "--batch", "2", "--steps", "1")


@pytest.mark.parametrize("mode", ["native", "exact"])
def test_a_mode_of_the_numerics_bench_takes_its_steps(mode: str) -> None:
    command = [sys.executable, str(BENCH / "numerics.py"), "--mode", mode, *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["step_ms"] > 0


def test_the_islands_bench_counts_what_ranks_send() -> None:
    """And its two ways come to one digest, which it asserts itself."""
    shape = ("--width", "64", "--layers", "2", "--vocab", "32", "--seq", "16", "--steps", "1")
    command = [sys.executable, str(BENCH / "islands.py"), "--json", *shape]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    count = document["parameters"]
    sent = document["island"]["bytes"]
    # Linears go as a byte a number, gradients as four, once, to whoever holds the rows.
    assert count < sent["broadcast"] < 2 * count
    assert 4 * count <= sent["all_to_all_single"] < 4.1 * count
    assert sent["gather"] == 2 * 8  # the losses
    assert sent["all_reduce"] < 1000  # a word, and then a sum, of each tensor; two flags
    assert document["gathers_of_fsdp2"] < 0.55
    assert document["all_of_fsdp2"] < 0.8
    assert isinstance(document["ddp_step_s"], float)


def compared(older: Path) -> dict[str, Any]:
    """What is said of one bench in that tree and in this one."""
    command = [sys.executable, str(BENCH / "compare.py"), str(older), "--json", "--repeats", "1"]
    done = subprocess.run(
        [*command, "--only", "economics"], capture_output=True, text=True, check=False
    )
    figures: dict[str, Any] = json.loads(done.stdout)["benches"]["economics"]
    return figures


def test_a_bench_of_two_trees_is_a_ratio(tmp_path: Path) -> None:
    figures = compared(BENCH.parent)
    assert figures["older_s"] > 0
    assert figures["newer_s"] > 0
    assert figures["ratio"] > 0
    assert compared(tmp_path) == {"why": f"{tmp_path} has no economics.py"}


def test_rewards_are_learned_as_trl_learns_them() -> None:
    """In an environment of its own, `.venv-trl`, which `make test-all` has."""
    command = [sys.executable, str(BENCH / "rl_trl.py"), "--json", "--width", "64"]
    threads = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=threads)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["within"].count(True) >= 4
    assert len(report["within"]) == 5
    first, *_, last = report["atoll"]["mean"]
    assert last > 1.3 * first
    assert min(report["tokens_per_second"].values()) > 0


def test_the_shards_bench_counts_what_each_rank_holds() -> None:
    """A share of what one process does, with one digest."""
    command = [sys.executable, str(BENCH / "shards.py"), "--preset", "nano", "--layers", "1"]
    shape = ("--json", "--seq", "8", "--steps", "1", "--ranks", "1", "2")
    done = subprocess.run([*command, *shape], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["one_digest"]
    assert document["holds"]
    assert [len(group["held_bytes"]) for group in document["groups"].values()] == [1, 2]
    assert sum(document["groups"]["2"]["held_bytes"]) == 16 * document["parameters"]
    for group in document["groups"].values():
        assert all(peak < group["said_bytes"] for peak in group["peak_bytes"])


def test_the_shards_bench_has_adapters_on_a_base_in_rows() -> None:
    command = [sys.executable, str(BENCH / "shards.py"), "--preset", "nano", "--layers", "1"]
    shape = ("--json", "--seq", "8", "--steps", "1", "--ranks", "1", "2", "--adapters", "4")
    done = subprocess.run([*command, *shape], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["one_digest"]
    first, second = document["groups"]["2"]["base_bytes"]
    assert 0.9 < first / second < 1.1
    assert document["groups"]["1"]["gathered_bytes"] == 0
    assert document["groups"]["2"]["gathered_bytes"] > first + second
