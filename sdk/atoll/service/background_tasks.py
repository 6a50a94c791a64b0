"""Work that goes on beside other work, and ends with it.

Rule of this file: whoever waits for a task's end can be told to end meanwhile, and does. To await
the task with its cancellation suppressed would swallow our own: a Ctrl-C that comes while a client
closes would be lost, and the process would go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def background_tasks(work: Sequence[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Does this until the context ends; raises then what ended one of them."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        await end(tasks)


@asynccontextmanager
async def ended_by(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Does this until the context ends, which it does at once where this fails; raises what failed.

    Unlike a task group it leaves the exceptions of the context as they are.
    """
    task, body = asyncio.create_task(work), asyncio.current_task()
    is_over = has_stopped = False

    def stop(task: asyncio.Task[None]) -> None:
        nonlocal has_stopped
        if body is not None and not is_over and not task.cancelled() and task.exception():
            has_stopped = body.cancel()

    task.add_done_callback(stop)
    try:
        yield
    except asyncio.CancelledError:
        if not has_stopped or body is None or body.uncancel():
            raise  # somebody else wants our end
    finally:
        is_over = True
        await end([task])


async def end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancels tasks and waits until they have ended; raises what ended one of them before."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
