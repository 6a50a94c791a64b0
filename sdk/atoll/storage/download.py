"""Asks gateways that owe us nothing for one block at a time, or for a CAR.

Rule of this file: nothing received is used before it matches the CID that was asked for, and no
request can cost more than its caps in bytes and seconds, whatever the other side sends.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Final

import aiohttp
from yarl import URL

from atoll.errors import CorruptBlock, NotFound, TooLarge
from atoll.proxies import proxy_hosts, proxy_of
from atoll.storage.addresses import GatewayResolver, is_global
from atoll.storage.car import CarReader
from atoll.storage.cid import Cid
from atoll.storage.negotiation import CAR_TYPE, RAW_TYPE
from atoll.storage.rate_limits import FairSlots, Outsider, RateLimit
from atoll.storage.sources import GatewaySource, SourceBook
from atoll.storage.unixfs import MAX_BLOCK_BYTES

_READ_BYTES: Final = 1 << 18
_SLICE_S: Final = 0.05  # how late a second gateway may be asked, at most
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0  # between questions whether a block is there by now
_FIRST_BUSY_S, _LONGEST_BUSY_S = 1.0, 60.0  # of what a gateway without room says
_DOUBLINGS: Final = 4  # of the pause between passes, where somebody slow is waited for meanwhile


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """Limits of every fetch.

    Attributes:
        parallel: blocks requested at once in one fetch, and of one gateway.
        at_once: blocks requested at once in all; those for whom they are take turns. Half as many
            more are for outsiders, who wait for nobody else and nobody else for them.
        slow_s: a request that takes longer is not counted among these, so that gateways which drip
            hold up nobody's requests to others.
        connect_timeout_s: to learn a gateway's address, and to open a connection.
        block_timeout_s: for a whole block, however slowly its bytes keep coming.
        hedge_min_s: a second gateway is asked for a block that takes four times as long as blocks
            lately took (of the first, nobody knows), but not before this.
        hedge_max_s: ... and no later than this. A third waits twice as long, and so on.
        relay_min_s: a gateway that is itself getting a block just now is given up when it delivers
            nothing for four times as long as blocks lately took, but not before this.
        relay_max_s: ... and no later than this, whatever else it delivers.
        passes: how often all gateways are asked before a block counts as not found. While one of
            them is slow, preferred ones are asked more often: who did not have it may by then.
            A pass after which one has no room, and said when it will, does not count.
        pass_pause_s: pause before the second pass, doubled before each later one.
        max_block_bytes: the largest block accepted.
        bytes_per_s: download limit for all fetches together; None for none.
        private_addresses: whether gateways of this machine and of networks around it are asked.
            Not where strangers name them.
        greet: an `Authorization` header for a gateway's address, which gives us room there.
    """

    parallel: int = 8
    at_once: int = 64
    slow_s: float = 1.0
    connect_timeout_s: float = 5.0
    block_timeout_s: float = 20.0
    hedge_min_s: float = 0.25
    hedge_max_s: float = 2.0
    relay_min_s: float = 5.0
    relay_max_s: float = 20.0
    passes: int = 3
    pass_pause_s: float = 0.25
    max_block_bytes: int = MAX_BLOCK_BYTES
    bytes_per_s: float | None = None
    private_addresses: bool = True
    greet: Callable[[str], str] | None = None


class _SourceFailed(Exception):
    """One gateway did not answer usefully."""


class _SourceBusy(_SourceFailed):
    """One gateway has no room just now.

    Attributes:
        seconds: when to ask it again (RFC 9110, 10.2.3).
    """

    def __init__(self, status: int, seconds: float) -> None:
        super().__init__(f"HTTP status {status}: it is to be asked again in {seconds:.0f} s")
        self.seconds = seconds


class Downloader:
    """Connections to gateways, and what is known of each.

    Args:
        accept: checks and stores a block, raising CorruptBlock or TooLarge; called in a thread.
        config: the limits.
    """

    def __init__(self, accept: Callable[[Cid, bytes], None], config: FetchConfig) -> None:
        self._accept = accept
        self._config = config
        self._rate = RateLimit(config.bytes_per_s, time.monotonic)
        self._room = FairSlots(config.at_once)
        self._outsiders_room = FairSlots(-(-config.at_once // 2))
        self._session: aiohttp.ClientSession | None = None
        self._resolver: GatewayResolver | None = None
        self.sources = SourceBook(time.monotonic)
        self.bytes_down = 0

    async def close(self) -> None:
        """Closes every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._resolver is not None:
            await self._resolver.close()
            self._resolver = None

    async def block(
        self,
        cid: Cid,
        gateways: Callable[[], Sequence[str]],
        prefer: Sequence[str],
        party: Hashable,
    ) -> bytes:
        """Gets one block from whoever has it; it is stored when this returns.

        Args:
            gateways: the base URLs known now; called for every pass, so the list may grow.
            prefer: gateways to ask before them.
            party: for whom it is; each has its turn, however many blocks the others wait for.

        Raises:
            NotFound: no gateway delivered it; the message says what each answered.
        """
        reasons: dict[str, str] = {}
        running: dict[asyncio.Task[bytes | None], GatewaySource] = {}
        left, config, clock = self._config.passes, self._config, self.sources.clock
        began = clock()
        try:
            for attempt in count():
                if running:
                    # Who is to have it is asked again: everyone, by everyone, would be a flood.
                    again = self.sources.ranked([], prefer)
                    slow = set(map(id, running.values()))
                    waiting = deque(s for s in again if not s.lies and id(s) not in slow)
                else:
                    waiting = deque(self.sources.with_room(self.sources.ranked(gateways(), prefer)))
                pause = config.pass_pause_s * 2 ** min(attempt, _DOUBLINGS)
                block = await self._race(cid, waiting, running, (reasons, party, pause))
                if block is not None:
                    return block
                every = self.sources.ranked(gateways(), prefer)
                is_crowded = len(self.sources.with_room(every)) < len(every)
                left -= not running and not is_crowded
                until = began + self._longest_s(every, began)
                if not left or clock() >= until:
                    break
                if not running:
                    await asyncio.sleep(min(pause, until - clock()))
        finally:
            await cancel(running)
        told = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
        raise NotFound(
            f"no gateway delivered {cid} ({told or 'none is known'})",
            next_step="check that a gateway which holds it is running and reachable",
        )

    @property
    def _slowest(self) -> float:
        """Bytes a second that what has come of an answer buys time by."""
        return self._config.max_block_bytes / self._config.block_timeout_s

    def _longest_s(self, sources: Sequence[GatewaySource], began: float) -> float:
        """For how long one block is asked for: for longer where who had no room for it is giving us
        others meanwhile, since those of one fetch come one by one then.
        """
        config = self._config
        usual = config.passes * config.block_timeout_s
        lately = max(0.0, self.sources.clock() - usual)
        is_served = any(each.busy_until > began and each.delivered_at > lately for each in sources)
        return max(usual, config.parallel * config.block_timeout_s) if is_served else usual

    async def awaited(self, cid: Cid, gateway: str, until: float, party: Hashable) -> bytes | None:
        """A block from a gateway that is getting it itself just now; stored when this returns.

        Args:
            until: when nothing is waited for any more, whose fault it may be; by the book's clock.
            party: as `block`.

        Returns:
            None where it fails, or does not have it in time: then nothing is waited for there for
            half a minute, twice as long each further time, so that withholding costs little.
        """
        for source in self.sources.ranked([gateway]):
            began, pause = self.sources.clock(), _FIRST_PAUSE_S
            while (left := self._patience_left(source, began, until)) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        block = await self._from_one(cid, source, {}, party)
                        if block is not None:
                            return block
                        await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
        return None

    def _patience_left(self, source: GatewaySource, began: float, last: float) -> float:
        """Seconds for which a gateway is still waited for; notes when it had its time in vain."""
        now, config = self.sources.clock(), self._config
        if source.lies or max(source.rest_until, source.unawaited_until) > now:
            return 0.0
        patience = self.sources.patience_s(config.relay_min_s, config.relay_max_s)
        until = min(max(began, source.delivered_at) + patience, began + config.relay_max_s)
        if until <= now:
            self.sources.withheld(source)
        return min(until, last) - now

    async def note(self, gateway: str, name: str, max_bytes: int) -> bytes | None:
        """What a gateway has under a name; None where it has nothing.

        Nothing vouches for the bytes: the caller has to.

        Raises:
            NotFound: it does not answer, or not usefully.
        """
        for source in self.sources.ranked([gateway]):
            try:
                async with asyncio.timeout(self._config.connect_timeout_s):
                    return await self._body(source, f"notes/{name}", "*/*", max_bytes)
            except NotFound:
                return None
            except Exception as error:  # as in `_ask`
                raise NotFound(f"{gateway} does not answer: {error!r}"[:300]) from error
        raise NotFound(f"{gateway!r} is no gateway's address")

    async def car(
        self, cid: Cid, gateway: str, max_bytes: int
    ) -> AsyncGenerator[tuple[Cid, bytes], None]:
        """The blocks that one gateway sends as the DAG below `cid`; each matches its own CID.

        The caller decides which of them belong to what it asked for.

        Raises:
            NotFound: the gateway does not have it, or failed.
            CorruptBlock, TooLarge: it sent something else, or more than `max_bytes`.
        """
        sources = self.sources.ranked([gateway])
        if not sources:
            raise NotFound(f"{gateway!r} is no gateway's address")
        (source,) = sources
        reader = CarReader(max_bytes)
        path = f"ipfs/{cid}?format=car"
        try:
            async with aclosing(self._pieces(source, path, CAR_TYPE)) as pieces:
                async for piece in pieces:
                    for found in reader.feed(piece):
                        yield found
            reader.finish()
        except (CorruptBlock, TooLarge):
            self.sources.lied(source)
            raise
        except NotFound:
            raise
        except Exception as error:  # as in `_ask`
            self.sources.failed(source)
            raise NotFound(f"{gateway} failed to send {cid} as a CAR: {error!r}"[:300]) from error

    async def _race(
        self,
        cid: Cid,
        waiting: deque[GatewaySource],
        running: dict[asyncio.Task[bytes | None], GatewaySource],
        how: tuple[dict[str, str], Hashable, float],
    ) -> bytes | None:
        """Asks source after source, the next when one fails or is slow; the first block wins.

        Args:
            running: requests under way. Where nobody else is left to ask, those that are slow get
                no more than a pause here: who did not have it may have it by then.
            how: what each answered, for whom it is, and the pause, seconds.
        """
        reasons, party, pause = how
        while waiting or running:
            if waiting:
                source = waiting.popleft()
                task = asyncio.create_task(self._from_one(cid, source, reasons, party))
                running[task] = source
            may_hedge = bool(waiting) and not waiting[0].lies
            most = None if waiting else max(pause, _SLICE_S)
            done = await self._wait(running, may_hedge=may_hedge, most=most)
            for task in done:
                earlier = _asked_before(task, running)
                del running[task]
                block = task.result()
                if block is not None:
                    for slower in earlier:
                        self.sources.overtaken(slower)  # and asked later from now on
                    return block
            if not done and not waiting:
                return None
        return None

    async def _wait(
        self,
        running: dict[asyncio.Task[bytes | None], GatewaySource],
        *,
        may_hedge: bool,
        most: float | None,
    ) -> set[asyncio.Task[bytes | None]]:
        """Waits for a task to end, for so many seconds at most, or, where another gateway could be
        asked, for patience to end."""
        started = self.sources.clock()
        while True:
            done, _ = await asyncio.wait(
                running,
                timeout=_SLICE_S if may_hedge else most,
                return_when=asyncio.FIRST_COMPLETED,
            )
            patience = self.sources.patience_s(self._config.hedge_min_s, self._config.hedge_max_s)
            # Each further one waits longer, so that a slow network is not asked for all at once.
            is_over = self.sources.clock() - started >= patience * 2 ** (len(running) - 1)
            if done or is_over or not may_hedge:
                return done

    async def _from_one(
        self, cid: Cid, source: GatewaySource, reasons: dict[str, str], party: Hashable
    ) -> bytes | None:
        """Asks one gateway; a block that checks out is stored and returned, else None."""
        source.in_flight += 1
        started = self.sources.clock()
        try:
            async with self._place(party):
                started = self.sources.clock()
                block = await self._ask(cid, source)
            await asyncio.to_thread(self._accept, cid, block)
        except (CorruptBlock, TooLarge) as error:
            self.sources.lied(source)
            reasons[source.url] = str(error)
        except NotFound as error:
            reasons[source.url] = str(error)
        except _SourceBusy as error:
            self.sources.busy(source, error.seconds)
            reasons[source.url] = str(error)
        except _SourceFailed as error:
            self.sources.failed(source)
            reasons[source.url] = str(error)
        else:
            self.sources.delivered(source, len(block), self.sources.clock() - started)
            return block
        finally:
            source.in_flight -= 1
        return None

    @asynccontextmanager
    async def _place(self, party: Hashable) -> AsyncIterator[None]:
        """Room for one request; whoever is slow gives it back before the end."""
        room = self._outsiders_room if isinstance(party, Outsider) else self._room
        await room.acquire(party)
        is_ours = True

        def give_back() -> None:
            nonlocal is_ours
            if is_ours:
                is_ours = False
                room.release()

        timer = asyncio.get_running_loop().call_later(self._config.slow_s, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()

    async def _ask(self, cid: Cid, source: GatewaySource) -> bytes:
        """One gateway's answer, unchecked.

        The one boundary to strangers' gateways: whatever their address or their answer does to the
        libraries below is that gateway's failure, and the next one is asked.

        Raises:
            NotFound: it says that it does not have it.
            TooLarge: it sent more than any block has.
            _SourceFailed: anything else.
        """
        try:
            async with asyncio.timeout(self._config.block_timeout_s) as patience:
                return await self._download(cid, source, patience)
        except (NotFound, TooLarge, _SourceBusy):
            raise
        except TimeoutError as error:
            message = f"no block within {self._config.block_timeout_s} s"
            raise _SourceFailed(message) from error
        except Exception as error:  # what a stranger's bytes made of a parser is not foreseen
            raise _SourceFailed(f"{type(error).__name__}: {error}"[:200]) from error

    async def _download(self, cid: Cid, source: GatewaySource, patience: asyncio.Timeout) -> bytes:
        path = f"ipfs/{cid}?format=raw"
        most = self._config.max_block_bytes
        return await self._body(source, path, RAW_TYPE, most, patience)

    async def _body(
        self,
        source: GatewaySource,
        path: str,
        accept: str,
        max_bytes: int,
        patience: asyncio.Timeout | None = None,
    ) -> bytes:
        """A whole body; what has come of it puts the end of patience off, as in `_pieces`."""
        pieces: list[bytes] = []
        size = 0
        async with aclosing(self._pieces(source, path, accept)) as body:
            async for piece in body:
                pieces.append(piece)
                size += len(piece)
                until = None if patience is None else patience.when()
                if patience is not None and until is not None and not patience.expired():
                    patience.reschedule(until + len(piece) / self._slowest)
                if size > max_bytes:
                    raise TooLarge(f"sent more than {max_bytes} bytes")
        return b"".join(pieces)

    async def _pieces(
        self, source: GatewaySource, path: str, accept: str
    ) -> AsyncGenerator[bytes, None]:
        """A response's body as it comes, at no less than a block in `block_timeout_s`.

        Raises:
            NotFound: the gateway says that it does not have it.
            ClientError, OSError: it failed, was too slow, or answered anything but 200.
        """
        started, received = self.sources.clock(), 0
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
                raise _SourceBusy(response.status, _retry_after_s(response.headers))
            if response.status != 200:
                raise aiohttp.ClientError(f"HTTP status {response.status}")
            async for piece in response.content.iter_any():
                received += len(piece)
                self.bytes_down += len(piece)
                yield piece
                await self._rate.spend(len(piece))
                allowed_s = self._config.block_timeout_s + received / self._slowest
                if self.sources.clock() - started > allowed_s:
                    raise aiohttp.ClientError("too slow")

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
                    limit=0,  # see `_place`
                    limit_per_host=config.parallel,
                    resolver=self._resolver,
                ),
                read_bufsize=_READ_BYTES,
            )
        return self._session


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds of a Retry-After, within bounds; a date, and what is neither, is the least."""
    said = headers.get("Retry-After", "")
    seconds = float(said) if said.isascii() and said.isdigit() and len(said) < 10 else 0.0
    return min(max(seconds, _FIRST_BUSY_S), _LONGEST_BUSY_S)


def _asked_before(
    task: asyncio.Task[bytes | None], running: dict[asyncio.Task[bytes | None], GatewaySource]
) -> list[GatewaySource]:
    """Of requests for one block, in order, whom those before `task` still wait for."""
    return [source for _, source in takewhile(lambda item: item[0] is not task, running.items())]


async def cancel(tasks: Iterable[asyncio.Task[bytes | None]]) -> None:
    """Cancels tasks and waits until they are gone."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
