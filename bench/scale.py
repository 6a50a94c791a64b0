"""What each block and each event costs a member, by the size of its job: CPU seconds and counts.

    python bench/scale.py [--json] [--rounds 10 100 1000] [--seats 4 64] [--jobs 1 20 200]

Jobs are synthetic: every seat trains, every vote is cast, every audit is opened and nobody lies. No
chain, no network, no wall clock: a figure is of one process, and `calls` are the function calls
that it made, which are the same on every machine.

    step   a provider's and a verifier's step at a block where nothing happened
    fold   what one event costs: CPU of all of `rounds` rounds from nothing, calls of the newest
    kept   bytes of the folded log as a member keeps it, and for how long it is read when it starts
    jobs   what a block costs who follows so many jobs, where nothing happened in them

Bars: a step at 1,000 rounds calls at most twice what it does at 10, and so does an event's fold.
Each size is printed once it is measured. Events are made as they are folded, which is half of the
time: a round of 64 seats has 242.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.counting import calls_of, folded, idle_step
from tests.support.synthetic_chain import ROUND_SECONDS, SyntheticJob

from atoll.chain.follower import Fold
from atoll.protocol.types import JobId

REPEATS = 20
SLOTS = {4: 7, 64: 15, 256: 31}
"""Verifiers of a job of so many seats."""


def _measured(work: Callable[[], object], repeats: int = REPEATS) -> dict[str, Any]:
    calls, start = calls_of(work), time.process_time()
    for _ in range(repeats):
        work()
    return {"cpu_ms": round(1e3 * (time.process_time() - start) / repeats, 3), "calls": calls}


def _of_size(seats: int, rounds: int) -> dict[str, Any]:
    job = SyntheticJob(seats=seats, slots=SLOTS.get(seats, 7), rounds=rounds)
    start = time.process_time()
    done = folded(job)
    making = time.process_time() - start - done.cpu_s
    view, count = done.fold.views[job.job], done.fold.count
    kept = done.fold.to_bytes()
    start = time.process_time()
    assert Fold.from_bytes(kept) is not None
    reading = time.process_time() - start
    return {
        "seats": seats,
        "slots": job.slots,
        "rounds": rounds,
        "events": count,
        "provider_step": _measured(idle_step(view, job.providers[0], is_verifier=False)),
        "verifier_step": _measured(idle_step(view, job.verifiers[0], is_verifier=True)),
        "fold_us_an_event": round(1e6 * done.cpu_s / count, 1),
        "fold_calls_an_event": round(done.calls_an_event, 1),
        "fold_s": round(done.cpu_s, 2),
        "kept_bytes": len(kept),
        "kept_read_s": round(reading, 2),
        "making_events_s": round(making, 2),
        "largest_memory_mib": getrusage(RUSAGE_SELF).ru_maxrss >> 10,
    }


def _of_jobs(jobs: int) -> dict[str, Any]:
    """All alike, as a watcher of every job has them."""
    views = {number: SyntheticJob(JobId(number), rounds=10).view() for number in range(1, jobs + 1)}
    steps = [
        idle_step(view, SyntheticJob(JobId(number)).providers[0], is_verifier=False)
        for number, view in views.items()
    ]
    return {"jobs": jobs, "block": _measured(lambda: [step() for step in steps], 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, nargs="+", default=[10, 100, 1_000])
    parser.add_argument("--seats", type=int, nargs="+", default=[4, 64])
    parser.add_argument("--jobs", type=int, nargs="*", default=[1, 20, 200])
    options = parser.parse_args()
    sizes = [(seats, rounds) for rounds in sorted(options.rounds) for seats in options.seats]
    document: dict[str, Any] = {
        "bench": "scale",
        "round_seconds": ROUND_SECONDS,
        "sizes": [_told(_of_size(*size), options) for size in sizes],
        "jobs": [_told(_of_jobs(jobs), options) for jobs in options.jobs],
    }
    print(json.dumps(document))


def _told(measured: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Prints it at once, unless only the last line is asked for."""
    if not options.json:
        print(json.dumps(measured), flush=True)
    return measured


if __name__ == "__main__":
    main()
