"""What a service has measured, as a JSON file that a report or a person can read.

Names say their unit: `train_seconds`, `replayed_steps`, `bytes_up`. Job 0 and round −1 hold what
belongs to no job and no round.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from atoll.chain.database import open_read_only
from atoll.nested import loads

Measure = tuple[int, int, str, float]
"""Job, round, name and sum."""
NO_ROUND = -1
"""The round under which measures go that belong to none."""


def read_measures(journal: Path) -> list[Measure]:
    """Every measure of a journal's file, in any thread, whoever has it open.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    with closing(open_read_only(journal)) as database:
        return database.execute("SELECT job, round, name, value FROM measures").fetchall()


def write_metrics(measures: Sequence[Measure], path: Path, about: Mapping[str, object]) -> None:
    """Writes {**about, "jobs": {job: {round: {name: sum}}}}, whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    jobs: dict[str, dict[str, dict[str, float]]] = {}
    for job, round_, name, value in measures:
        jobs.setdefault(str(job), {}).setdefault(str(round_), {})[name] = value
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    text = json.dumps({**about, "jobs": jobs}, indent=1, sort_keys=True)
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def read_metrics(path: Path) -> dict[str, object]:
    """What `write_metrics` wrote; an empty mapping where there is nothing that can be read."""
    try:
        data = loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not written yet, or by somebody else: measures are no duty
        return {}
    return data if isinstance(data, dict) else {}
