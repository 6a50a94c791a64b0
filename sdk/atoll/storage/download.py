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
    Iterator,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count, groupby, takewhile
from typing import Final

from atoll.errors import CorruptBlock, NotFound, TooLarge
from atoll.storage.car import CarReader
from atoll.storage.cid import Cid
from atoll.storage.fetch_config import FetchConfig
from atoll.storage.gateway_client import GatewayClient, SourceBusy, SourceFailed
from atoll.storage.negotiation import CAR_TYPE
from atoll.storage.rate_limits import FairSlots, Outsider
from atoll.storage.sources import GatewaySource, SourceBook

_SLICE_S: Final = 0.05  # how late a second gateway may be asked, at most
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0  # between questions whether a block is there by now
_DOUBLINGS: Final = 4  # of the pause between passes, where somebody slow is waited for meanwhile


@dataclass(frozen=True, slots=True)
class Asked:
    """What a gateway is asked for.

    Attributes:
        accept: takes the answer, raising CorruptBlock or TooLarge; called in a thread.
        numbers: of the pieces to be shown; none where it is the block.
        most: bytes of the answer; None for those of a block.
    """

    cid: Cid
    accept: Callable[[Cid, bytes], None]
    numbers: Sequence[int] = ()
    most: int | None = None

    @property
    def path(self) -> str:
        """Of its URL."""
        if not self.numbers:
            return f"ipfs/{self.cid}?format=raw"
        return f"pieces/{self.cid}?numbers={','.join(_runs(self.numbers))}"


def _runs(numbers: Sequence[int]) -> Iterator[str]:
    """Ascending numbers as a request has them: those in a row as a range."""
    for _, pairs in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in pairs]
        yield f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}"


class Downloader:
    """Blocks from gateways, and what is known of each.

    Args:
        accept: checks and stores a block, raising CorruptBlock or TooLarge; called in a thread.
        config: the limits.

    Attributes:
        client: the connections.
    """

    def __init__(self, accept: Callable[[Cid, bytes], None], config: FetchConfig) -> None:
        self._accept = accept
        self._config = config
        self._room = FairSlots(config.at_once)
        self._outsiders_room = FairSlots(-(-config.at_once // 2))
        self.client = GatewayClient(config, time.monotonic)
        self.sources = SourceBook(time.monotonic)

    @property
    def bytes_down(self) -> int:
        """Bytes of bodies received."""
        return self.client.bytes_down

    async def close(self) -> None:
        """Closes every connection."""
        await self.client.close()

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
                block = await self._race(
                    cid, waiting, running, reasons=reasons, party=party, pause=pause
                )
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
        answers = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
        raise NotFound(
            f"no gateway delivered {cid} ({answers or 'none is known'})",
            next_step="check that a gateway which holds it is running and reachable",
        )

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

    async def shown(
        self,
        asked: Asked,
        gateways: Callable[[], Sequence[str]],
        prefer: Sequence[str],
        party: Hashable,
    ) -> None:
        """Has pieces of a file shown by whoever has it; other arguments as `block`.

        Raises:
            NotFound: nobody showed what is accepted.
        """
        reasons: dict[str, str] = {}
        for attempt in range(self._config.passes):
            if attempt:
                await asyncio.sleep(self._config.pass_pause_s * 2**attempt)
            for source in self.sources.with_room(self.sources.ranked(gateways(), prefer)):
                if await self._answer(source, reasons, party, asked) is not None:
                    return
        answers = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
        raise NotFound(f"no gateway showed pieces of {asked.cid} ({answers or 'none is known'})")

    async def note(self, gateway: str, name: str, max_bytes: int) -> bytes | None:
        """What a gateway has under a name; None where it has nothing.

        Nothing vouches for the bytes: the caller has to.

        Raises:
            NotFound: it does not answer, or not usefully.
        """
        for source in self.sources.ranked([gateway]):
            try:
                async with asyncio.timeout(self._config.connect_timeout_s):
                    return await self.client.body(source, f"notes/{name}", "*/*", max_bytes)
            except NotFound:
                return None
            except Exception as error:  # as in `GatewayClient.ask`
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
            async with aclosing(self.client.pieces(source, path, CAR_TYPE)) as pieces:
                async for piece in pieces:
                    for block in reader.feed(piece):
                        yield block
            reader.finish()
        except (CorruptBlock, TooLarge):
            self.sources.lied(source)
            raise
        except NotFound:
            raise
        except Exception as error:  # as in `GatewayClient.ask`
            self.sources.failed(source)
            raise NotFound(f"{gateway} failed to send {cid} as a CAR: {error!r}"[:300]) from error

    async def _race(
        self,
        cid: Cid,
        waiting: deque[GatewaySource],
        running: dict[asyncio.Task[bytes | None], GatewaySource],
        *,
        reasons: dict[str, str],
        party: Hashable,
        pause: float,
    ) -> bytes | None:
        """Asks source after source, the next when one fails or is slow; the first block wins.

        Args:
            running: requests under way. Where nobody else is left to ask, those that are slow get
                no more than a pause here: who did not have it may have it by then.
            reasons: what each answered, by its address.
            party: for whom it is.
            pause: in seconds.
        """
        while waiting or running:
            if waiting:
                source = waiting.popleft()
                task = asyncio.create_task(self._from_one(cid, source, reasons, party))
                running[task] = source
            may_hedge = bool(waiting) and not waiting[0].lies
            most = None if waiting else max(pause, _SLICE_S)
            ended = await self._wait(running, may_hedge=may_hedge, most=most)
            for task in ended:
                earlier = _asked_before(task, running)
                del running[task]
                block = task.result()
                if block is not None:
                    for slower in earlier:
                        self.sources.overtaken(slower)  # and asked later from now on
                    return block
            if not ended and not waiting:
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
            ended, _ = await asyncio.wait(
                running,
                timeout=_SLICE_S if may_hedge else most,
                return_when=asyncio.FIRST_COMPLETED,
            )
            patience = self.sources.patience_s(self._config.hedge_min_s, self._config.hedge_max_s)
            # Each further one waits longer, so that a slow network is not asked for all at once.
            is_over = self.sources.clock() - started >= patience * 2 ** (len(running) - 1)
            if ended or is_over or not may_hedge:
                return ended

    async def _from_one(
        self, cid: Cid, source: GatewaySource, reasons: dict[str, str], party: Hashable
    ) -> bytes | None:
        """Asks one gateway; a block that checks out is stored and returned, else None."""
        return await self._answer(source, reasons, party, Asked(cid, self._accept))

    async def _answer(
        self, source: GatewaySource, reasons: dict[str, str], party: Hashable, asked: Asked
    ) -> bytes | None:
        """One gateway's answer, once it is accepted; else None."""
        source.in_flight += 1
        started = self.sources.clock()
        try:
            async with self._place(party):
                started = self.sources.clock()
                block = await self.client.ask(asked.path, source, asked.most)
            await asyncio.to_thread(asked.accept, asked.cid, block)
        except (CorruptBlock, TooLarge) as error:
            self.sources.lied(source)
            reasons[source.url] = str(error)
        except NotFound as error:
            reasons[source.url] = str(error)
        except SourceBusy as error:
            self.sources.busy(source, error.seconds)
            reasons[source.url] = str(error)
        except SourceFailed as error:
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
