"""Records as a notebook shows them, and times as a person reads them.

Rule of this file: pure; it loads nothing, since `atoll --help` waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape


def moment(second: int) -> str:
    """A time of the chain's clock, for a person."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def table_html(title: str, lines: Mapping[str, str]) -> str:
    """A table of two columns, names and values; text of strangers stays text."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in lines.items()
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"
