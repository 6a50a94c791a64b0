"""Where helpers ask a provider for a step's prompts and leave answers: a process of its own, so
that what strangers cost it, they cost only it. `python -m atoll_node.rollouts.endpoint`.

It has no key and no chain, and what it takes in is bytes of a known number, which the worker
checks. Rule of this file: everything it keeps is bounded by the config; it ends with its parent.
"""

from __future__ import annotations

import asyncio
import html
import json
import logging
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog
from aiohttp import web

from atoll.errors import ConfigError
from atoll.nested import loads
from atoll.service.config import RolloutsSection, ServiceConfig
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.storage.refusals import is_defect
from atoll_node.rollouts.passes import name_of
from atoll_node.rollouts.spool import Leases, Offer, Result, Spool

MOST_ASKED: Final = 4096
"""Bytes of what a helper asks with."""
MOST_BASE: Final = 1 << 40
MOST_EACH: Final = 2
"""Requests of a helper that are answered at a time."""
MOST_PUBLIC: Final = 4
"""Of all who look at the counts."""
LEASE_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 60.0
DOWNLOAD_SECONDS: Final = 3600.0
"""Of a request for a file: a base has gigabytes."""
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 5.0
NO_WORK: Final = 204
_PIECE: Final = 1 << 20
log = structlog.get_logger("atoll.rollouts")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
HelperHandler = Callable[[web.Request, str], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class _Lease:
    """A part that was given out, and to whom: nobody else can send it."""

    step: str
    first: int
    name: str


@dataclass(slots=True)
class Endpoint:
    """Answers helpers.

    Attributes:
        names: of helpers, by the digests of their passes.
    """

    spool: Spool
    store: LocalStore
    names: Mapping[str, str]
    leases: Leases = field(default_factory=lambda: Leases(LEASE_SECONDS))
    _given: dict[str, _Lease] = field(default_factory=dict)
    _running: Counter[str] = field(default_factory=Counter)

    def app(self) -> web.Application:
        """Its addresses."""
        app, helper = web.Application(client_max_size=MOST_ASKED), self._of_helper
        app.add_routes(
            [
                web.get("/", self._public(self._page)),
                web.get("/counts", self._public(self._counts)),
                web.get("/offer", helper(self._offer)),
                web.get("/files/{digest:[0-9a-f]{64}}", helper(self._file, DOWNLOAD_SECONDS)),
                web.get("/base", helper(self._base, DOWNLOAD_SECONDS)),
                web.post("/take", helper(self._take)),
                web.post("/parts/{lease:[0-9a-f]{32}}", helper(self._part)),
            ]
        )
        return app

    def _of_helper(self, handler: HelperHandler, seconds: float = ANSWER_SECONDS) -> Handler:
        """Answers whose pass the config has, each up to its own limit; nothing of what a stranger
        sends is read.
        """

        async def answer(request: web.Request) -> web.StreamResponse:
            name = name_of(request.headers.get("Authorization", ""), self.names)
            if name is None:
                raise web.HTTPUnauthorized(text="that pass is none of this provider's helpers'\n")
            async with self._counted(name, MOST_EACH, seconds):
                return await handler(request, name)

        return answer

    def _public(self, handler: Handler) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            async with self._counted("", MOST_PUBLIC, ANSWER_SECONDS):
                return await handler(request)

        return answer

    @asynccontextmanager
    async def _counted(self, who: str, most: int, seconds: float) -> AsyncIterator[None]:
        if self._running[who] >= most:
            raise web.HTTPServiceUnavailable(text="too many ask at once; ask again later\n")
        self._running[who] += 1
        try:
            async with asyncio.timeout(seconds):
                yield
        finally:
            self._running[who] -= 1

    def _needed(self) -> Offer:
        offer = self.spool.offer()
        if offer is None:
            raise web.HTTPNoContent
        return offer

    async def _offer(self, _: web.Request, name: str) -> web.StreamResponse:
        """What is to be generated; whoever asks is there from now on, whether or not there is."""
        self.spool.note_helper()
        offer = self._needed()
        return web.json_response(asdict(offer) | {"parts": [], "prompts": []})

    async def _file(self, request: web.Request, name: str) -> web.StreamResponse:
        digest, offer = request.match_info["digest"], self._needed()
        if digest not in {offer.manifest, offer.params}:
            raise web.HTTPNotFound
        try:
            file = (self.spool.folder / digest).open("rb")
        except FileNotFoundError as error:  # its step is over
            raise web.HTTPNotFound from error
        with file:
            return await _send(request, iter(partial(file.read, _PIECE), b""))

    async def _base(self, request: web.Request, name: str) -> web.StreamResponse:
        """What adapters are added to; its bytes are what the CID says, or it ends early."""
        base = self._needed().base
        if base is None:
            raise web.HTTPNotFound
        pieces = self.store.iter_bytes(Cid.parse(base), MOST_BASE)
        return await _send(request, pieces)

    async def _take(self, request: web.Request, name: str) -> web.StreamResponse:
        """Gives a part to a helper, unless it sent something false."""
        count = self.spool.counts().get(name)
        if count is not None and count.false:
            raise web.HTTPForbidden(text="an answer of yours was not the law's\n")
        self.spool.note_helper()
        offer = self._needed()
        part = self.leases.take(offer, name, time.monotonic())
        if part is None:
            raise web.HTTPNoContent
        lease = secrets.token_hex(16)
        self._given = {at: given for at, given in self._given.items() if given.step == offer.step}
        self._given[lease] = _Lease(offer.step, part.first, name)
        prompts = [list(prompt) for prompt in offer.prompts[part.rows]]
        return web.json_response(
            {"step": offer.step, "lease": lease, "part": asdict(part), "prompts": prompts}
        )

    async def _part(self, request: web.Request, name: str) -> web.StreamResponse:
        """Takes what a helper made of a part, of exactly as many bytes as that has."""
        offer, given = self._needed(), self._given.get(request.match_info["lease"])
        if given is None or given.step != offer.step or given.name != name:
            raise web.HTTPGone(text="nobody waits for that any more\n")
        part = next(part for part in offer.parts if part.first == given.first)
        wanted = offer.part_bytes(part)
        if request.content_length != wanted:
            raise web.HTTPBadRequest(text=f"a part has {wanted} bytes\n")
        ids = await request.content.readexactly(wanted)
        if self.leases.give_back(offer, given.first) is None:
            raise web.HTTPGone(text="somebody else was faster\n")
        self.spool.take_in(offer, Result(part, given.name, ids))
        return web.Response(status=NO_WORK)

    async def _counts(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({who: asdict(n) for who, n in self.spool.counts().items()})

    async def _page(self, _: web.Request) -> web.StreamResponse:
        """What each helper did, for people."""
        text = _page_of([(name, *asdict(n).values()) for name, n in self.spool.counts().items()])
        headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return web.Response(text=text, content_type="text/html", headers=headers)


async def _send(request: web.Request, pieces: Iterator[bytes]) -> web.StreamResponse:
    """Here, and not behind the handler, which counts who is answered."""
    answer = web.StreamResponse()
    await answer.prepare(request)
    while piece := await asyncio.to_thread(next, pieces, b""):
        await answer.write(piece)
    await answer.write_eof()
    return answer


_HEAD: Final = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<title>Helpers</title><style>body{font:1rem/1.5 system-ui,sans-serif;margin:1rem auto;
max-width:48rem;padding:0 1rem}td,th{padding:.2rem .8rem .2rem 0;text-align:right}td:first-child,
th:first-child{text-align:left;overflow-wrap:anywhere}</style><h1>Who helped</h1>
<p>Answers that others generated for this provider, each of which it checked before it used it.</p>
"""
_COLUMNS: Final = ("Helper", "Answers used", "Tokens", "Too late", "False")


def _page_of(rows: list[tuple[str | int, ...]]) -> str:
    head = "".join(f'<th scope="col">{column}</th>' for column in _COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in sorted(rows, key=lambda row: (-int(row[1]), str(row[0])))
    )
    nobody = "" if rows else "<p>Nobody yet.</p>"
    return f"{_HEAD}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{nobody}"


# --- the process ---


@asynccontextmanager
async def rollouts_endpoint(config: ServiceConfig) -> AsyncIterator[None]:
    """Answers helpers while it is open, where the config says so.

    An endpoint that ended is not started anew: rounds go on without helpers.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    if not config.rollouts.port:
        yield
        return
    message = {
        "rollouts": config.rollouts.model_dump(),
        "store": str(config.store_dir.absolute()),
    }
    command = (sys.executable, "-m", "atoll_node.rollouts.endpoint")
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(json.dumps(message).encode() + b"\n")
        async with asyncio.timeout(START_SECONDS):
            line = await child.stdout.readline()
        answer = loads(line.decode()) if line else {"error": "its process ended"}
        if "error" in answer:
            raise ConfigError(
                f"the rollouts address cannot be used: {answer['error']}",
                next_step="choose another port in [rollouts]",
            )
        log.info("helpers are answered", url=answer["url"])
        yield
    finally:
        child.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await child.wait()
        if child.returncode is None:
            child.kill()
            await child.wait()


async def answer_until(settings: RolloutsSection, store_dir: Path, ended: Awaitable[Any]) -> None:
    """Answers until told to end; says on standard output where, or why not."""
    spool = Spool.beside(str(store_dir))
    spool.begin()
    names = {digest: name for name, digest in settings.helpers.items()}
    endpoint = Endpoint(spool, LocalStore(store_dir), names)
    runner = web.AppRunner(endpoint.app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, settings.host, settings.port).start()
        except OSError as error:
            sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
            return
        host, port = runner.addresses[0][:2]
        sys.stdout.write(json.dumps({"url": f"http://{host}:{port}"}) + "\n")
        sys.stdout.flush()
        await ended
    finally:
        await runner.cleanup()


def main() -> None:
    """Reads its settings in a line of standard input, and ends with that."""
    message = loads(sys.stdin.readline())
    settings = RolloutsSection.model_validate(message["rollouts"])
    logging.getLogger("aiohttp.server").addFilter(is_defect)

    async def serve() -> None:
        ended = asyncio.to_thread(sys.stdin.read)
        await answer_until(settings, Path(message["store"]), ended)

    asyncio.run(serve())


if __name__ == "__main__":
    main()
