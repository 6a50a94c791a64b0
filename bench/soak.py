"""A network in bad chaos: nothing lost, nothing signed twice, nobody honest slashed.

    python bench/soak.py [--minutes 10] [--json] [--pause 5] [--seed 0] [--folder PATH]

Three providers, three verifiers, two who come and go, two jobs at a time; the last line is JSON.
Every few seconds one of these, drawn by the seed: any process is killed (-9), the chain included;
the newest 1 to 64 blocks become others; the chain restarts, or answers nobody; a disk is full;
a link carries nothing, or little; a member joins, or leaves. Two members' clocks are an hour wrong.
Disks and links take root; without it they are excluded, and `done` does not count them.

`lost`: jobs that did not come to their end. `signed_twice`: subjects of members' journals with two
contents, or that were forgotten. `slashed`, `missed_duties`, `money`: of honest members, all of
them. `findings`: processes that ended by themselves, and defects in their logs. `growth`: medians
of the first and the last quarter, and what a settled round adds. It exits with 1 where anything but
missed duties is not empty.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from atoll.cli.output import configure_logs
from atoll.job.presets import preset
from atoll.job.spec import JobSpec
from atoll_devnet.chaos.faults import WEIGHTS
from atoll_devnet.chaos.network import storm
from atoll_devnet.chaos.storm import StormConfig, holds, rage
from atoll_devnet.processes.ending import run_until_told
from atoll_devnet.run.options import fitting, with_text

PROVIDERS, VERIFIERS = 3, 3
SMALL = {"width": 32, "layers": 2, "heads": 2, "kv_heads": 2, "ffn": 64, "seq": 32}
JOB = {
    "rounds": 3,
    "lifetime": "2d",
    "data.max_tokens": 200_000,
    "inner.steps": 16,
    "inner.segment": 2,
    "inner.batch": 4,
    "evaluate.batches": 2,
    "windows.train": 150,
    "windows.reveal": 60,
    "windows.merge": 90,
    "windows.audit": 150,
    "windows.open": 40,
    "windows.key": 60,
    "windows.window": 240,
    "windows.game": 120,
}
"""Windows in which a machine that died can do its work twice."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--json", action="store_true", help="nothing but the last line")
    parser.add_argument("--pause", type=float, default=5.0, help="seconds between troubles")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default="", help="where to work; else the temporary folder")
    asked = parser.parse_args()
    configure_logs()  # to standard error
    with tempfile.TemporaryDirectory(prefix="atoll-soak-", dir=asked.folder or None) as folder:
        config = StormConfig(
            folder=Path(folder) / "net",
            job=small_job(),
            providers=PROVIDERS,
            verifiers=VERIFIERS,
            seconds=60 * asked.minutes,
            pause=asked.pause,
            seed=asked.seed,
            is_rooted=os.geteuid() == 0,
        )
        found = run_until_told(chaos(config, is_quiet=asked.json))
    print(json.dumps(found))
    sys.exit(not holds(found))


def small_job() -> JobSpec:
    """A job whose round takes a second or two, over some of the standard library."""
    job = preset("demo")
    model = job.model.model_copy(update=SMALL)
    room = fitting(job, PROVIDERS + 1, VERIFIERS + 1)  # for those who come and go
    return with_text(room.but({"model": model, "members.min_verifiers": 2, **JOB}))


async def chaos(config: StormConfig, *, is_quiet: bool) -> dict[str, Any]:
    """Runs it all, and judges."""

    def tell(line: str) -> None:
        if not is_quiet:
            print(line, flush=True)

    async with storm(config, tell) as found:
        await rage(found, WEIGHTS)
        await found.calm()
        return {"bench": "soak", **await found.verdict()}


if __name__ == "__main__":
    main()
