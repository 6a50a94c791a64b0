"""What the tests of `MemberProcess` start."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Final

import structlog

from atoll.service.task import Task

LOGS_TO_STDERR: Final[Task[[], bool]] = Task("test-logs-to-stderr.v1", __name__)


def run(arguments: list[str]) -> int:
    """Says that it runs and what is loaded, then waits for its end, or fails if told to."""
    started, *rest = arguments
    sys.stdout.write(f"torch is loaded: {'torch' in sys.modules}\n")
    sys.stdout.flush()
    Path(started).write_text("started")
    if rest:
        raise RuntimeError(*rest)
    threading.Event().wait()
    return 0


@LOGS_TO_STDERR.runs
def logs_to_stderr() -> bool:
    """Whether what this process logs goes there, and not where programs read data."""
    logger = structlog.get_config()["logger_factory"]()
    return logger._file is sys.stderr
