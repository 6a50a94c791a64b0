"""What a terminal shows: words of strangers, too, which must not steer it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, MutableMapping
from typing import Any, Final, TextIO

_STEERS: Final = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but tab and newline, further ends of lines, turns of direction, and halves of
letters, which no output takes."""


def printable(text: str) -> str:
    """The text without what would steer the terminal of who reads it."""
    return _STEERS.sub("?", text)


def for_people(stream: TextIO) -> list[Callable[..., Any]]:
    """The last of structlog's processors where people read: a line for each event, and tracebacks;
    with colours on a terminal, unless NO_COLOR is set.
    """
    import structlog  # noqa: PLC0415 (a second, which what only prints does not need)

    return [
        # Also the traceback becomes text, which the next one looks at.
        structlog.processors.format_exc_info,
        _without_steering,
        structlog.dev.ConsoleRenderer(
            colors=stream.isatty() and not os.environ.get("NO_COLOR"),
            # The prettier ones print every local variable, a whole job's view among them.
            exception_formatter=structlog.dev.plain_traceback,
        ),
    ]


def _without_steering(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    # What is no text is shown as its `repr`, which writes out what would steer.
    return {k: printable(v) if isinstance(v, str) else v for k, v in event.items()}
