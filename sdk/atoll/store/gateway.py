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

from atoll.errors import ConfigError, CorruptBlock, NotFound, StorageError
from atoll.store.car import encode_car
from atoll.store.cid import Cid
from atoll.store.directory import resolve_path
from atoll.store.limits import RateLimit
from atoll.store.local import LocalStore
from atoll.store.scope import SCOPES, Range, blocks_in_scope

RAW_TYPE: Final = "application/vnd.ipld.raw"
CAR_TYPE: Final = "application/vnd.ipld.car"
_FORMATS: Final = {"raw": RAW_TYPE, "car": CAR_TYPE}
_CAR_CONTENT_TYPE: Final = f"{CAR_TYPE}; version=1; order=dfs; dups=n"
_FOREVER: Final = "public, max-age=29030400, immutable"
_PROBE: Final = (
    "bafkqaaa"  # the empty block, named by the identity hash: answers "are you a gateway?"
)


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Limits of a gateway.

    Attributes:
        max_requests: answered at once; further ones are told to come back.
        bytes_per_s: upload limit for all together; None for none.
    """

    max_requests: int = 256
    bytes_per_s: float | None = None


class Refusal(Exception):
    """Ends a request with a status and a line of text."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


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
        wanted = negotiate(request)
        if text == _PROBE and wanted == RAW_TYPE:
            return web.Response(body=b"", content_type=RAW_TYPE)
        try:
            cid = Cid.parse(text)
        except ValueError as error:
            raise Refusal(400, str(error)) from error
        if not self._here(cid):
            cached_only = "only-if-cached" in request.headers.get("Cache-Control", "")
            raise Refusal(412 if cached_only else 404, f"{cid} is not here")
        if wanted == CAR_TYPE:
            return await self._send_car(request, cid, path)
        if path.strip("/"):
            raise Refusal(400, "a block has no path: ask for a CAR, or for the block by its CID")
        return await self._send_block(request, cid)

    async def _send_block(self, request: web.Request, cid: Cid) -> web.StreamResponse:
        headers = _headers(request, f'"{cid}.raw"', f"{cid}.bin", "raw")
        if headers["Etag"] in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        try:
            block = await asyncio.to_thread(self._store.get_block, cid)
        except (NotFound, CorruptBlock) as error:
            raise Refusal(404, f"{cid} is not here") from error
        if request.method != "HEAD":
            self.bytes_up += len(block)
            await self._rate.spend(len(block))
        return web.Response(body=block, content_type=RAW_TYPE, headers=headers)

    async def _send_car(self, request: web.Request, cid: Cid, path: str) -> web.StreamResponse:
        scope, span = requested_scope(request)
        asked = hashlib.sha256(f"{path}|{scope}|{span}".encode()).hexdigest()[:16]
        headers = _headers(request, f'"{cid}.car.{scope}.{asked}"', f"{cid}.car", "car")
        headers["Content-Type"] = _CAR_CONTENT_TYPE
        if headers["Etag"] in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        try:
            end, through = await asyncio.to_thread(resolve_path, self._get_allowed, cid, path)
        except StorageError as error:
            raise Refusal(404, str(error)) from error
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        if request.method == "HEAD":
            return response

        def blocks() -> Iterator[tuple[Cid, bytes]]:
            yield from through.items()
            for found, block in blocks_in_scope(self._get_allowed, end, scope, span):
                if found not in through:
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


def negotiate(request: web.Request) -> str:
    """The media type to answer with: `format` decides, else the best of `Accept`."""
    if (asked := request.query.get("format")) is not None:
        if asked not in _FORMATS:
            raise Refusal(406, "this gateway serves format=raw and format=car")
        wanted, parameters = _FORMATS[asked], ""
        if asked == "car":
            _, parameters = _best_accepted(request.headers.get("Accept", ""), [CAR_TYPE])
    else:
        accept = request.headers.get("Accept", "*/*")
        wanted, parameters = _best_accepted(accept, list(_FORMATS.values()))
        if not wanted:
            status = 400 if accept.strip() in ("", "*/*") else 406
            raise Refusal(status, f"add ?format=raw or car, or Accept: {RAW_TYPE} or {CAR_TYPE}")
    version = request.query.get("car-version", _parameter(parameters, "version", "1"))
    if wanted == CAR_TYPE and version != "1":
        raise Refusal(400, "this gateway makes CARs of version 1")
    return wanted


def _best_accepted(accept: str, offered: list[str]) -> tuple[str, str]:
    """The offered type of highest weight in an Accept header, and its parameters; else ("", "")."""
    best, weight = ("", ""), 0.0
    for part in accept.split(","):
        name, _, parameters = part.strip().partition(";")
        try:
            q = float(_parameter(parameters, "q", "1"))
        except ValueError:
            continue
        if name.strip().lower() in offered and q > weight:
            best, weight = (name.strip().lower(), parameters), q
    return best


def _parameter(parameters: str, name: str, default: str) -> str:
    for parameter in parameters.split(";"):
        key, _, value = parameter.strip().partition("=")
        if key.lower() == name:
            return value.strip().strip('"')
    return default


def requested_scope(request: web.Request) -> tuple[str, Range | None]:
    scope, span = request.query.get("dag-scope"), request.query.get("entity-bytes")
    if scope is not None and scope not in SCOPES:
        raise Refusal(400, f"dag-scope is one of {', '.join(SCOPES)}")
    if span is None:
        return scope or "all", None
    if scope not in (None, "entity"):
        raise Refusal(400, "entity-bytes goes with dag-scope=entity")
    try:
        return "entity", Range.parse(span)
    except ValueError as error:
        raise Refusal(400, str(error)) from error


def _headers(request: web.Request, etag: str, filename: str, kind: str) -> dict[str, str]:
    headers = {
        "Etag": etag,
        "Cache-Control": _FOREVER,
        "X-Ipfs-Path": request.rel_url.raw_path,
        "X-Content-Type-Options": "nosniff",
        "Access-Control-Allow-Origin": "*",
        "Accept-Ranges": "none",
        "Vary": "Accept",
        "Content-Disposition": f'attachment; filename="{filename}"',
    }
    if "format" not in request.query:
        query = {**request.query, "format": kind}
        headers["Content-Location"] = str(request.rel_url.with_query(query))
    return headers


def _refuse(status: int, reason: str, headers: dict[str, str] | None = None) -> web.Response:
    headers = {"Cache-Control": "no-store", "Access-Control-Allow-Origin": "*", **(headers or {})}
    return web.Response(status=status, text=reason + "\n", headers=headers)
