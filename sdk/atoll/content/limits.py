"""How fast bytes may flow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class RateLimit:
    """Lets bytes through at a steady rate, one second's worth at once at most.

    Args:
        bytes_per_s: the rate; None lets everything through.
        clock: seconds, monotonic.
    """

    def __init__(self, bytes_per_s: float | None, clock: Callable[[], float]) -> None:
        self._rate = bytes_per_s
        self._clock = clock
        self._free_at = clock() - 1.0

    async def spend(self, size: int) -> None:
        """Returns when `size` bytes may have flowed; callers are served in order."""
        if self._rate is None:
            return
        now = self._clock()
        self._free_at = max(self._free_at, now - 1.0) + size / self._rate
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)
