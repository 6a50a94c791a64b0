"""HTTP with gateways that owe us nothing.

Rule of this file: no answer can cost more than its caps in bytes and seconds, whatever the other
side sends. Nothing is checked here: the caller has to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
from yarl import URL

from atoll.errors import NotFound, TooLarge
from atoll.proxies import proxy_hosts, proxy_of
from atoll.storage.addresses import GatewayResolver, is_global
from atoll.storage.cid import Cid
from atoll.storage.fetch_config import FetchConfig
from atoll.storage.negotiation import RAW_TYPE
from atoll.storage.rate_limits import RateLimit
from atoll.storage.sources import GatewaySource

_READ_BYTES: Final = 1 << 18
_SENT_BYTES: Final = 1 << 16
_LEAST_UPLOAD_BYTES_PER_S: Final = 1 << 14  # a gateway gives up whoever sends less
_FIRST_BUSY_S, _LONGEST_BUSY_S = 1.0, 60.0  # of what a gateway without room says


class SourceFailed(Exception):
    """One gateway did not answer usefully."""


class SourceBusy(SourceFailed):
    """One gateway has no room just now.

    Attributes:
        seconds: when to ask it again (RFC 9110, 10.2.3).
    """

    def __init__(self, status: int, seconds: float) -> None:
        super().__init__(f"HTTP status {status}: it is to be asked again in {seconds:.0f} s")
        self.seconds = seconds


class GatewayClient:
    """Connections to gateways.

    Attributes:
        bytes_down: bytes of bodies received; bytes_up: of blocks brought to others.
    """

    def __init__(self, config: FetchConfig, clock: Callable[[], float]) -> None:
        self._config, self._clock = config, clock
        self._rate = RateLimit(config.bytes_per_s, clock)
        self._session: aiohttp.ClientSession | None = None
        self._resolver: GatewayResolver | None = None
        self.bytes_down = 0
        self.bytes_up = 0

    async def close(self) -> None:
        """Closes every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._resolver is not None:
            await self._resolver.close()
            self._resolver = None

    async def ask(self, path: str, source: GatewaySource, most: int | None = None) -> bytes:
        """One gateway's answer of at most so many bytes, by default a block's, unchecked.

        The one boundary to strangers' gateways: whatever their address or their answer does to the
        libraries below is that gateway's failure, and the next one is asked.

        Raises:
            NotFound: it says that it does not have it.
            TooLarge: it sent more than that.
            SourceFailed: anything else.
        """
        try:
            async with asyncio.timeout(self._config.block_timeout_s) as patience:
                limit = self._config.max_block_bytes if most is None else most
                return await self.body(source, path, RAW_TYPE, limit, patience)
        except (NotFound, TooLarge, SourceBusy):
            raise
        except TimeoutError as error:
            message = f"no block within {self._config.block_timeout_s} s"
            raise SourceFailed(message) from error
        except Exception as error:  # what a stranger's bytes made of a parser is not foreseen
            raise SourceFailed(f"{type(error).__name__}: {error}"[:200]) from error

    async def has(self, cid: Cid, source: GatewaySource) -> bool:
        """Whether a gateway says that it has a block.

        Raises:
            SourceFailed: it does not answer usefully.
        """
        try:
            async with asyncio.timeout(self._config.block_timeout_s):
                async with self._request("HEAD", source, f"ipfs/{cid}?format=raw", {}) as answer:
                    _check_has_room(answer)
                    return answer.status == 200
        except SourceFailed:
            raise
        except Exception as error:  # as in `ask`
            raise SourceFailed(f"{type(error).__name__}: {error}"[:200]) from error

    async def put(self, cid: Cid, sending: Sending, source: GatewaySource) -> bool:
        """Brings a block to a gateway; whether it has it now.

        Its bytes are sent once the gateway has said that it takes them.

        Raises:
            SourceFailed: it does not answer usefully.
        """
        size = len(sending.block)
        seconds = 2 * self._config.block_timeout_s + size / _LEAST_UPLOAD_BYTES_PER_S
        where, length = f"ipfs/{cid}", {"Content-Length": str(size)}
        try:
            async with asyncio.timeout(seconds):
                request = self._request("PUT", source, where, length, data=sending.pieces())
                async with request as answer:
                    _check_has_room(answer)
                    return answer.status in (200, 201)
        except SourceFailed:
            raise
        except Exception as error:  # as in `ask`
            raise SourceFailed(f"{type(error).__name__}: {error}"[:200]) from error
        finally:
            self.bytes_up += sending.sent

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        source: GatewaySource,
        path: str,
        headers: dict[str, str],
        data: AsyncGenerator[bytes, None] | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """A request whose answer's body does not matter."""
        proxy = proxy_of(source.url)
        await self._check_is_abroad(URL(source.url), proxy)
        if self._config.greet is not None:
            headers = headers | {"Authorization": self._config.greet(source.url)}
        async with self._connect().request(
            method,
            f"{source.url}/{path}",
            headers=headers,
            data=data,
            allow_redirects=False,
            proxy=proxy,
            expect100=data is not None,
        ) as answer:
            yield answer

    async def body(
        self,
        source: GatewaySource,
        path: str,
        accept: str,
        max_bytes: int,
        patience: asyncio.Timeout | None = None,
    ) -> bytes:
        """A whole body; what has come of it puts the end of patience off, as in `pieces`."""
        pieces: list[bytes] = []
        size = 0
        async with aclosing(self.pieces(source, path, accept)) as body:
            async for piece in body:
                pieces.append(piece)
                size += len(piece)
                until = None if patience is None else patience.when()
                if patience is not None and until is not None and not patience.expired():
                    patience.reschedule(until + len(piece) / self._slowest)
                if size > max_bytes:
                    raise TooLarge(f"sent more than {max_bytes} bytes")
        return b"".join(pieces)

    async def pieces(
        self, source: GatewaySource, path: str, accept: str
    ) -> AsyncGenerator[bytes, None]:
        """A response's body as it comes, at no less than a block in `block_timeout_s`.

        Raises:
            NotFound: the gateway says that it does not have it.
            ClientError, OSError: it failed, was too slow, or answered anything but 200.
        """
        started, received = self._clock(), 0
        proxy = proxy_of(source.url)
        await self._check_is_abroad(URL(source.url), proxy)
        headers = {"Accept": accept}
        if self._config.greet is not None:
            headers["Authorization"] = self._config.greet(source.url)
        async with self._connect().get(
            f"{source.url}/{path}", headers=headers, allow_redirects=False, proxy=proxy
        ) as response:
            if response.status in (404, 410):
                raise NotFound("does not have it")
            if response.status in (429, 503):
                raise SourceBusy(response.status, _retry_after_s(response.headers))
            if response.status != 200:
                raise aiohttp.ClientError(f"HTTP status {response.status}")
            async for piece in response.content.iter_any():
                received += len(piece)
                self.bytes_down += len(piece)
                yield piece
                await self._rate.spend(len(piece))
                allowed_s = self._config.block_timeout_s + received / self._slowest
                if self._clock() - started > allowed_s:
                    raise aiohttp.ClientError("too slow")

    @property
    def _slowest(self) -> float:
        """Bytes a second that what has come of an answer buys time by."""
        return self._config.max_block_bytes / self._config.block_timeout_s

    async def _check_is_abroad(self, url: URL, proxy: str | None) -> None:
        """Raises ClientError for a gateway near us, where strangers name them.

        A proxy looks names up by itself. So what name servers tell us is looked at first, and what
        none of them knows is for the proxy to refuse; its own name is no gateway's. Where there is
        no proxy, the resolver of our connections sees to it.
        """
        if self._config.private_addresses:
            return
        host, session = url.host or "", self._connect()
        assert self._resolver is not None and session is not None
        is_near = not is_global(host) or host in proxy_hosts()
        if is_near or (proxy is not None and await self._resolver.is_near(host, url.port or 0)):
            raise aiohttp.ClientError("its address is not one of the Internet")

    def _connect(self) -> aiohttp.ClientSession:
        if self._session is None:
            config = self._config
            self._resolver = GatewayResolver(
                config.connect_timeout_s, private_addresses=config.private_addresses
            )
            self._session = aiohttp.ClientSession(
                # Bytes are taken as sent: a compressed bomb is just a block that does not match.
                auto_decompress=False,
                headers={"Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    sock_connect=config.connect_timeout_s,
                    sock_read=config.block_timeout_s,
                ),
                connector=aiohttp.TCPConnector(
                    limit=0,  # see `Downloader._place`
                    limit_per_host=config.parallel,
                    resolver=self._resolver,
                ),
                read_bufsize=_READ_BYTES,
            )
        return self._session


@dataclass(slots=True)
class Sending:
    """A block as it is sent, and how many of its bytes were."""

    block: bytes
    sent: int = 0

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The block, as far as it is asked for."""
        for start in range(0, len(self.block), _SENT_BYTES):
            piece = self.block[start : start + _SENT_BYTES]
            self.sent += len(piece)
            yield piece


def _check_has_room(answer: aiohttp.ClientResponse) -> None:
    """Raises SourceBusy where a gateway says that it has none just now."""
    if answer.status in (429, 503):
        raise SourceBusy(answer.status, _retry_after_s(answer.headers))


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds of a Retry-After, within bounds; a date, and what is neither, is the least."""
    wait = headers.get("Retry-After", "")
    seconds = float(wait) if wait.isascii() and wait.isdigit() and len(wait) < 10 else 0.0
    return min(max(seconds, _FIRST_BUSY_S), _LONGEST_BUSY_S)
