"""Whether other programs use this machine, as Linux tells it; elsewhere they never do."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STAT: Final = Path("/proc/stat")
AWHILE_SECONDS: Final = 300.0
"""Over so long the share is taken: a page that is opened is no reason to give up a place."""
USER, NICE, SYSTEM, COLUMNS = 0, 1, 2, 8
"""Of the line `cpu` in STAT (proc(5)); behind the last column used is time of guests, which is the
user's, too."""


@dataclass(frozen=True, slots=True)
class Ticks:
    """Time of all cores since the machine began, in ticks of the clock.

    Attributes:
        others: of programs that have the usual priority, without this process's own.
        all: of everything, idling included.
    """

    others: float
    all: float


def ticks(stat: Path = STAT) -> Ticks | None:
    """What the machine did so far; None where it does not say.

    Training and replays have a lower priority (`worker_niceness`), which is a column of its own.
    """
    try:
        name, *columns = stat.read_text(encoding="ascii").split("\n", 1)[0].split()
        spent = [int(column) for column in columns[:COLUMNS]]
        usual = spent[USER] + spent[SYSTEM]
    except (OSError, ValueError, IndexError):
        return None
    mine = os.times()
    ours = (mine.user + mine.system) * os.sysconf("SC_CLK_TCK")
    return Ticks(usual - ours, sum(spent)) if name == "cpu" else None


class Occupied:
    """Notices when other programs have taken more of the machine than the operator allows.

    Args:
        most: share of the time of all cores; None never looks. They are done once it is half of it.
    """

    def __init__(self, most: float | None, stat: Path = STAT) -> None:
        self._most = most
        self._stat = stat
        self._seen: deque[tuple[float, Ticks]] = deque()
        self.why_out = ""

    def look(self, now: float) -> bool:
        """Whether `why_out` is another than before; `now` in seconds of a clock that only rises."""
        share = None if self._most is None else self._share(now)
        if self._most is None or share is None:
            return False
        before = self.why_out
        bound = self._most / 2 if before else self._most
        self.why_out = (
            "finds the machine in use by others, and its schedule has it wait until they are done"
            if share > bound
            else ""
        )
        return self.why_out != before

    def _share(self, now: float) -> float | None:
        """Of the last while; None before there was one."""
        now_ticks = ticks(self._stat)
        if now_ticks is None:
            return None
        self._seen.append((now, now_ticks))
        while len(self._seen) > 1 and now - self._seen[1][0] >= AWHILE_SECONDS:
            self._seen.popleft()
        began, then = self._seen[0]
        if now - began < AWHILE_SECONDS or now_ticks.all <= then.all:
            return None
        return (now_ticks.others - then.others) / (now_ticks.all - then.all)
