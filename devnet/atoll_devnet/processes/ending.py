"""How a command that starts processes ends: in order, by whatever signal it is told to."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def run_until_told(work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, where SIGTERM and SIGHUP are what Ctrl-C is: what the work has begun, it
    ends. A signal that this process ignores, as under nohup, stays ignored.

    Raises:
        KeyboardInterrupt: it was told to end, and has.
    """

    async def until_told() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, task.cancel)
        return await work

    try:
        return asyncio.run(until_told())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
