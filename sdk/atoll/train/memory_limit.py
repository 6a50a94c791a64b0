"""How much memory the system lets this process have. Needs no torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MEMORY_VARIABLE: Final = "ATOLL_MEMORY_BYTES"
"""What a part of a service's work may hold at most, as its operator says."""
_SHARE: Final = 0.75
"""Of a machine's memory: some is the system's, and others' of this machine."""
CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


def cgroup_limit() -> int | None:
    """Of the process's group, as a container or a service has it; None where there is none."""
    try:
        text = CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() else None


def share_of(total: int) -> int:
    """What steps may take of so much memory."""
    return int(total * _SHARE)


def room_for_work() -> int:
    """A share of the machine's memory, or of what the process's group may have of it; and no more
    than the operator lets it have.
    """
    total, limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), cgroup_limit()
    room = share_of(total if limit is None else min(total, limit))
    said = os.environ.get(MEMORY_VARIABLE, "")
    return min(room, int(said)) if said.isdigit() else room
