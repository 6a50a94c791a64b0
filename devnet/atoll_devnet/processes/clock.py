"""A clock that is wrong: unix time as every process of one member reads it.

The chain's time is in its blocks; what a service asks its own clock is `time.time()`, and that is
what is moved here, by a whole offset, before anything of the service is imported. Durations
(`time.monotonic`) stay right, as they do on a machine whose clock was set wrongly.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

VARIABLE: Final = "ATOLL_DEVNET_CLOCK"
"""Seconds that processes started from this one are ahead."""
SITE: Final = Path(__file__).parent / "skewed"
"""A folder for PYTHONPATH: Python imports its `sitecustomize` before anything else."""
_right = time.time
_ahead = 0.0


def install() -> None:
    """Has every later import find the clock that `shift` moves."""
    shift(float(os.environ.get(VARIABLE, "0")))
    time.time = _now


def shift(seconds: float) -> None:
    """This process, and what it forks or starts, is so many seconds ahead of the right time."""
    global _ahead  # noqa: PLW0603 (a process has one clock)
    _ahead = seconds
    if seconds:
        os.environ[VARIABLE] = repr(seconds)
        others = (path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)
        paths = dict.fromkeys([str(SITE), *others])
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def _now() -> float:
    return _right() + _ahead
