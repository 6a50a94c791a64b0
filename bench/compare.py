"""Is anything slower than in an older commit? CPU seconds of benches in two trees, as ratios.

    git worktree add /tmp/older COMMIT && python bench/compare.py /tmp/older [--json]
    python bench/compare.py /tmp/older --only codec scale --repeats 5

Each bench of `BENCHES` runs in the older tree and in this one, one after the other, `--repeats`
times; the lowest counts. A run is a process with the sources of its tree and the libraries of this
Python; its seconds are what the system says that it and all that it started took of the processors,
which other work on the machine changes far less than the clock's. The sizes are such that a run
takes seconds, and that importing is the smaller part of it.

The last line is JSON: both commits, and by bench `older_s`, `newer_s` and `ratio`, newer over
older, or `why` there is none, as where the older tree lacks the bench. The exit code is 1 where a
ratio is above `BAR`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("sdk", "node", "verifier", "devnet", ".")
BAR: Final = 1.1
BENCHES: Final[Mapping[str, tuple[str, ...]]] = {
    "chain_reading": ("--blocks", "60", "--join", "600"),
    "codec": ("--d", "16000000", "--repeats", "1"),
    "data": ("--megabytes", "24", "--vocab", "2048"),
    "economics": (),
    "generation": (),
    "jobs": ("--preset", "demo"),
    "judge": ("--parts", "operations", "--elements", "40"),
    "numerics": ("--no-loss", "--repeats", "1"),
    "rl": (),
    "scale": ("--rounds", "10", "100", "--seats", "4", "64", "--jobs", "1", "20"),
}


class NotRun(Exception):
    """A bench that a tree does not have, or that fails there; the message says why."""


def cpu_seconds(tree: Path, name: str) -> float:
    """What one run of the tree's own bench takes. Raises NotRun."""
    script = tree / "bench" / f"{name}.py"
    if not script.exists():
        raise NotRun(f"{tree} has no {script.name}")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(tree / folder) for folder in SOURCES),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(script), *BENCHES[name], "--json"]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=subprocess.DEVNULL, stderr=output
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        words = output.read().decode("utf-8", "replace").strip().splitlines()
    if process.returncode != 0:
        raise NotRun(f"exit code {process.returncode} in {tree}: {words[-1] if words else ''}")
    return used.ru_utime + used.ru_stime


def compared(older: Path, name: str, repeats: int) -> dict[str, Any]:
    """The lowest of both trees, whose runs alternate: what else the machine does meets both."""
    runs: dict[Path, list[float]] = {older: [], ROOT: []}
    try:
        for _ in range(repeats):
            for tree, seconds in runs.items():
                seconds.append(cpu_seconds(tree, name))
    except NotRun as error:
        return {"why": str(error)}
    before, now = min(runs[older]), min(runs[ROOT])
    return {"older_s": round(before, 2), "newer_s": round(now, 2), "ratio": round(now / before, 3)}


def commit_of(tree: Path) -> str:
    """Empty where the tree is no checkout."""
    git = ["git", "-C", str(tree), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("older", type=Path, help="a checkout of the older commit")
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=list(BENCHES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    options = parser.parse_args()
    older, figures = options.older.resolve(), {}
    for name in options.only:
        figures[name] = compared(older, name, options.repeats)
        if not options.json:
            print(f"{name:14} {figures[name]}", flush=True)
    slower = [name for name, figure in figures.items() if figure.get("ratio", 0) > BAR]
    commits = {"older": commit_of(older), "newer": commit_of(ROOT)}
    print(json.dumps({"bench": "compare", **commits, "benches": figures, "slower": slower}))
    return int(bool(slower))


if __name__ == "__main__":
    sys.exit(main())
