"""Serves this machine's blocks to anyone.

Specification: https://specs.ipfs.tech/http-gateways/trustless-gateway/. A trustless gateway gives
bytes that the receiver checks against the CID it asked for, so it needs no authority and vouches
for nothing. It looks at its own store alone and never fetches; it takes blocks that it was told to
expect (`push_requests.py`).

Whoever connects can cost it what its budget says and no more; members, who sign what they ask
with, have room of their own (`connection_limiter.py`).
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from aiohttp import web

from atoll.errors import ConfigError, CorruptBlock, NotFound, StorageError, TooLarge
from atoll.storage.car import encode_car, encode_named_header
from atoll.storage.cid import RAW, Cid
from atoll.storage.connection_limiter import Budget, Connection, ConnectionLimiter
from atoll.storage.directory import resolve_path
from atoll.storage.local import LocalStore
from atoll.storage.negotiation import (
    Format,
    NotAcceptable,
    answer_headers,
    is_unchanged,
    negotiate,
    requested_part,
    requested_scope,
)
from atoll.storage.push_requests import Party, PushRequests
from atoll.storage.pushed_files import PushedFiles
from atoll.storage.refusals import Refusals, Refused, is_defect
from atoll.storage.scope import blocks_in_scope
from atoll.storage.shown import ShownPieces
from atoll.storage.uplink import (
    ANSWER,
    PIECE,
    TICK_S,
    StrangersShare,
    UplinkLine,
    queued_in_kernel,
)

# The empty block, named by the identity hash: answers "are you a gateway?".
_PROBE: Final = "bafkqaaa"
_PROBE_CID: Final = bytes([1, RAW, 0, 0])
_UNKEPT: Final = {"Cache-Control": "no-store", "Access-Control-Allow-Origin": "*"}
_NOTE: Final = re.compile(r"[a-z0-9/-]{1,128}")
_MAX_REPEATED_BLOCKS: Final = 1 << 20  # small blocks can name one another 2^n times
_STRANGERS_THREADS: Final = 2  # what they plant and ask for takes Python's lock for long
T = TypeVar("T")
_log: Final = logging.getLogger("atoll.storage.gateway")


_log.addFilter(is_defect)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where a gateway listens.

    Attributes:
        host: of the interface.
        port: 0 takes any free one.
    """

    host: str = "127.0.0.1"
    port: int = 0


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Limits of a gateway.

    Attributes:
        max_requests: answered at once; further ones are told to come back. Strangers have that
            less what the budget reserves, but at least a half; and never more than half of their
            connections, so that one that is not being answered can be sent away.
        budget: of connections.
    """

    max_requests: int = 256
    budget: Budget = field(default_factory=Budget)

    @property
    def strangers_requests(self) -> int:
        most = max(self.max_requests - self.budget.reserved, -(-self.max_requests // 2))
        return min(most, -(-(self.budget.connections - self.budget.reserved) // 2))


class _GuardedServer(web.Server):
    """Tells the connection limiter who comes and goes."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        connection_limiter: ConnectionLimiter,
        idle_s: float,
    ) -> None:
        super().__init__(
            handler,
            access_log=None,
            logger=_log,
            keepalive_timeout=idle_s,
            auto_decompress=False,  # a thousand times what was announced would be read
            handler_cancellation=True,  # else those who go leave their places in the queue
            lingering_time=1.0,
        )
        self._connection_limiter = connection_limiter
        self._refusals = Refusals()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if peer else ""
        # Not at once: aiohttp's handler has to have begun before its connection is lost.
        leave = partial(asyncio.get_running_loop().call_soon, transport.abort)
        self._connection_limiter.arrived(
            handler,
            host,
            leave,
            refuse=partial(asyncio.get_running_loop().call_soon, self._refusals.refuse, transport),
            waiting=transport.get_write_buffer_size,
            queued=partial(queued_in_kernel, transport),
        )

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        self._connection_limiter.left(handler)
        super().connection_lost(handler, exc)


class Gateway:
    """An HTTP server over a store.

    Args:
        store: where the blocks are.
        address: where to listen; None takes a free port of this machine's own interface.
        allow: which blocks to serve; None serves all.
        config: the limits.
        notes: short texts that have a name instead of a hash, by name; what they say has to be
            signed, for nothing else vouches for it.
        recognise: which member or submitter an `Authorization` header is of, or None; without it
            there are none, and strangers have the whole line.

    Attributes:
        pushed: the files whose blocks it takes; pushes: from whom; pieces: what it shows of files.
    """

    def __init__(
        self,
        store: LocalStore,
        address: ListenAddress | None = None,
        *,
        allow: Callable[[Cid], bool] | None = None,
        config: GatewayConfig | None = None,
        notes: Callable[[str], bytes | None] = lambda _: None,
        recognise: Callable[[str], str | None] | None = None,
    ) -> None:
        self._store = store
        self._notes = notes
        listens = address or ListenAddress()
        self._host, self._port = listens.host, listens.port
        self._allow = allow
        self._config = config or GatewayConfig()
        budget = self._config.budget
        self._line = UplinkLine(budget.line_bytes_per_s, time.monotonic)
        self._share = StrangersShare(budget.strangers_share, self._line, time.monotonic)
        self._recognise = recognise
        self._requests = 0
        self._strangers_requests = 0
        self.connection_limiter = ConnectionLimiter(self._config.budget, time.monotonic)
        self._runner: web.ServerRunner | None = None
        self._watchers: list[asyncio.Task[None]] = []
        self._strangers_pool = ThreadPoolExecutor(_STRANGERS_THREADS, "atoll-strangers")
        self.bytes_up = 0
        self.pushed, self.pieces = PushedFiles(store), ShownPieces()
        self.pushes = PushRequests(self.pushed, budget)

    @property
    def url(self) -> str:
        """Where the started gateway answers, without a trailing slash."""
        return url_of(self._host, self._port)

    async def start(self) -> None:
        """Starts listening; returns when requests are answered.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        server = _GuardedServer(self._handle, self.connection_limiter, self._config.budget.idle_s)
        runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, self._host, self._port)
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error}"
            raise ConfigError(
                f"the gateway's address {self._host}:{self._port} {reason}",
                next_step="choose another gateway port, or 0 for any free one",
            ) from error
        self._runner = runner
        self._port = runner.addresses[0][1]
        self._watchers = [asyncio.create_task(self._sweep()), asyncio.create_task(self._measure())]

    async def stop(self) -> None:
        """Stops listening and ends open requests."""
        while self._watchers:
            self._watchers.pop().cancel()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._strangers_pool.shutdown(wait=False, cancel_futures=True)
        self.pieces.close()

    async def _sweep(self) -> None:
        budget = self._config.budget
        while True:
            await asyncio.sleep(min(1.0, budget.header_s / 4, budget.patience_s / 4))
            self.connection_limiter.sweep()

    async def _measure(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            members, strangers = self.connection_limiter.sent()
            self._line.tick(now - last, members, strangers, was_short=self._share.was_short)
            self._share.was_short = False
            last = now

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = self.connection_limiter.connection(request.protocol)
        if connection is None:  # sent away while its request was read
            return Refused()
        self.connection_limiter.asked(connection)
        self._look_who_asks(connection, request)
        await self._await_turn(request, ANSWER)  # refusals of all kinds are a flood, too
        if self.connection_limiter.connection(request.protocol) is None:  # sent away meanwhile
            return Refused()
        self.connection_limiter.begins(connection)
        try:
            return await self._admitted(request, connection)
        finally:
            self.connection_limiter.ends(connection)

    async def _admitted(
        self, request: web.BaseRequest, connection: Connection
    ) -> web.StreamResponse:
        """Answers if there is room for one more request, and a share of the line."""
        is_stranger = connection.asks_as_stranger(request.method)
        if self._requests >= self._config.max_requests or (
            is_stranger and self._strangers_requests >= self._config.strangers_requests
        ):
            return _refuse(503, "busy", {"Retry-After": "1"})
        seconds = self._share.retry_after_s(connection.address) if is_stranger else None
        if seconds is not None and self._recognise is not None:
            return _refuse(
                503, "the share of the line for strangers is used", {"Retry-After": str(seconds)}
            )
        self._requests += 1
        self._strangers_requests += is_stranger
        try:
            with self._share.request(connection.address) if is_stranger else nullcontext():
                return await self._route(request)
        except NotAcceptable as refusal:
            return _refuse(refusal.status, str(refusal))
        except ConnectionError:  # whoever asked is gone; aiohttp would log each with its traceback
            return web.Response()
        finally:
            self._requests -= 1
            self._strangers_requests -= is_stranger

    def _look_who_asks(self, connection: Connection, request: web.BaseRequest) -> None:
        """Once a connection: a signature costs more to look at than to forge."""
        signed, is_looked_at = request.headers.get("Authorization"), connection.is_looked_at
        connection.is_looked_at = True
        if not is_looked_at and signed is not None and self._recognise is not None:
            account = self._recognise(signed)
            if account is not None:
                self.connection_limiter.recognised(connection, account)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        kind, _, name = request.path.removeprefix("/").partition("/")
        if kind not in {"ipfs", "notes", "pieces"}:
            raise NotAcceptable(404, "there is nothing here")
        if request.method == "PUT" and kind == "ipfs":
            return await self._take(request, name)
        if request.method not in {"GET", "HEAD"}:
            return _refuse(405, "only GET, HEAD, and PUT of blocks", {"Allow": "GET, HEAD, PUT"})
        if kind == "ipfs":
            return await self._answer(request, name)
        if kind == "pieces":
            return await self._send_pieces(request, name)
        return await self._send_note(request, name)

    async def _take(self, request: web.BaseRequest, name: str) -> web.Response:
        party, in_thread = self._party(request), partial(self._in_thread, request)
        return await self.pushes.receive(request, name, party, in_thread)

    def _party(self, request: web.BaseRequest) -> Party:
        return Party.of(self.connection_limiter.connection(request.protocol), request.method)

    async def _in_thread(
        self, request: web.BaseRequest, work: Callable[..., T], *args: object
    ) -> T:
        """Does what a request asks for: strangers wait for one another, members for no stranger."""
        connection = self.connection_limiter.connection(request.protocol)
        is_stranger = connection is None or connection.asks_as_stranger(request.method)
        pool = self._strangers_pool if is_stranger else None
        return await asyncio.get_running_loop().run_in_executor(pool, work, *args)

    async def _give(
        self, request: web.BaseRequest, response: web.StreamResponse, piece: bytes
    ) -> None:
        """Writes part of a body, a stranger's in turn; returns once all but a piece is taken."""
        for start in range(0, len(piece), PIECE):
            part = piece[start : start + PIECE]
            await self._await_turn(request, len(part))
            self._count(request, len(part))
            await response.write(part)

    async def _await_turn(self, request: web.BaseRequest, size: int) -> None:
        """Returns when so many bytes may be written: at once to a member."""
        connection = self.connection_limiter.connection(request.protocol)
        if self._recognise is None or connection is None:
            return
        if connection.asks_as_stranger(request.method):
            await self._share.turn(connection.address, size)

    def _count(self, request: web.BaseRequest, size: int) -> None:
        """Notes body bytes that are given to a connection."""
        self.bytes_up += size
        connection = self.connection_limiter.connection(request.protocol)
        if connection is not None:
            connection.written += size

    async def _send_note(self, request: web.BaseRequest, name: str) -> web.Response:
        note = self._notes(name) if _NOTE.fullmatch(name) else None
        if note is None:
            return _refuse(404, "there is no such note")
        await self._await_turn(request, len(note))
        self._count(request, len(note))
        return web.Response(body=note, headers=_UNKEPT)

    async def _send_pieces(self, request: web.BaseRequest, name: str) -> web.StreamResponse:
        party = self._party(request)
        who = replace(party, is_member=party.is_member or self._recognise is None)
        body = await self.pieces.answer(request, name, who, is_here=self._here)
        return await self._write(request, body, web.StreamResponse(headers=_UNKEPT))

    async def _answer(self, request: web.BaseRequest, name: str) -> web.StreamResponse:
        text, _, path = name.partition("/")
        if request.headers.get("Service-Worker") == "script":
            raise NotAcceptable(400, "nothing here is a service worker")
        wanted = negotiate(request)
        if text == _PROBE and not path:
            return _answer_probe(request, wanted)
        try:
            cid = Cid.parse(text)
        except ValueError as error:
            raise NotAcceptable(400, str(error)) from error
        if not self._here(cid):
            cached_only = "only-if-cached" in request.headers.get("Cache-Control", "")
            raise NotAcceptable(412 if cached_only else 404, f"{cid} is not here")
        if wanted.kind == "car":
            return await self._send_car(request, wanted, cid, path)
        if path.strip("/"):
            raise NotAcceptable(
                400, "a block has no path: ask for a CAR, or for the block by its CID"
            )
        return await self._send_block(request, wanted, cid)

    async def _send_block(
        self, request: web.BaseRequest, wanted: Format, cid: Cid
    ) -> web.StreamResponse:
        etag = f'"{cid}.raw"'
        headers = answer_headers(request, wanted, etag, f"{cid}.bin")
        if is_unchanged(request, etag):
            return web.Response(status=304, headers=headers)
        if request.method == "HEAD":  # asked for each block of a file, so none is read for it
            size = await self._in_thread(request, self._store.block_bytes, cid)
            if size is None:
                raise NotAcceptable(404, f"{cid} is not here")
            return web.Response(headers=headers | {"Content-Length": str(size)})
        try:
            block = await self._in_thread(request, self._store.get_block, cid)
        except (NotFound, CorruptBlock) as error:
            raise NotAcceptable(404, f"{cid} is not here") from error
        status = 200
        if (part := requested_part(request, len(block), etag)) is not None:
            status = 206
            headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(block)}"
            block = block[part]
        return await self._write(request, block, web.StreamResponse(status=status, headers=headers))

    async def _write(
        self, request: web.BaseRequest, body: bytes, response: web.StreamResponse
    ) -> web.StreamResponse:
        """Answers with bytes, and returns once they are taken but for a piece.

        What aiohttp writes after a handler has returned is a request's that nobody counts.
        """
        response.content_length = len(body)
        await response.prepare(request)
        await self._give(request, response, body)
        await response.write_eof()
        return response

    async def _send_car(
        self, request: web.BaseRequest, wanted: Format, cid: Cid, path: str
    ) -> web.StreamResponse:
        scope, span = requested_scope(request)
        asked = f"{path}|{scope}|{span}|{wanted.repeats}"
        digest = hashlib.sha256(asked.encode(errors="surrogateescape")).hexdigest()[:16]
        etag = f'"{cid}.car.{scope}.{digest}"'
        headers = answer_headers(request, wanted, etag, f"{cid}.car")
        try:
            end, through = await self._in_thread(
                request, resolve_path, self._get_allowed, cid, path
            )
        except StorageError as error:
            raise NotAcceptable(404, str(error)) from error
        if is_unchanged(request, etag):
            return web.Response(status=304, headers=headers)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        if request.method == "HEAD":
            return response

        def blocks() -> Iterator[tuple[Cid, bytes]]:
            yield from through.items()
            below = blocks_in_scope(self._get_allowed, end, scope, span, repeats=wanted.repeats)
            for count, (named, block) in enumerate(below):
                if wanted.repeats and count >= _MAX_REPEATED_BLOCKS:
                    raise TooLarge(f"{end} repeats its blocks too often")
                if wanted.repeats or named not in through:
                    yield named, block

        pieces = encode_car([cid], blocks())
        try:
            while (piece := await self._in_thread(request, next, pieces, None)) is not None:
                await self._give(request, response, piece)
        except StorageError:
            # The status is long sent: breaking the connection is how a receiver learns of it.
            if request.transport is not None:
                request.transport.abort()
        return response

    def _here(self, cid: Cid) -> bool:
        return self._may_have(cid) and self._store.has(cid)

    def _may_have(self, cid: Cid) -> bool:
        # Whoever names a block by its bytes has it.
        return self._allow is None or cid.inline is not None or self._allow(cid)

    def _get_allowed(self, cid: Cid) -> bytes:
        if not self._may_have(cid):
            raise NotFound(f"{cid} is not here")
        return self._store.get_block(cid)


def url_of(host: str, port: int) -> str:
    """The address of a gateway that listens there, as this machine reaches it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _answer_probe(request: web.BaseRequest, wanted: Format) -> web.Response:
    headers = answer_headers(
        request, wanted, f'"{_PROBE}.{wanted.kind}"', f"{_PROBE}.{wanted.kind}"
    )
    body = b"" if wanted.kind == "raw" else encode_named_header([_PROBE_CID])
    return web.Response(body=body, headers=headers)


def _refuse(status: int, reason: str, headers: dict[str, str] | None = None) -> web.Response:
    headers = _UNKEPT | (headers or {})
    return web.Response(status=status, text=reason + "\n", headers=headers)
