"""How every command speaks: data on standard output, words about it on standard error.

With `--json`, each line of standard output is a JSON document, and there is nothing else. A command
that tells one thing prints one; a command that goes on telling prints one each time. An error is
words on standard error and an exit code.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Annotated, Any

import typer

from atoll.errors import ConfigError
from atoll.service.terminal import for_people, printable

Json = Annotated[bool, typer.Option("--json", help="Print data as JSON, a document a line.")]


def emit(data: Any, text: str, *, as_json: bool) -> None:
    """Prints `data` as a line of JSON, or `text` for a person."""
    text = json.dumps(data, sort_keys=True) if as_json else printable(text)
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Something for a person, on standard error."""
    sys.stderr.write(printable(text) + "\n")


def agree(action: str, *, yes: bool, as_json: bool) -> None:
    """Asks whether to do what was said, unless told not to: "pause the network?".

    Raises:
        ConfigError: there is nobody to ask, or the answer is no.
    """
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise ConfigError(f"there is nobody to ask whether to {action}", next_step="pass --yes")
    if not typer.confirm(f"{action}?", err=True):
        raise ConfigError("nothing was done", next_step="change the options, or pass --yes")


def table(rows: list[dict[str, object]]) -> str:
    """Rows as aligned columns; the first row's names are the header."""
    if not rows:
        return "(none)"
    names = list(rows[0])
    cells = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def configure_logs(level: str = "warning") -> None:
    """Structured logs go to standard error, from `level` up."""
    import structlog

    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            *for_people(sys.stderr),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
