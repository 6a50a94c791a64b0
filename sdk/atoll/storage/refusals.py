"""A gateway without room says so: 503 with Retry-After, and no line that is cut without a word.

Rule of this file: what is told to whom is sent away costs a few bytes and a second, and of so many
at once; a flood beyond that is cut.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from aiohttp import web
from aiohttp.http import HttpProcessingError

MOST_AT_ONCE: Final = 256
"""Connections that are being told, beside those that are let in."""
LINGERING_S: Final = 1.0
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\n\r\nbusy\n"
)


class Refused(web.Response):
    """Nothing: who was sent away has read so already, and a second answer would be a fault."""

    def __init__(self) -> None:
        super().__init__(status=503)
        self.force_close()

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


class Refusals:
    """Those who are being told."""

    def __init__(self) -> None:
        self._count = 0

    def refuse(self, transport: asyncio.Transport) -> None:
        """Answers what was asked, or will be, and leaves that a moment to arrive."""
        if self._count >= MOST_AT_ONCE or transport.is_closing():
            transport.abort()
            return
        self._count += 1
        transport.write(_BUSY)
        asyncio.get_running_loop().call_later(LINGERING_S, self._end, transport)

    def _end(self, transport: asyncio.Transport) -> None:
        self._count -= 1
        transport.abort()


def is_defect(record: logging.LogRecord) -> bool:
    """Whether what aiohttp logs is a defect, and no request that is none.

    Of each such one it would write the bytes and a traceback, and who sends them fill the disk.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)
