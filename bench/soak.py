"""A network in bad weather: nothing lost, nothing signed twice, nobody honest slashed.

    python bench/soak.py [--minutes 10] [--json] [--pause 5] [--seed 0] [--folder PATH]

Three providers, three verifiers and two jobs at a time; every process is killed (-9) now and then,
the chain included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from atoll.job.presets import preset
from atoll.job.spec import JobSpec
from atoll_devnet.run.options import fitting, with_text
from atoll_devnet.weather.kills import kill_one
from atoll_devnet.weather.storm import StormConfig, holds, rage, storm

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
    with tempfile.TemporaryDirectory(prefix="atoll-soak-", dir=asked.folder or None) as folder:
        config = StormConfig(
            folder=Path(folder) / "net",
            job=small_job(),
            providers=PROVIDERS,
            verifiers=VERIFIERS,
            seconds=60 * asked.minutes,
            pause=asked.pause,
            seed=asked.seed,
        )
        found = asyncio.run(weather(config, is_quiet=asked.json))
    print(json.dumps(found))
    sys.exit(not holds(found))


def small_job() -> JobSpec:
    """A job whose round takes a second or two, over some of the standard library."""
    job = preset("demo")
    model = job.model.model_copy(update=SMALL)
    return with_text(fitting(job, PROVIDERS, VERIFIERS).but({"model": model, **JOB}))


async def weather(config: StormConfig, *, is_quiet: bool) -> dict[str, Any]:
    """Runs it all, and judges."""

    def tell(line: str) -> None:
        if not is_quiet:
            print(line, flush=True)

    async with storm(config, tell) as found:
        await rage(found, kill_one)
        await found.calm()
        return {"bench": "soak", **await found.verdict()}


if __name__ == "__main__":
    main()
