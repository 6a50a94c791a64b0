"""The queue of a client's account, held for as long as something is sent.

Rule of this file: a key has one writer at a time, and who only looks holds nothing. Whoever sends
opens the home's file, which has every transaction that any client of the home has signed, and lets
go of it when its own is done: so of two programs with one account each sees the other's nonce.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import structlog

from atoll.chain.txqueue import TxQueue
from atoll.service.background_tasks import background_tasks
from atoll.service.lock import FolderHeld, hold_folder

PATIENCE_S = 300.0
"""For the other's transaction: several blocks, and a dearer copy of it."""
PAUSE_S = 0.2
log = structlog.get_logger("atoll.job.sending")


class Sender:
    """Opens the queue of a home; several tasks of one client share it.

    Args:
        home: whose lock is held meanwhile.
        open_queue: opens its queue, which nobody works at yet.
    """

    def __init__(self, home: Path, open_queue: Callable[[], TxQueue]) -> None:
        self._home = home
        self._open_queue = open_queue
        self._initial_state = asyncio.Lock()
        self._opened: tuple[TxQueue, AsyncExitStack] | None = None
        self._users = 0

    @asynccontextmanager
    async def queue(self) -> AsyncIterator[TxQueue]:
        """The queue at work; others of this home wait until it is let go of.

        Raises:
            FolderHeld: another program sends from the home, and does not come to an end.
            ConfigError, StorageError: the queue's file cannot be used.
        """
        async with self._initial_state:
            if self._opened is None:
                self._opened = await self._open()
            self._users += 1
        queue, stack = self._opened
        try:
            yield queue
        finally:
            self._users -= 1
            if not self._users:
                self._opened = None
                await stack.aclose()

    async def _open(self) -> tuple[TxQueue, AsyncExitStack]:
        async with AsyncExitStack() as stack:
            await self._hold(stack)
            queue = stack.enter_context(closing(self._open_queue()))
            await stack.enter_async_context(background_tasks([queue.run()]))
            kept = stack.pop_all()
        return queue, kept

    async def _hold(self, stack: AsyncExitStack) -> None:
        until, is_told = time.monotonic() + PATIENCE_S, False
        while True:
            try:
                stack.enter_context(hold_folder(self._home))
            except FolderHeld as held:
                if time.monotonic() >= until:
                    raise FolderHeld(
                        f"another client sends from {self._home}, and does not end: {held}",
                        next_step="wait until it has sent its transactions, or end it: what it has "
                        "sent goes on with whoever sends next",
                    ) from held
                if not is_told:
                    log.warning("waits for another client's transaction", cause=str(held))
                is_told = True
                await asyncio.sleep(PAUSE_S)
            else:
                return
