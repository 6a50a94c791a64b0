"""When a round's training has to end, told to the worker while it trains.

Whoever is too slow commits to the whole segments that it has. They are paid where the round merges
anything, and nothing is missed, but where that is a second round of three with too few to merge.
The round may open after its training began, so the time is told through a file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from atoll.protocol.types import Digest, RoundId
from atoll.storage.blocks import disk_errors

if TYPE_CHECKING:
    from atoll.numerics.segment import Course, SegmentRun
    from atoll.numerics.state import SeatState
    from atoll.train.seat_task import SegmentRunner

MARGIN_PART: Final = 16
"""So large a part of TRAIN is left for the update and for the commitment to reach a block."""
SPARE: Final = 1.25
"""A segment may take so many times as long as the longest so far."""
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Of the whole machine, and no wall clock, which may be set. One told before a restart of the
machine, whose count begins anew, is over in truth wherever it seems so.
"""


def since_boot() -> float:
    """Seconds since the machine was started: every process of it counts the same."""
    return time.clock_gettime(_CLOCK)


def deadline_file(store_dir: str, round_id: RoundId, data_seed: Digest) -> Path:
    """Where the end of one opening of a round is told."""
    return Path(store_dir).parent / f"ends-{round_id.job}-{round_id.round}-{data_seed.hex()[:16]}"


def tell(file: Path, seconds_left: float) -> None:
    """Says how long the round's training may take from now on; what was told of others goes.

    Raises StorageError, DiskFull among them, where it cannot be written; tell again.
    """
    job = file.name.split("-")[1]
    with disk_errors(file):
        for old in file.parent.glob(f"ends-{job}-*"):
            old.unlink(missing_ok=True)
        file.write_text(repr(since_boot() + seconds_left), encoding="ascii")


class Limit:
    """Runs segments, and says when another one would come too late.

    Args:
        file: see `tell`; until it is there nothing ends.
        run: how a segment is trained.
        clock: that of `tell`, in seconds.
    """

    def __init__(
        self, file: Path, run: SegmentRunner, clock: Callable[[], float] = since_boot
    ) -> None:
        self._file, self._run, self._clock = file, run, clock
        self._longest = 0.0

    def __call__(self, states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        started = self._clock()
        segment_run = self._run(states, segment, course)
        self._longest = max(self._longest, self._clock() - started)
        return segment_run

    def is_reached(self, segments: int) -> bool:
        """Whether a further segment would end after the time that was told."""
        del segments
        with suppress(OSError, ValueError):  # not told yet, or being written
            ends = float(self._file.read_text(encoding="ascii"))
            return self._clock() + SPARE * self._longest > ends
        return False
