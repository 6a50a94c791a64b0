"""Makes a development chain's blocks from a thread of its own: one when a transaction waits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from threading import Event, Lock, Thread
from typing import Any

from atoll.errors import ChainError

HALT_SECONDS = 600.0
SHARE = 1 / 8
"""Of the time, at most, that goes into making blocks: on a machine so busy that one takes long,
more of them would only keep the members from what they have to do in it.
"""
LOOK_SECONDS = 0.05
"""Between two questions whether a transaction waits."""
SETTLING = 3
"""Empty blocks that follow one with transactions at once: members wait for some to confirm it."""
IDLE = 4
"""Intervals between two blocks of which nobody wants any: they only tell what time it is."""


@dataclass(slots=True)
class Pace:
    """When a block is due: soon where a transaction waits, seldom where nobody wants one.

    What follows the chain does some work for each block, so those that tell nothing are few.

    Attributes:
        seconds: the least between two blocks.
        soonest: when the next block may be made.
        unwanted: blocks since the last that was wanted.
    """

    seconds: float
    soonest: float
    unwanted: int = 0

    def is_due(self, now: float, *, is_wanted: bool) -> bool:
        """Whether to make a block now.

        Args:
            is_wanted: a transaction waits, or somebody asked for a block.
        """
        idle_until = self.soonest + (IDLE - 1) * self.seconds
        is_of_use = is_wanted or self.unwanted < SETTLING
        return now >= (self.soonest if is_of_use else idle_until)

    def made(self, began: float, ended: float, *, was_wanted: bool) -> None:
        """Takes note of a block."""
        self.unwanted = 0 if was_wanted else self.unwanted + 1
        self.soonest = began + max(self.seconds, (ended - began) / SHARE)


class Miner:
    """Has Anvil make its blocks, and can say for certain that none is being made.

    Anvil keeps an interval itself, but takes it back without waiting for a block that is queued or
    half made. One that comes while it reorganises stands on blocks that are gone; one that comes
    while it tells its state leaves what the transactions did without the transactions.

    Args:
        seconds: the least between two blocks.
    """

    def __init__(self, port: int, seconds: float) -> None:
        self._port, self._seconds = port, seconds
        self._making, self._ended, self._hastened = Lock(), Event(), Event()
        self._is_halted = False

    def start(self) -> None:
        """Makes blocks until `end`."""
        Thread(target=self._run, name="miner", daemon=True).start()

    def end(self) -> None:
        """Asks for no more blocks, halted or not."""
        self._ended.set()
        self.go_on()

    def hasten(self) -> None:
        """Has a block be made soon, although no transaction waits."""
        self._hastened.set()

    def halt(self) -> None:
        """Returns once no block is being made; none is until `go_on`.

        Raises:
            ChainError: the chain does not finish one.
        """
        if not self._making.acquire(timeout=HALT_SECONDS):
            raise ChainError(f"the chain made one block for more than {HALT_SECONDS:.0f} s")
        self._is_halted = True

    def go_on(self) -> None:
        """After `halt`; else nothing."""
        if self._is_halted:
            self._is_halted = False
            self._making.release()

    @asynccontextmanager
    async def halted(self) -> AsyncIterator[None]:
        """`halt` and `go_on`."""
        await asyncio.to_thread(self.halt)
        try:
            yield
        finally:
            self.go_on()

    def _run(self) -> None:
        pace = Pace(self._seconds, time.monotonic() + self._seconds)
        while not self._ended.wait(max(LOOK_SECONDS, pace.soonest - time.monotonic())):
            with self._making, suppress(OSError, HTTPException):  # it pauses, or has just ended
                if not self._ended.is_set():
                    self._make_if_due(pace)

    def _make_if_due(self, pace: Pace) -> None:
        """One block, or none."""
        began = time.monotonic()
        is_wanted = self._hastened.is_set() or has_transactions(self._port)
        if pace.is_due(began, is_wanted=is_wanted):
            self._hastened.clear()
            ask(self._port, "evm_mine")
            pace.made(began, time.monotonic(), was_wanted=is_wanted)


def has_transactions(port: int) -> bool:
    """Whether any waits that a block could take.

    Raises what `ask` raises.
    """
    return int(ask(port, "txpool_status")["pending"], 16) > 0


def ask(port: int, method: str, *params: object, seconds: float | None = None) -> Any:
    """One JSON-RPC call to a chain on this machine: its result.

    Raises:
        OSError, HTTPException: no answer.
        ChainError: an error answer.
    """
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    to = HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        to.request("POST", "/", json.dumps(body), {"content-type": "application/json"})
        answer = json.loads(to.getresponse().read())
    finally:
        to.close()
    if "error" in answer:
        raise ChainError(f"{method}: {answer['error'].get('message', answer['error'])}")
    return answer["result"]
