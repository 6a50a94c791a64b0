"""Documents that a page of tests shows, and how one is shown."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.integration.dashboard.browser import Tab

from atoll.dashboard.page import page
from atoll.job.event_text import tokens

MEASURED = {
    "utilisation": {"mean": 0.8437},
    "bytes": {"uploaded": 1234567, "downloaded": 7654321},
    "uplink_bytes_per_parameter": 1.25,
    "downlink_bytes_per_parameter": 3.5,
    "audit_overhead": 0.5,
    "gas": {"commit": 91234, "reveal": 142623},
}


EXPLORER = "https://explorer.example"


async def show(tab: Tab, document: dict[str, Any], folder: Path) -> None:
    """Opens the page of a document as the file that it is."""
    file = folder / "page.html"
    file.write_text(page(document), encoding="utf-8")
    await tab.open(file.as_uri())


# --- numbers ---


def duration(seconds: float) -> str:
    """The two largest units that there are any of."""
    left, parts = int(seconds), []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        parts += [f"{count} {unit}"] if count else []
    return " ".join(parts[:2]) or "0 s"


FORMATS = {
    "text": str,
    "count": lambda value: f"{value:,}" if isinstance(value, int) else str(value),
    "tokens": lambda value: tokens(int(value)),
    "coin": lambda value: tokens(int(value)),
    "loss": lambda value: f"{value:.4f}",
    "seconds": lambda value: f"{value} s",
    "duration": duration,
    "rate": lambda value: f"{value:,.1f}",
    "seats": lambda value: ", ".join(map(str, value)) or "none",
    "size": lambda value: str(len(value)),
    "share": lambda value: f"{100 * value:.1f} %",
    "short": lambda value: value[:12],
    "address": lambda value: f"{value[:6]}…{value[-4:]}",
    "time": lambda value: datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
    "minute": lambda value: datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M UTC"),
    "day": lambda value: datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d"),
    "ratio": lambda value: f"{value:.3f}",
}
