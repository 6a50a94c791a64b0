"""A block that strangers fill with logs, which anybody can pay for, is read all the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import cast

import aiohttp
import pytest

from atoll.chain import replies

BLOCK_GAS = 60_000_000
LOG_GAS = 375 + 2 * 2
"""Of a log without topics and data (Yellow Paper, appendix G), and of what it takes to write it."""
WORD = "0x" + "ff" * 32
LOG = {
    "address": "0x" + "ff" * 20, "topics": [], "data": "0x", "blockHash": WORD,
    "blockNumber": "0xffffffff", "blockTimestamp": "0xffffffff", "transactionHash": WORD,
    "transactionIndex": "0xfff", "logIndex": "0xfffff", "removed": False,
}  # fmt: skip
"""As Anvil and go-ethereum give it, every field as long as it gets."""


def test_a_block_s_receipts_may_all_be_of_logs() -> None:
    size = len(json.dumps(LOG, separators=(",", ":"))) + 1
    assert BLOCK_GAS // LOG_GAS * size < replies.LARGE_ANSWERS["eth_getBlockReceipts"]


class Clock:
    """The loop's, which a test sets forward."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time, self.ahead = loop.time, 0.0

    def __call__(self) -> float:
        return self._time() + self.ahead


class Line:
    """Brings some bytes, then none for a while, then one more."""

    def __init__(self, clock: Clock, first: int, pause_s: float) -> None:
        self._clock, self._first, self._pause_s = clock, first, pause_s

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield bytes(self._first)
        self._clock.ahead += self._pause_s
        for _ in range(3):  # the loop looks at its clock
            await asyncio.sleep(0)
        yield b"!"


@pytest.mark.parametrize(
    ("first", "pause_s", "is_read"),
    [(8 * replies.SLOWEST, 17.0, True), (8 * replies.SLOWEST, 19.0, False), (1, 11.0, False)],
)
async def test_what_has_come_of_an_answer_buys_time_for_the_rest(
    monkeypatch: pytest.MonkeyPatch, first: int, pause_s: float, is_read: bool
) -> None:
    """Else who has a slow line would never read a full block; and a drip is ended all the same."""
    loop = asyncio.get_running_loop()
    clock = Clock(loop)
    monkeypatch.setattr(loop, "time", clock)
    line = cast(aiohttp.StreamReader, Line(clock, first, pause_s))
    found = b""
    try:
        async with asyncio.timeout(10.0) as patience:
            found = await replies.read_whole(line, "eth_getBlockReceipts", patience)
    except TimeoutError:
        assert not is_read
    assert len(found) == (first + 1) * is_read
