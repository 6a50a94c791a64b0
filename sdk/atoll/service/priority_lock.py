"""Who is next, of those who can have something only one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    rank: int
    about: Hashable
    turn: asyncio.Future[None]


class PriorityLock:
    """One at a time: first who is about the same as the one before, then by rank, then by order."""

    def __init__(self) -> None:
        self._is_free = True
        self._about: Hashable = None
        self._waiting: list[_Waiter] = []

    @asynccontextmanager
    async def taken(
        self, rank: int, *, about: Hashable = None, patience_s: float | None = None
    ) -> AsyncIterator[None]:
        """Waits for a turn, and gives it to the next one at the end.

        Args:
            rank: the lowest is first.
            about: what is at hand in this turn.

        Raises:
            TimeoutError: none has come in so many seconds.
        """
        if not self._is_free:
            mine = _Waiter(rank, about, asyncio.get_running_loop().create_future())
            self._waiting.append(mine)
            try:
                async with asyncio.timeout(patience_s):
                    await mine.turn
            except (asyncio.CancelledError, TimeoutError):
                if mine.turn.done() and not mine.turn.cancelled():
                    self._pass_on()  # it was ours already
                raise
        self._is_free, self._about = False, about
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        self._waiting = [waiter for waiter in self._waiting if not waiter.turn.done()]
        self._is_free = not self._waiting
        if self._waiting:
            chosen = min(
                self._waiting, key=lambda waiter: (waiter.about != self._about, waiter.rank)
            )
            chosen.turn.set_result(None)
