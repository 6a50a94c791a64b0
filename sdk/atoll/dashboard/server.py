"""The dashboard: the pages of a network and of its jobs on loopback, with the document that each
page draws, as it changes.

Rule of this file: it answers this machine's browsers only, and changes nothing. The documents are
those of `reader`; the chain is read by the client's own follower.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from aiohttp import web
from eth_utils.address import to_checksum_address

from atoll.dashboard.changes import changes
from atoll.dashboard.page import LIVE, Links, as_json, page, policy
from atoll.dashboard.reader import Reader
from atoll.errors import AtollError, ChainError, ConfigError, RpcUnavailable
from atoll.job.client import Client
from atoll.nested import loads
from atoll.protocol.types import Address, JobId

HOST: Final = "127.0.0.1"
HEADERS: Final = {
    "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


MAX_KEPT: Final = 16
"""Documents that are kept between two looks."""
CHANGES: Final = "application/vnd.atoll.changes+json"
Make = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Made:
    """A document as of a block, and the one before it, which browsers have.

    Attributes:
        text: of the document; `tag` names it.
    """

    block: object
    document: dict[str, Any]
    text: str
    before: _Made | None

    @property
    def tag(self) -> str:
        return _tag(self.text)


@dataclass
class Window:
    """What the dashboard shows of a client's network.

    Attributes:
        start: the path that `/` leads to, where it is not the network.
        prompt, measures: as `Reader` has them.
    """

    client: Client
    start: str = ""
    prompt: str | None = None
    measures: bool = False
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _made: dict[str, _Made] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reader = Reader(self.client, self.prompt, waits=False, measures=self.measures)

    async def job(self, job: JobId) -> _Made:
        """The document of a job, as of the newest block. Raises ChainError."""
        return await self._newest(f"job {job}", lambda: self._reader.job(job))

    async def network(self) -> _Made:
        """The document of the network, as of the newest block. Raises ChainError."""
        return await self._newest("network", self._reader.network)

    async def member(self, account: Address) -> _Made:
        """The document of an account, as of the newest block. Raises ChainError."""
        return await self._newest(account, lambda: self._reader.member(account))

    async def _newest(self, name: str, make: Make) -> _Made:
        """Made once a block, however many look."""
        async with self._looking:
            follower = self.client.follower
            await follower.catch_up()
            block = (follower.confirmed, follower.now)
            made = self._made.get(name)
            if made is None or made.block != block:
                if len(self._made) >= MAX_KEPT:
                    self._made.clear()
                before = None if made is None else replace(made, before=None)
                document = await make()
                made = self._made[name] = _Made(block, document, as_json(document), before)
            return made

    def app(self) -> web.Application:
        """The pages and their documents."""

        async def network_page(request: web.Request) -> web.StreamResponse:
            return _answer(
                request,
                page((await self.network()).document, Links("/document.json", LIVE)),
                "text/html",
            )

        async def start(request: web.Request) -> web.StreamResponse:
            if self.start:
                raise web.HTTPFound(self.start)
            return await network_page(request)

        async def job_page(request: web.Request) -> web.StreamResponse:
            job = _number(request)
            text = page((await self.job(job)).document, Links(f"/job/{job}/document.json", LIVE))
            return _answer(request, text, "text/html")

        async def member_page(request: web.Request) -> web.StreamResponse:
            account = _account(request)
            text = page(
                (await self.member(account)).document,
                Links(f"/member/{account}/document.json", LIVE),
            )
            return _answer(request, text, "text/html")

        async def member_data(request: web.Request) -> web.StreamResponse:
            return _data(request, await self.member(_account(request)))

        async def network_data(request: web.Request) -> web.StreamResponse:
            return _data(request, await self.network())

        async def job_data(request: web.Request) -> web.StreamResponse:
            return _data(request, await self.job(_number(request)))

        app = web.Application(middlewares=[_only_here, _contained])
        app.add_routes([web.get("/", start), web.get("/network", network_page)])
        app.add_routes([web.get("/document.json", network_data)])
        app.add_routes([web.get(r"/job/{job:[1-9]\d{0,9}}", job_page)])
        app.add_routes([web.get(r"/job/{job:[1-9]\d{0,9}}/document.json", job_data)])
        app.add_routes([web.get("/member/{account:0x[0-9a-fA-F]{40}}", member_page)])
        where = "/member/{account:0x[0-9a-fA-F]{40}}/document.json"
        app.add_routes([web.get(where, member_data)])
        return app


@asynccontextmanager
async def serving(window: Window, port: int) -> AsyncIterator[str]:
    """Serves while it is open; gives the address. Raises ConfigError where the port is taken."""
    runner = web.AppRunner(window.app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, HOST, port).start()
        except OSError as error:
            raise ConfigError(
                f"port {port} cannot be listened on: {error}",
                next_step="name another one with --port, or leave it out for any free one",
            ) from error
        yield f"http://{HOST}:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _only_here(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A page of a stranger that calls its own name loopback must not read this."""
    name = request.url.host or ""
    if name != "localhost" and not _is_loopback(name):
        raise web.HTTPForbidden(text="this is served to the browsers of this machine only\n")
    return await handler(request)


@web.middleware
async def _contained(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What the chain refuses is an answer, not an end."""
    try:
        return await handler(request)
    except RpcUnavailable as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from error
    except ChainError as error:
        raise web.HTTPNotFound(text=f"{error}\n") from error
    except AtollError as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from error


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _number(request: web.Request) -> JobId:
    return JobId(int(request.match_info["job"]))


def _account(request: web.Request) -> Address:
    return Address(to_checksum_address(request.match_info["account"]))


def _tag(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _data(request: web.Request, made: _Made) -> web.Response:
    """The document, or what is another in it than in the one that the browser names by `since`."""
    before, since = made.before, request.query.get("since", "")
    if since == made.tag:
        before = made
    elif before is None or since != before.tag:
        return _answer(request, made.text, "application/json")
    text = as_json(changes(loads(before.text), loads(made.text)))
    headers = HEADERS | {"ETag": f'"{made.tag}"', "Cache-Control": "no-store"}
    return _packed(web.Response(text=text, content_type=CHANGES, charset="utf-8", headers=headers))


def _answer(request: web.Request, text: str, kind: str) -> web.Response:
    """The text, or that it is the one that the browser has."""
    tag = _tag(text)
    headers = HEADERS | {"ETag": f'"{tag}"'}
    if any(known.value == tag for known in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    return _packed(web.Response(text=text, content_type=kind, charset="utf-8", headers=headers))


def _packed(response: web.Response) -> web.Response:
    """Compressed, for whoever takes that."""
    response.enable_compression()
    return response
