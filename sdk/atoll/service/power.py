"""Whether this machine runs on its battery, as Linux tells it; elsewhere it never does."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SUPPLIES: Final = Path("/sys/class/power_supply")
AWHILE_SECONDS: Final = 300.0
"""A cable that is pulled for a moment is no reason to give up a place."""


def on_battery(supplies: Path = SUPPLIES) -> bool:
    """Whether a battery of the machine itself is being emptied.

    Source: Documentation/ABI/testing/sysfs-class-power. A mouse has a battery, too, whose scope is
    `Device`; a battery that is full, or held at a threshold, is not discharging.
    """
    try:
        folders = sorted(supplies.iterdir())
    except OSError:
        return False
    return any(
        _read(folder / "type") == "Battery"
        and _read(folder / "scope") != "Device"
        and _read(folder / "status") == "Discharging"
        for folder in folders
    )


class Mains:
    """Notices when the machine has been on battery for a while.

    Args:
        is_wanted: whether the operator takes part on mains only; else it never looks.
    """

    def __init__(self, *, is_wanted: bool, supplies: Path = SUPPLIES) -> None:
        self._is_wanted = is_wanted
        self._supplies = supplies
        self._since: float | None = None
        self.why_out = ""

    def look(self, now: float) -> bool:
        """Whether `why_out` is another than before; `now` in seconds of a clock that only rises."""
        if not self._is_wanted or not on_battery(self._supplies):
            self._since = None
        elif self._since is None:
            self._since = now
        before = self.why_out
        is_out = self._since is not None and now - self._since >= AWHILE_SECONDS
        self.why_out = "is on battery, where its schedule has it wait for mains" if is_out else ""
        return self.why_out != before


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
