"""How fast the robust rules merge int8 updates, against one read of the fp32 input and byzfl.

    python bench/aggregate.py --n 16 --d 10000000 --f 3 --json
    python bench/aggregate.py --n 64 --d 100000000 --f 16 --files DIR

The last line is JSON: per rule `seconds`, `times_read` (seconds over one torch.sum of the n × d
fp32 input), `times_faster_than_byzfl` (null where byzfl lacks the rule) and `extra_mib` (peak
memory beyond input and output; Linux). Every timing, byzfl's as ours, is the best of `--repeats`:
of fewer where they take two seconds before, of more until they have taken one.

byzfl 0.0.11 is measured where it can be imported, else with `--byzfl PYTHON`, else with
.venv-byzfl, which is made if it is not there. Both sides get what a server has when a round is
over: a list of n updates, each an array of its own. byzfl's first act is to stack them;
`byzfl_stacked_seconds` is its time on a matrix that somebody else has stacked. A plain mean takes
as long as its bytes, and n = 16 stacked fp32 rows have only 3.4 times as many as int8 rows and an
int32 result.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from atoll.aggregation.chunks import PassPlan
from atoll.aggregation.merge_kernels import kernels
from atoll.aggregation.rules import aggregate
from atoll.job.methods import DENSE_RULE
from atoll.protocol.rules import RULES

SHORT_S, ENOUGH_S = 1.0, 2.0
CASES = (
    *(name for name, rule in RULES.items() if not (rule.mixes or rule.is_sparse)),
    "nnm_trimmed_mean",
    "nnm_geometric_median",
)
BYZFL = {
    "mean": "Average()",
    "median": "Median()",
    "trimmed_mean": "TrMean(f={f})",
    "geometric_median": "GeometricMedian(nu=0.1, T=8)",
    "krum": "Krum(f={f})",
    "multi_krum": "MultiKrum(f={f})",
    "centred_clip": "CenteredClipping(L=5, tau=1.0)",
    "minimum_diameter": "MDA(f={f})",
    "nnm_trimmed_mean": "TrMean(f={f})",
    "nnm_geometric_median": "GeometricMedian(nu=0.1, T=8)",
}


def best_seconds(work: Callable[[], object], repeats: int) -> float:
    """The shortest of `repeats` runs; of more if they are short, of fewer if they are long."""
    times: list[float] = []
    while sum(times) < (SHORT_S if len(times) >= repeats else ENOUGH_S):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def honest_updates(n: int, d: int) -> np.ndarray:
    """(n, d) int8: a common direction and noise, as pseudo-gradients of honest seats have."""
    rng = np.random.default_rng(0)
    common = rng.integers(-40, 41, d, dtype=np.int8)
    rows = np.empty((n, d), dtype=np.int8)
    for row in rows:
        row[:] = common + rng.integers(-40, 41, d, dtype=np.int8)
    return rows


def read_seconds(n: int, d: int, threads: int) -> float:
    """One read of n × d fp32 values by torch.sum."""
    torch.set_num_threads(threads)
    values = torch.ones(n, d)
    return best_seconds(values.sum, 5)


def status_kib(field: str) -> int:
    """A memory field of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{field}:")))


def extra_mib(args: argparse.Namespace, case: str) -> float:
    """Peak memory beyond input and output, in a process of its own."""
    command = [sys.executable, __file__, "--probe-memory", case]
    command += ["--n", str(args.n), "--d", str(args.d), "--f", str(args.f)]
    command += ["--threads", str(args.threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def probe_memory(args: argparse.Namespace) -> None:
    """Prints the MiB by which one rule raises the peak, less its output."""
    rows = list(honest_updates(args.n, args.d))
    plan = PassPlan(threads=args.threads)
    kernels()
    before = status_kib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    aggregate(args.probe_memory, rows, args.f, plan=plan)
    print((status_kib("VmHWM") - before) / 1024 - 4 * args.d / 2**20)


def byzfl_python() -> str:
    """An interpreter that has byzfl."""
    if importlib.util.find_spec("byzfl"):
        return sys.executable
    root = Path(__file__).resolve().parent.parent
    own = root / ".venv-byzfl" / "bin" / "python"
    if not own.exists():
        subprocess.run(["make", "-C", root, ".venv-byzfl"], check=True, stdout=sys.stderr)
    return str(own)


def byzfl_seconds(args: argparse.Namespace, case: str) -> tuple[float, float] | None:
    """byzfl's times for the same rule on fp32 tensors, listed and stacked; None if it has none."""
    if case not in BYZFL:
        return None
    command = [args.byzfl, "-W", "ignore", __file__, "--probe-byzfl", case]
    command += ["--n", str(args.n), "--d", str(args.d), "--f", str(args.f)]
    command += ["--threads", str(args.threads), "--repeats", str(args.repeats)]
    paths = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent / "sdk")}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=paths)
    if done.returncode:
        print(f"byzfl {case}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    listed, stacked = done.stdout.split()
    return float(listed), float(stacked)


def probe_byzfl(args: argparse.Namespace) -> None:
    """Prints byzfl's seconds, listed and stacked, without its __init__, which wants torchvision."""
    package = types.ModuleType("byzfl")
    found = importlib.util.find_spec("byzfl")
    package.__path__ = list(found.submodule_search_locations or []) if found else []
    sys.modules["byzfl"] = package
    from byzfl.aggregators import aggregators, preaggregators  # type: ignore[import-not-found]

    torch.set_num_threads(args.threads)
    rows = [torch.from_numpy(row).float() for row in honest_updates(args.n, args.d)]
    name, _, rest = BYZFL[args.probe_byzfl].format(f=args.f).partition("(")
    given = dict(item.split("=") for item in rest.rstrip(")").split(", ") if item)
    keywords = {key: float(v) if "." in v else int(v) for key, v in given.items()}
    rule = getattr(aggregators, name)(**keywords)
    mix = preaggregators.NNM(f=args.f) if args.probe_byzfl.startswith("nnm_") else lambda x: x
    for values in (rows, torch.stack(rows)):
        print(best_seconds(lambda values=values: rule(mix(values)), args.repeats))


def measure(args: argparse.Namespace) -> dict[str, object]:
    """The table for updates in memory."""
    read = read_seconds(args.n, args.d, args.threads)
    args.byzfl = args.byzfl or byzfl_python()
    rows = list(honest_updates(args.n, args.d))
    plan = PassPlan(threads=args.threads)
    aggregate("median", rows, args.f, plan=plan)  # compiles the kernels where that is possible
    rules = {}
    for case in CASES:
        work = lambda rule=case: aggregate(rule, rows, args.f, plan=plan)  # noqa: E731
        seconds = best_seconds(work, args.repeats)
        byzfl = byzfl_seconds(args, case)
        rules[case] = {
            "seconds": round(seconds, 4),
            "times_read": round(seconds / read, 2),
            "byzfl_seconds": byzfl and round(byzfl[0], 3),
            "byzfl_stacked_seconds": byzfl and round(byzfl[1], 3),
            "times_faster_than_byzfl": byzfl and round(byzfl[0] / seconds, 1),
            "extra_mib": round(extra_mib(args, case), 1),
        }
        if not args.json:
            print(f"{case:22} {rules[case]}")
    return {"read_seconds": round(read, 4), "compiled": kernels() is not None, "rules": rules}


def measure_files(args: argparse.Namespace) -> dict[str, object]:
    """The default rule over memory-mapped files: time, its ratio to reading them, peak memory."""
    with tempfile.TemporaryDirectory(dir=args.files) as folder:
        paths = [Path(folder) / f"{i}.int8" for i in range(args.n)]
        rng = np.random.default_rng(0)
        for path in paths:
            with path.open("wb") as file:
                for start in range(0, args.d, 1 << 22):
                    width = min(1 << 22, args.d - start)
                    file.write(rng.integers(-127, 128, width, dtype=np.int8).tobytes())
        started = time.perf_counter()
        for path in paths:
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 22):
                    pass
        read = time.perf_counter() - started
        rows = [np.memmap(path, dtype=np.int8, mode="r") for path in paths]
        plan = PassPlan(threads=args.threads)
        done = []
        work = lambda: done.append(aggregate(DENSE_RULE, rows, args.f, plan=plan))  # noqa: E731
        seconds = best_seconds(work, 1)
        anonymous_kib = status_kib("RssAnon")
    return {
        "rule": DENSE_RULE,
        "seconds": round(seconds, 2),
        "read_files_seconds": round(read, 2),
        "times_read_files": round(seconds / read, 2),
        "memory_with_output_mib": round(anonymous_kib / 1024, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--d", type=int, default=10_000_000)
    parser.add_argument("--f", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    parser.add_argument("--files", metavar="DIR", help="merge from files made below DIR")
    parser.add_argument("--byzfl", metavar="PYTHON", help="an interpreter that has byzfl 0.0.11")
    parser.add_argument("--probe-memory", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--probe-byzfl", choices=BYZFL, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.probe_memory:
        return probe_memory(args)
    if args.probe_byzfl:
        return probe_byzfl(args)
    settings = {"n": args.n, "d": args.d, "f": args.f, "threads": args.threads}
    print(json.dumps(settings | (measure_files(args) if args.files else measure(args))))
    return None


if __name__ == "__main__":
    main()
