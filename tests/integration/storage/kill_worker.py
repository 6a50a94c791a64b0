"""Runs store operations in children that it kills. One JSON command a line in, one answer a line
out.

A command is [seconds or null, operation, argument…]; the answer is the child's exit code, -9 if
killed. Children are forked from this small process, so that starting one takes a millisecond.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable

from atoll.storage import Cid, Fetcher, LocalStore


def add(root: str, path: str) -> None:
    LocalStore(root, sync=False).add_file(path)


def get(root: str, cid: str, url: str, out: str) -> None:
    async def fetch() -> None:
        async with Fetcher(LocalStore(root, sync=False), lambda: [url]) as fetcher:
            await fetcher.get_file(Cid.parse(cid), out, 1 << 30)

    asyncio.run(fetch())


def pin(root: str, cid: str, reason: str) -> None:
    store = LocalStore(root, sync=False)
    for i in range(20):
        store.pin(Cid.parse(cid), f"{reason}/{i}")
        store.unpin(f"{reason}/{i - 1}")


def gc(root: str) -> None:
    LocalStore(root, sync=False).collect(grace_s=0)


OPERATIONS: dict[str, Callable[..., None]] = {"add": add, "get": get, "pin": pin, "gc": gc}


def run(operation: str, arguments: list[str]) -> int:
    try:
        OPERATIONS[operation](*arguments)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    for line in sys.stdin:
        delay_s, operation, *arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(run(operation, arguments))
        if delay_s is not None:
            time.sleep(delay_s)
            os.kill(child, signal.SIGKILL)  # not yet waited for, so the number is still its own
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


main()
