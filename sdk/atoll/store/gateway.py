"""Serves this machine's blocks to anyone.

Specification: https://specs.ipfs.tech/http-gateways/trustless-gateway/.

A trustless gateway gives bytes that the receiver checks against the CID it asked for, so it needs
no authority and vouches for nothing.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Final

from aiohttp import web

from atoll.errors import ConfigError, CorruptBlock, NotFound
from atoll.store.cid import Cid
from atoll.store.local import LocalStore

RAW_TYPE: Final = "application/vnd.ipld.raw"
_FOREVER: Final = "public, max-age=29030400, immutable"


class Gateway:
    """An HTTP server over a store.

    Args:
        store: where the blocks are.
        host: the interface to listen on.
        port: the port, or 0 for any free one.
        allow: which blocks to serve; None serves all.
    """

    def __init__(
        self,
        store: LocalStore,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        allow: Callable[[Cid], bool] | None = None,
    ) -> None:
        self._store = store
        self._host = host
        self._port = port
        self._allow = allow
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
        app.router.add_get("/ipfs/{path:.*}", self._get)
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

    async def _get(self, request: web.Request) -> web.StreamResponse:
        wanted = request.query.get("format")
        if wanted != "raw" and not (
            wanted is None and RAW_TYPE in request.headers.get("Accept", "")
        ):
            return _refuse(
                406, f"this gateway serves blocks: add ?format=raw or Accept: {RAW_TYPE}"
            )
        try:
            cid = Cid.parse(request.match_info["path"])
        except ValueError as error:
            return _refuse(400, str(error))
        headers = {"Etag": f'"{cid}.raw"', "Cache-Control": _FOREVER, "X-Ipfs-Path": f"/ipfs/{cid}"}
        if self._allow is not None and not self._allow(cid):
            return _refuse(404, f"{cid} is not here")
        if headers["Etag"] in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        try:
            block = await asyncio.to_thread(self._store.get_block, cid)
        except (NotFound, CorruptBlock):
            return _refuse(404, f"{cid} is not here")
        headers |= {
            "Content-Disposition": f'attachment; filename="{cid}.bin"',
            "X-Content-Type-Options": "nosniff",
        }
        if request.method != "HEAD":
            self.bytes_up += len(block)
        return web.Response(body=block, content_type=RAW_TYPE, headers=headers)


def _refuse(status: int, reason: str) -> web.Response:
    return web.Response(status=status, text=reason + "\n", headers={"Cache-Control": "no-store"})
