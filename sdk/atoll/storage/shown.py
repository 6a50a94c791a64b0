"""A gateway shows members a few pieces of a file with what proves them: SPEC.md, 23.

How a file's root comes from its pieces is not this package's: what it is shown by, it is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol
from weakref import WeakValueDictionary

from aiohttp import web

from atoll.errors import StorageError
from atoll.storage.cid import Cid
from atoll.storage.negotiation import NotAcceptable, requested_numbers
from atoll.storage.push_requests import Party

MOST_PIECES: Final = 256
"""In one answer."""


class Shows(Protocol):
    """What pieces of files are shown by; for threads."""

    def is_read(self, cid: Cid) -> bool:
        """Whether an answer about a file takes no reading of all of it."""

    def show(self, cid: Cid, numbers: Sequence[int]) -> bytes:
        """Pieces of a file by their numbers. Raises StorageError where the file is not here,
        IndexError where it has no such piece.
        """


class ShownPieces:
    """Answers `GET /pieces/CID?numbers=3,17,200-255`.

    Nobody else's threads are used: a file that is asked about for the first time is read for
    seconds, and others that have to be read wait for it. What was read before waits for none of
    them, and of each party one question at a time waits for anything.

    Attributes:
        shows: None where nothing is shown.
    """

    def __init__(self) -> None:
        self.shows: Shows | None = None
        self._reads = ThreadPoolExecutor(1, "atoll-pieces-read")
        self._answers = ThreadPoolExecutor(1, "atoll-pieces")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def close(self) -> None:
        """Begins nothing new."""
        for pool in (self._reads, self._answers):
            pool.shutdown(wait=False, cancel_futures=True)

    async def answer(
        self,
        request: web.BaseRequest,
        name: str,
        party: Party,
        *,
        is_here: Callable[[Cid], bool],
    ) -> bytes:
        """The bytes of an answer.

        Args:
            request: what is asked, of a file by its `name`.
            party: who asks; nothing is shown to who is no member.
            is_here: whether others get a block.

        Raises:
            NotAcceptable: it is no such request, or nothing here, or a stranger's: of a file that
                is asked about for the first time everything is read, for an answer of a piece.
        """
        if not party.is_member:
            raise NotAcceptable(403, "pieces are shown to members")
        numbers = requested_numbers(request, MOST_PIECES)
        try:
            cid = Cid.parse(name)
        except ValueError as error:
            raise NotAcceptable(400, str(error)) from error
        if self.shows is None or not is_here(cid):
            raise NotAcceptable(404, f"{cid} is not here")
        turn = self._turns.setdefault(party.name, asyncio.Lock())
        loop = asyncio.get_running_loop()
        try:
            async with turn:
                pool = self._answers if self.shows.is_read(cid) else self._reads
                return await loop.run_in_executor(pool, self.shows.show, cid, numbers)
        except IndexError as error:
            raise NotAcceptable(416, str(error)) from error
        except StorageError as error:
            raise NotAcceptable(404, f"{cid} is not here") from error
