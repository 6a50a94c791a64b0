"""Waiting for coroutines from code that is not asynchronous, also where an event loop runs.

A notebook has an event loop that runs, in which nothing can be waited for: so the loop here has a
thread of its own. anyio's portal is not used, since where a wait is interrupted it cancels every
`await` of the clean-up, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent import futures
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread, as a context manager; what still runs at its end is cancelled."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await self._stop.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def wait_for(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the coroutine returns or raises.

        Where the wait is interrupted (Ctrl-C, a notebook's stop button) the coroutine is cancelled,
        and has ended before this returns: else it would go on unseen, and pay.
        """
        outcome: futures.Future[T] = futures.Future()
        tasks: list[asyncio.Task[T]] = []

        def finish(task: asyncio.Task[T]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is None:
                outcome.set_result(task.result())
            else:
                outcome.set_exception(error)

        def start() -> None:
            tasks.append(self._loop.create_task(make()))
            tasks[0].add_done_callback(finish)

        def cancel() -> None:
            tasks[0].cancel()  # `start` has run by then

        self._loop.call_soon_threadsafe(start)
        try:
            return outcome.result()
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            futures.wait([outcome])
            raise

    def call(self, function: Callable[[], T]) -> T:
        """What a function returns or raises, called in that thread."""

        async def calling() -> T:
            return function()

        return self.wait_for(calling)


def run(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """As `asyncio.run`, also where an event loop runs, which then waits as everything does."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(make())
    with LoopThread() as thread:
        return thread.wait_for(make)
