"""How much a service takes while rounds go by: memory, disk, and rows of its journal."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from atoll.chain.database import open_read_only
from atoll_devnet.chaos.family import family, resident_bytes
from atoll_devnet.processes.cluster import Member

PART = 4
"""The first and the last quarter of what was seen are compared."""
_TABLES = ("entries", "signed", "notes", "measures")


@dataclass
class Growth:
    """Samples of every measure, each with the number of rounds that had settled by then."""

    _samples: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def look(self, members: Iterable[Member], rounds: int) -> None:
        """Takes a sample of every member that runs."""
        for member in members:
            if member.process.pid is None or not member.process.is_running:
                continue
            for pid, kind in family(member.process.pid).items():
                self._add(f"{member.kind} {kind} resident_bytes", rounds, resident_bytes(pid))
            self._add(f"{member.kind} disk_bytes", rounds, _disk(member))
            self._add(f"{member.kind} journal_rows", rounds, _rows(member))

    def _add(self, name: str, rounds: int, value: int) -> None:
        if value:
            self._samples[name].append((rounds, value))

    def to_json_value(self) -> dict[str, dict[str, Any]]:
        """Of each measure the medians of the first and the last quarter, and what a round adds."""
        return {name: _grown(samples) for name, samples in sorted(self._samples.items())}


def _grown(samples: list[tuple[int, int]]) -> dict[str, Any]:
    some = max(1, len(samples) // PART)
    (first_round, first), (last_round, last) = map(_middle, (samples[:some], samples[-some:]))
    rounds = last_round - first_round
    each = round((last - first) / rounds) if rounds > 0 else None
    return {"first": round(first), "last": round(last), "per_round": each}


def _middle(samples: list[tuple[int, int]]) -> tuple[float, float]:
    rounds, values = zip(*samples, strict=True)
    return median(rounds), median(values)


def _disk(member: Member) -> int:
    """What the member's folder takes; a file that goes while it is counted is not counted."""
    total = 0
    for path in member.folder.rglob("*"):
        try:
            total += path.lstat().st_size
        except OSError:
            continue
    return total


def _rows(member: Member) -> int:
    try:
        with closing(open_read_only(member.journal_file)) as database:
            counts = (database.execute(f"SELECT COUNT(*) FROM {t}") for t in _TABLES)  # noqa: S608 (our own names)
            return sum(int(row.fetchone()[0]) for row in counts)
    except sqlite3.Error:
        return 0
