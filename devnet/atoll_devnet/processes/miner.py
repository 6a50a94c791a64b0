"""Makes a development chain's blocks, one an interval, from a thread of its own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http.client import HTTPConnection, HTTPException
from threading import Event, Lock, Thread
from typing import Any

from atoll.errors import ChainError

HALT_SECONDS = 60.0
SHARE = 1 / 8
"""Of the time, at most, that goes into making blocks: on a machine so busy that one takes long,
more of them would only keep the members from what they have to do in it.
"""


class Miner:
    """Has Anvil make its blocks, and can say for certain that none is being made.

    Anvil keeps an interval itself, but takes it back without waiting for a block that is queued or
    half made. One that comes while it reorganises stands on blocks that are gone; one that comes
    while it tells its state leaves what the transactions did without the transactions.
    """

    def __init__(self, port: int, seconds: float) -> None:
        self._port, self._seconds = port, seconds
        self._making, self._ended = Lock(), Event()
        self._is_halted = False

    def start(self) -> None:
        """Begins with a block after the first interval; goes on until `end`."""
        Thread(target=self._run, name="miner", daemon=True).start()

    def end(self) -> None:
        """Asks for no more blocks, halted or not."""
        self._ended.set()
        self.go_on()

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
        due = time.monotonic() + self._seconds
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            with self._making, suppress(OSError, HTTPException):  # it pauses, or has just ended
                began = time.monotonic()
                if not self._ended.is_set():
                    ask(self._port, "evm_mine")
            ended = time.monotonic()
            due = max(due + self._seconds, began + (ended - began) / SHARE)


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
