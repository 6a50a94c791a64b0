"""What a service has measured, as a JSON file that a report or a person can read.

Names say their unit: `train_seconds`, `replayed_steps`, `bytes_up`. Job 0 and round −1 hold what
belongs to no job and no round.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from atoll.service.journal import Journal

NO_ROUND = -1
"""The round under which measures go that belong to none."""


def write_metrics(journal: Journal, path: Path, about: Mapping[str, object]) -> None:
    """Writes {**about, "jobs": {job: {round: {name: value}}}}, whole or not at all.

    Raises:
        OSError: the file cannot be written.
        StorageError: the journal cannot be read.
    """
    jobs = {
        str(job): {str(round_): names for round_, names in rounds.items()}
        for job, rounds in journal.measures().items()
    }
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    text = json.dumps({**about, "jobs": jobs}, indent=1, sort_keys=True)
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def read_metrics(path: Path) -> dict[str, object]:
    """What `write_metrics` wrote; an empty mapping where there is nothing that can be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not written yet, or by somebody else: measures are no duty
        return {}
    return data if isinstance(data, dict) else {}
