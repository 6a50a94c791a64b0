"""What a service has measured, as a JSON file that a report or a person can read.

Names say their unit: `train_seconds`, `replayed_steps`, `bytes_up`, `gas_commit`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from atoll.runtime.journal import Journal

NO_ROUND = -1
"""The round under which measures go that belong to none."""


def write_metrics(journal: Journal, path: Path, account: str, role: str) -> None:
    """Writes {account, role, jobs: {job: {round: {name: value}}}}, whole or not at all."""
    jobs = {
        str(job): {str(round_): names for round_, names in rounds.items()}
        for job, rounds in journal.measures().items()
    }
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    body = {"account": account, "role": role, "jobs": jobs}
    partial.write_text(json.dumps(body, indent=1, sort_keys=True), encoding="utf-8")
    partial.replace(path)


def read_metrics(path: Path) -> dict[str, object]:
    """What `write_metrics` wrote; an empty mapping where there is nothing yet."""
    try:
        data: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return data
