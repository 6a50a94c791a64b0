"""Serves this machine's blocks to anyone.

Specification: https://specs.ipfs.tech/http-gateways/trustless-gateway/. A trustless gateway gives
bytes that the receiver checks against the CID it asked for, so it needs no authority and vouches
for nothing. It looks at its own store alone and never fetches.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from atoll.content.car import encode_car, encode_named_header
from atoll.content.cid import RAW, Cid
from atoll.content.directory import resolve_path
from atoll.content.limits import RateLimit
from atoll.content.local import LocalStore
from atoll.content.negotiation import (
    Format,
    Refusal,
    answer_headers,
    is_unchanged,
    negotiate,
    requested_part,
    requested_scope,
)
from atoll.content.scope import blocks_in_scope
from atoll.errors import ConfigError, CorruptBlock, NotFound, StorageError, TooLarge

# The empty block, named by the identity hash: answers "are you a gateway?".
_PROBE: Final = "bafkqaaa"
_PROBE_CID: Final = bytes([1, RAW, 0, 0])
_MAX_REPEATED_BLOCKS: Final = 1 << 20  # small blocks can name one another 2^n times


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Limits of a gateway.

    Attributes:
        max_requests: answered at once; further ones are told to come back.
        bytes_per_s: upload limit for all together; None for none.
    """

    max_requests: int = 256
    bytes_per_s: float | None = None


class Gateway:
    """An HTTP server over a store.

    Args:
        store: where the blocks are.
        host: the interface to listen on.
        port: the port, or 0 for any free one.
        allow: which blocks to serve; None serves all.
        config: the limits.
    """

    def __init__(
        self,
        store: LocalStore,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        allow: Callable[[Cid], bool] | None = None,
        config: GatewayConfig | None = None,
    ) -> None:
        self._store = store
        self._host = host
        self._port = port
        self._allow = allow
        self._config = config or GatewayConfig()
        self._rate = RateLimit(self._config.bytes_per_s, time.monotonic)
        self._requests = 0
        self._runner: web.AppRunner | None = None
        self.bytes_up = 0

    @property
    def url(self) -> str:
        """Where the started gateway answers, without a trailing slash."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self._host, self._host)  # noqa: S104
        return f"http://{host}:{self._port}"

    async def start(self) -> None:
        """Starts listening; returns when requests are answered.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        app = web.Application()
        app.router.add_get(r"/ipfs/{path:[\s\S]*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
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

    async def stop(self) -> None:
        """Stops listening and ends open requests."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self._requests >= self._config.max_requests:
            return _refuse(503, "busy", {"Retry-After": "1"})
        self._requests += 1
        try:
            return await self._answer(request)
        except Refusal as refusal:
            return _refuse(refusal.status, str(refusal))
        finally:
            self._requests -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        text, _, path = request.match_info["path"].partition("/")
        if request.headers.get("Service-Worker") == "script":
            raise Refusal(400, "nothing here is a service worker")
        wanted = negotiate(request)
        if text == _PROBE and not path:
            return _answer_probe(request, wanted)
        try:
            cid = Cid.parse(text)
        except ValueError as error:
            raise Refusal(400, str(error)) from error
        if not self._here(cid):
            cached_only = "only-if-cached" in request.headers.get("Cache-Control", "")
            raise Refusal(412 if cached_only else 404, f"{cid} is not here")
        if wanted.kind == "car":
            return await self._send_car(request, wanted, cid, path)
        if path.strip("/"):
            raise Refusal(400, "a block has no path: ask for a CAR, or for the block by its CID")
        return await self._send_block(request, wanted, cid)

    async def _send_block(
        self, request: web.Request, wanted: Format, cid: Cid
    ) -> web.StreamResponse:
        etag = f'"{cid}.raw"'
        headers = answer_headers(request, wanted, etag, f"{cid}.bin")
        if is_unchanged(request, etag):
            return web.Response(status=304, headers=headers)
        try:
            block = await asyncio.to_thread(self._store.get_block, cid)
        except (NotFound, CorruptBlock) as error:
            raise Refusal(404, f"{cid} is not here") from error
        status = 200
        if (part := requested_part(request, len(block), etag)) is not None:
            status = 206
            headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(block)}"
            block = block[part]
        if request.method != "HEAD":
            self.bytes_up += len(block)
            await self._rate.spend(len(block))
        return web.Response(status=status, body=block, headers=headers)

    async def _send_car(
        self, request: web.Request, wanted: Format, cid: Cid, path: str
    ) -> web.StreamResponse:
        scope, span = requested_scope(request)
        asked = f"{path}|{scope}|{span}|{wanted.repeats}"
        digest = hashlib.sha256(asked.encode(errors="surrogateescape")).hexdigest()[:16]
        etag = f'"{cid}.car.{scope}.{digest}"'
        headers = answer_headers(request, wanted, etag, f"{cid}.car")
        try:
            end, through = await asyncio.to_thread(resolve_path, self._get_allowed, cid, path)
        except StorageError as error:
            raise Refusal(404, str(error)) from error
        if is_unchanged(request, etag):
            return web.Response(status=304, headers=headers)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        if request.method == "HEAD":
            return response

        def blocks() -> Iterator[tuple[Cid, bytes]]:
            yield from through.items()
            below = blocks_in_scope(self._get_allowed, end, scope, span, repeats=wanted.repeats)
            for count, (found, block) in enumerate(below):
                if wanted.repeats and count >= _MAX_REPEATED_BLOCKS:
                    raise TooLarge(f"{end} repeats its blocks too often")
                if wanted.repeats or found not in through:
                    yield found, block

        pieces = encode_car([cid], blocks())
        try:
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                self.bytes_up += len(piece)
                await self._rate.spend(len(piece))
                await response.write(piece)
        except StorageError:
            # The status is long sent: breaking the connection is how a receiver learns of it.
            if request.transport is not None:
                request.transport.abort()
        return response

    def _here(self, cid: Cid) -> bool:
        return (self._allow is None or self._allow(cid)) and self._store.has(cid)

    def _get_allowed(self, cid: Cid) -> bytes:
        if self._allow is not None and not self._allow(cid):
            raise NotFound(f"{cid} is not here")
        return self._store.get_block(cid)


def _answer_probe(request: web.Request, wanted: Format) -> web.Response:
    headers = answer_headers(
        request, wanted, f'"{_PROBE}.{wanted.kind}"', f"{_PROBE}.{wanted.kind}"
    )
    body = b"" if wanted.kind == "raw" else encode_named_header([_PROBE_CID])
    return web.Response(body=body, headers=headers)


def _refuse(status: int, reason: str, headers: dict[str, str] | None = None) -> web.Response:
    headers = {"Cache-Control": "no-store", "Access-Control-Allow-Origin": "*", **(headers or {})}
    return web.Response(status=status, text=reason + "\n", headers=headers)
