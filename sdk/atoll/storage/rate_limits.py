"""How fast bytes may flow, and how much may be under way at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class Outsider:
    """A party that we owe nothing, and of which anybody can make any number."""

    party: Hashable


class FairSlots:
    """So many places, which those who wait get in turn: one of each party, then one more of each.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}  # next party first

    async def acquire(self, party: Hashable) -> None:
        """Returns when there is a place; `release` gives it back."""
        if self._free:
            self._free -= 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(party, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # given just before
                self.release()
            raise

    def release(self) -> None:
        """Frees a place for whose turn it is."""
        while self._waiting:
            party = next(iter(self._waiting))
            queue = self._waiting.pop(party)
            while queue and queue[0].done():  # cancelled while it waited
                queue.popleft()
            if not queue:
                continue
            queue.popleft().set_result(None)
            if queue:
                self._waiting[party] = queue
            return
        self._free += 1
