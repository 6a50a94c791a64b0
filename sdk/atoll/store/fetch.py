"""Gets content from gateways that owe us nothing.

Rule of this file: nothing received is used before it matches the CID that was asked for, and no
request can cost more than its caps in bytes and seconds, whatever the other side sends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp

from atoll.errors import CorruptBlock, NotFound, TooLarge
from atoll.store.cid import RAW, Cid
from atoll.store.gateway import RAW_TYPE
from atoll.store.local import LocalStore
from atoll.store.sources import Source, SourceBook
from atoll.store.unixfs import MAX_BLOCK_BYTES, FileWalk

_READ_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """Limits of every fetch.

    Attributes:
        parallel: blocks requested at once in one fetch.
        connect_timeout_s: to open a connection.
        block_timeout_s: for a whole block, however slowly its bytes keep coming.
        hedge_s: after which a second source is asked for a block that is still on its way.
        passes: how often all sources are asked before a block counts as not found.
        pass_pause_s: pause before the second pass, doubled before each later one.
        max_block_bytes: the largest block accepted.
    """

    parallel: int = 8
    connect_timeout_s: float = 5.0
    block_timeout_s: float = 20.0
    hedge_s: float = 1.5
    passes: int = 3
    pass_pause_s: float = 0.25
    max_block_bytes: int = MAX_BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class _Want:
    """A block of a file on its way: what its parent said of it, and how deep it lies."""

    cid: Cid
    claimed_bytes: int | None
    depth: int


class Fetcher:
    """Fetches files into a store, from any gateway that has them.

    Use it as an async context manager, or call `close`.

    Args:
        store: where blocks go, and where they are looked for first.
        gateways: the base URLs known now; called for every block, so the list may grow.
        config: the limits.
    """

    def __init__(
        self,
        store: LocalStore,
        gateways: Callable[[], Sequence[str]],
        config: FetchConfig | None = None,
    ) -> None:
        self._store = store
        self._gateways = gateways
        self._config = config or FetchConfig()
        self._session: aiohttp.ClientSession | None = None
        self.sources = SourceBook(time.monotonic)
        self.bytes_down = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, cid: Cid, max_bytes: int, prefer: Sequence[str] = ()) -> bytes:
        """Fetches a file and returns its bytes; arguments and errors as `fetch`."""
        await self.fetch(cid, max_bytes, prefer)
        return await asyncio.to_thread(self._store.read_bytes, cid, max_bytes)

    async def get_file(
        self, cid: Cid, path: Path | str, max_bytes: int, prefer: Sequence[str] = ()
    ) -> int:
        """Fetches a file and writes it to `path`, whole or not at all; returns its size."""
        await self.fetch(cid, max_bytes, prefer)
        return await asyncio.to_thread(self._store.read_file_to, cid, path, max_bytes)

    async def fetch(self, cid: Cid, max_bytes: int, prefer: Sequence[str] = ()) -> None:
        """Brings every block of a file into the store; blocks already there are not fetched again.

        Args:
            cid: the file's root, or a DAG-CBOR block.
            max_bytes: the largest file accepted.
            prefer: gateways to ask before the others.

        Raises:
            NotFound: no source delivered some block; what arrived stays, so a repeat resumes.
            TooLarge: the file exceeds `max_bytes`.
            MalformedDag: the blocks are authentic but not a file.
            DiskFull: no room.
        """
        walk = FileWalk(cid, max_bytes)
        stack = [_Want(cid, None, 0)]
        running: dict[asyncio.Task[bytes | None], _Want] = {}
        try:
            while stack or running:
                while stack and len(running) < self._config.parallel:
                    want = stack.pop()
                    running[asyncio.create_task(self._bring(want, prefer))] = want
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    want = running.pop(task)
                    stack.extend(_children(walk, want, task.result()))
        finally:
            await _cancel(running)

    async def fetch_block(self, cid: Cid, prefer: Sequence[str] = ()) -> bytes:
        """Returns one block, from the store or else from a gateway (and then stores it).

        Raises:
            NotFound: no source delivered it.
            DiskFull: no room.
        """
        try:
            return await asyncio.to_thread(self._store.get_block, cid)
        except (NotFound, CorruptBlock):
            return await self._from_anyone(cid, prefer)

    async def _bring(self, want: _Want, prefer: Sequence[str]) -> bytes | None:
        """One block's bytes; None for a leaf that is already here with the right size."""
        if want.cid.codec == RAW and want.claimed_bytes is not None:
            size = await asyncio.to_thread(self._store.block_bytes, want.cid)
            if size == want.claimed_bytes:
                return None
        return await self.fetch_block(want.cid, prefer)

    async def _from_anyone(self, cid: Cid, prefer: Sequence[str]) -> bytes:
        reasons: dict[str, str] = {}
        for attempt in range(self._config.passes):
            if attempt:
                await asyncio.sleep(self._config.pass_pause_s * 2 ** (attempt - 1))
            preferred = self.sources.ranked(prefer)
            others = [s for s in self.sources.ranked(self._gateways()) if s not in preferred]
            block = await self._race(cid, preferred + others, reasons)
            if block is not None:
                return block
        told = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
        raise NotFound(
            f"no gateway delivered {cid} ({told or 'none is known'})",
            next_step="check that a gateway which holds it is running and reachable",
        )

    async def _race(self, cid: Cid, sources: list[Source], reasons: dict[str, str]) -> bytes | None:
        """Asks source after source, the next when one fails or is slow; the first block wins."""
        running: set[asyncio.Task[bytes | None]] = set()
        waiting = iter(sources)
        try:
            while True:
                source = next(waiting, None)
                if source is not None:
                    running.add(asyncio.create_task(self._from_one(cid, source, reasons)))
                elif not running:
                    return None
                patience = self._config.hedge_s if source is not None else None
                done, running = await asyncio.wait(
                    running, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    block = task.result()
                    if block is not None:
                        return block
        finally:
            await _cancel(running)

    async def _from_one(self, cid: Cid, source: Source, reasons: dict[str, str]) -> bytes | None:
        """Asks one gateway; a block that checks out is stored and returned, else None."""
        source.in_flight += 1
        try:
            async with asyncio.timeout(self._config.block_timeout_s):
                block = await self._download(cid, source)
            await asyncio.to_thread(self._store.put_block, cid, block)
        except (CorruptBlock, TooLarge) as error:
            self.sources.lied(source)
            reasons[source.url] = str(error)
        except NotFound as error:
            reasons[source.url] = str(error)
        except TimeoutError:
            self.sources.failed(source)
            reasons[source.url] = f"no block within {self._config.block_timeout_s} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self.sources.failed(source)
            reasons[source.url] = f"{type(error).__name__}: {error}"[:200]
        else:
            self.sources.delivered(source, len(block))
            return block
        finally:
            source.in_flight -= 1
        return None

    async def _download(self, cid: Cid, source: Source) -> bytes:
        block = bytearray()
        async with self._connect().get(
            f"{source.url}/ipfs/{cid}?format=raw", allow_redirects=False
        ) as response:
            if response.status in (404, 410):
                raise NotFound("does not have it")
            if response.status != 200:
                raise aiohttp.ClientError(f"HTTP status {response.status}")
            async for piece in response.content.iter_chunked(_READ_BYTES):
                self.bytes_down += len(piece)
                block += piece
                if len(block) > self._config.max_block_bytes:
                    response.close()
                    raise TooLarge(f"sent more than {self._config.max_block_bytes} bytes")
        return bytes(block)

    def _connect(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Bytes are taken as sent: a compressed bomb is just a block that does not match.
                auto_decompress=False,
                headers={"Accept": RAW_TYPE, "Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self._config.connect_timeout_s
                ),
                connector=aiohttp.TCPConnector(limit=64, limit_per_host=self._config.parallel),
                read_bufsize=_READ_BYTES,
            )
        return self._session


def _children(walk: FileWalk, want: _Want, block: bytes | None) -> list[_Want]:
    """What to fetch next, last child first, so that a stack yields them in file order."""
    if block is None:
        return []
    node = walk.visit(want.cid, block, want.claimed_bytes, want.depth)
    return [_Want(c.cid, c.file_bytes, want.depth + 1) for c in reversed(node.children)]


async def _cancel(tasks: Iterable[asyncio.Task[bytes | None]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
