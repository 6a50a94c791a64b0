"""Where a process of a service writes its log, whatever becomes of it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import structlog


class Lines(structlog.WriteLogger):
    """Writes lines; one that a full disk or a reader that is gone refuses is left out.

    What is logged is done or about to be done: no duty may fail for the word about it.
    """

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def lines_to(stream: TextIO) -> Callable[..., Lines]:
    """What makes structlog's loggers of a stream."""
    return lambda *_: Lines(stream)


def level_here() -> int:
    """From which level up this process logs; the lowest where it logs by a class of its own, which
    another process may not know.
    """
    is_known = hasattr(structlog.get_config()["wrapper_class"], "get_effective_level")
    return int(structlog.get_logger().bind().get_effective_level()) if is_known else logging.NOTSET


def log_from(level: int) -> None:
    """This process logs from that level up, as who started it does."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))


@contextlib.contextmanager
def log_file(path: Path) -> Iterator[TextIO]:
    """Adds lines to a file. Raises OSError where it cannot be opened."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = path.open("a", buffering=1, encoding="utf-8")
    try:
        yield stream
    finally:
        with contextlib.suppress(OSError):  # lines that no room was found for until now
            stream.close()
