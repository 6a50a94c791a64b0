"""A gateway's side of `PUT /ipfs/CID`: a block is asked for only once it is known to be wanted.

Rule of this file: nobody's body is read before it is certain that it belongs to an expected file
and is not here; a body has a deadline, and nobody has more than a few at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from aiohttp import web

from atoll.errors import CorruptBlock, DiskFull, StorageError, TooLarge
from atoll.storage.cid import Cid
from atoll.storage.connection_limiter import Budget, Connection
from atoll.storage.errors import MalformedDag
from atoll.storage.negotiation import NotAcceptable
from atoll.storage.pushed_files import ExpectedBlock, PushedFiles

MOST_OF_MEMBERS: Final = 64
"""Bodies that are read at once, which is as many blocks of memory."""
MOST_OF_STRANGERS: Final = 16
"""For all who are no members together: anybody knows which blocks are wanted."""
MOST_OF_PARTY: Final = 4
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
NOT_WANTED: Final = 409
"""What is said of a block that no expected file has: its file may be expected a little later."""
T = TypeVar("T")


class InThread(Protocol):
    """Does blocking work where it keeps nobody waiting who may not be."""

    def __call__(self, work: Callable[..., T], *args: object) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class Party:
    """Who brings a block: a member or a submitter by its account, anybody else by its address."""

    name: str
    is_member: bool
    is_submitter: bool = False

    @classmethod
    def of(cls, connection: Connection | None, method: str) -> Party:
        """Who asks; as a submitter only for what it brings."""
        if connection is None:
            return cls("", is_member=False)
        if connection.submitter is not None and not connection.asks_as_stranger(method):
            return cls(connection.submitter, is_member=False, is_submitter=True)
        name = connection.member or connection.address
        return cls(name, is_member=connection.member is not None)


@dataclass(slots=True)
class PushRequests:
    """Takes blocks that others bring.

    Attributes:
        files: which are wanted.
        budget: how slow a sender may be.
        seated: members who train now for a job of ours, and so have an update to bring. Each has a
            place of its own: bonds in jobs that hardly ask for any must not buy all the others.
        bytes_in: of bodies that were read.
    """

    files: PushedFiles
    budget: Budget
    seated: set[str] = field(default_factory=set)
    bytes_in: int = 0
    _parties: Counter[Party] = field(default_factory=Counter)

    async def receive(
        self, request: web.BaseRequest, name: str, party: Party, in_thread: InThread
    ) -> web.Response:
        """Takes a block, if it is wanted.

        Raises:
            NotAcceptable: it is not, with the status that says why.
        """
        try:
            cid = Cid.parse(name)
        except ValueError as error:
            raise NotAcceptable(400, str(error)) from error
        size = request.content_length
        if size is None:
            raise NotAcceptable(411, "say how many bytes the block has")
        block = await in_thread(self.files.block, cid, size)
        if block is None:
            raise NotAcceptable(NOT_WANTED, "it is of no file that is awaited here")
        if not block.fits(size):
            raise NotAcceptable(413, f"{cid} may not have {size} bytes")
        if await in_thread(self.files.has, block):
            return _answer(200, "it is here")
        if not self._has_room(party):
            return _answer(503, "busy", {"Retry-After": "1"})
        self._parties[party] += 1
        try:
            body = await self._body(request, size)
            await in_thread(self._store, block, body)
        finally:
            self._parties[party] -= 1
            if not self._parties[party]:
                del self._parties[party]
        return _answer(201, "it is here")

    def _has_room(self, party: Party) -> bool:
        """Strangers have places of their own: however many they are, members have theirs, and so
        has each submitter of a job whose beginning is wanted, of which there are few.
        """
        if party.is_submitter:
            return self._parties[party] < MOST_OF_PARTY
        same_kind = (
            each
            for each in self._parties
            if not each.is_submitter and each.is_member == party.is_member
        )
        under_way = sum(self._parties[each] for each in same_kind)
        most = MOST_OF_MEMBERS if party.is_member else MOST_OF_STRANGERS
        has_own = party.is_member and party.name in self.seated and not self._parties[party]
        return has_own or (under_way < most and self._parties[party] < MOST_OF_PARTY)

    async def _body(self, request: web.BaseRequest, size: int) -> bytes:
        """The whole body, by its deadline. Raises NotAcceptable."""
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(CONTINUE)
            request.writer.output_size = 0  # else it counts as an answer that has begun
        seconds = self.budget.patience_s + size / self.budget.least_bytes_per_s
        pieces, got = [], 0
        try:
            async with asyncio.timeout(seconds):
                async for piece in request.content.iter_any():
                    pieces.append(piece)
                    got += len(piece)
                    self.bytes_in += len(piece)
                    if got > size:
                        raise NotAcceptable(413, f"more than the {size} bytes that were announced")
        except TimeoutError as error:
            raise NotAcceptable(408, f"{got} of {size} bytes came in {seconds:.0f} s") from error
        return b"".join(pieces)

    def _store(self, block: ExpectedBlock, body: bytes) -> None:
        try:
            self.files.put(block, body)
        except (CorruptBlock, MalformedDag, TooLarge) as error:
            raise NotAcceptable(400, str(error)) from error
        except DiskFull as error:
            raise NotAcceptable(507, "no room") from error
        except StorageError as error:
            raise NotAcceptable(500, "the store cannot be used") from error


def _answer(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=text + "\n", headers=headers)
