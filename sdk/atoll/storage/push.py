"""How a file comes from who made it to those who need it: each block goes out about once.

Whoever has no address that others reach can bring its blocks all the same. The first of a block's
lot (`spread.py`) gets it, and those who need the file hand it on to one another. Rule of this file:
what a receiver says of itself delays the file by a part of the patience, and costs it nothing else.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from atoll.errors import NotFound, StorageError, TooLarge
from atoll.storage.block_links import walk_dag
from atoll.storage.cid import RAW, Cid
from atoll.storage.gateway_client import GatewayClient, Sending, SourceBusy, SourceFailed
from atoll.storage.local import LocalStore
from atoll.storage.sources import GatewaySource, SourceBook
from atoll.storage.spread import in_turn

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 1.0
"""Between two looks at what a receiver has."""
QUARTERS: Final = 4
"""In so large a part of the patience the first of a lot has its block, or the second gets it."""
IN_VAIN_S: Final = 1.0
"""So long after a block was sent to a receiver that does not have it then, it is sent again, and
twice as long each further time: who asks for bytes over and over would else take a home's whole
line."""
ABSENT_A_LOOK: Final = 8
"""After so many blocks that a receiver waits for from others, it is not asked for more."""


@dataclass(frozen=True, slots=True)
class Receivers:
    """Who needs a file.

    Attributes:
        urls: gateways that get it and hand it on; enough: how many of them have to have it.
        patience_s: after so long nobody is relied on to hand a block on any more.
        still_s: after so long in which none of them came to have one more block they are given up;
            None is never.
    """

    urls: tuple[str, ...]
    enough: int
    patience_s: float
    still_s: float | None = None


@dataclass(slots=True)
class _Receiver:
    """One of them.

    Attributes:
        lacks: blocks that it is not known to have, in the file's order.
        lot: leaves among them that it is the first to get.
        moved_at: when it was last seen to have one more.
        in_vain: how often each was sent to it, or begun to be; sent_from: when it is again.
    """

    source: GatewaySource
    lacks: dict[bytes, Cid]
    lot: set[bytes]
    moved_at: float
    in_vain: Counter[bytes] = field(default_factory=Counter)
    sent_from: dict[bytes, float] = field(default_factory=dict)

    def note_sent(self, cid: Cid, now: float) -> None:
        """Notes that bytes of a block went there."""
        self.sent_from[cid.digest] = now + IN_VAIN_S * 2.0 ** self.in_vain[cid.digest]
        self.in_vain[cid.digest] += 1


@dataclass(slots=True)
class Pusher:
    """Brings files to gateways.

    Attributes:
        clock: seconds, monotonic.
    """

    store: LocalStore
    client: GatewayClient
    sources: SourceBook
    clock: Callable[[], float] = field(init=False)

    def __post_init__(self) -> None:
        self.clock = self.sources.clock

    async def push(self, cid: Cid, to: Receivers) -> bool:
        """Returns once enough of them have the whole file; until then it goes on. False where they
        are given up.

        Raises:
            StorageError: a node of the file is not here.
        """
        blocks = await asyncio.to_thread(self._blocks, cid)
        return await _Pushing(self, blocks, to).run()

    async def gives_back(self, cid: Cid, gateway: str, count: int) -> bool:
        """Whether a gateway shows so many blocks of a file, drawn at random, and not only says that
        it has them: who has half of the file passes with 1 in 2^count.

        Raises:
            StorageError: a node of the file is not here.
        """
        blocks = list((await asyncio.to_thread(self._blocks, cid)).values())
        for source in self.sources.ranked((gateway,)):
            asked = random.sample(blocks, min(count, len(blocks)))
            return all([await self._shows(each, source) for each in asked])
        return False

    async def _shows(self, cid: Cid, source: GatewaySource) -> bool:
        while True:
            try:
                block = await self.client.ask(f"ipfs/{cid}?format=raw", source)
            except SourceBusy as busy:
                await asyncio.sleep(max(busy.seconds, FIRST_PAUSE_S))
                continue
            except (NotFound, TooLarge, SourceFailed):
                return False
            return cid.matches(block)

    def _blocks(self, cid: Cid) -> dict[bytes, Cid]:
        """The file's blocks by digest: whatever names others comes before what it names."""
        nodes: dict[bytes, Cid] = {}
        leaves: dict[bytes, Cid] = {}

        def block_of(each: Cid) -> bytes:
            return b"" if each.codec == RAW else self.store.get_block(each)

        for each, _ in walk_dag(block_of, [cid]):
            (leaves if each.codec == RAW else nodes)[each.digest] = each
        return nodes | leaves


class _Pushing:
    """One file on its way."""

    def __init__(self, pusher: Pusher, blocks: Mapping[bytes, Cid], to: Receivers) -> None:
        self._pusher, self._to, self._began = pusher, to, pusher.clock()
        sources = {source.url: source for source in pusher.sources.ranked(to.urls)}
        self._order = {
            digest: in_turn(digest, sources) for digest, cid in blocks.items() if cid.codec == RAW
        }
        self._receivers = {
            url: _Receiver(source, dict(blocks), self._lot(url), self._began)
            for url, source in sources.items()
        }
        self._had_at: dict[bytes, float] = {}
        self._enough = asyncio.Event()

    def _lot(self, url: str) -> set[bytes]:
        return {digest for digest, order in self._order.items() if order[0] == url}

    async def run(self) -> bool:
        tasks = [asyncio.create_task(self._bring_all(each)) for each in self._receivers.values()]
        try:
            return await self._have_enough()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _have_enough(self) -> bool:
        """Whether enough have it, before they are given up."""
        still_s = self._to.still_s
        while not self._enough.is_set():
            moved_at = max(
                (each.moved_at for each in self._receivers.values()), default=self._began
            )
            left = None if still_s is None else moved_at + still_s - self._pusher.clock()
            if left is not None and left <= 0:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._enough.wait()
        return True

    async def _bring_all(self, receiver: _Receiver) -> None:
        pause = FIRST_PAUSE_S
        while receiver.lacks:
            before = len(receiver.lacks)
            wait = 0.0
            try:
                await self._look(receiver)
            except SourceBusy as busy:
                wait = busy.seconds
            except SourceFailed:
                wait = LONGEST_PAUSE_S
            is_moving = len(receiver.lacks) < before
            pause = FIRST_PAUSE_S if is_moving else min(2 * pause, LONGEST_PAUSE_S)
            if receiver.lacks:
                await asyncio.sleep(max(wait, pause))
        if sum(not each.lacks for each in self._receivers.values()) >= self._to.enough:
            self._enough.set()

    async def _look(self, receiver: _Receiver) -> None:
        """Asks for what it is not known to have, and brings what is its turn.

        Raises:
            SourceFailed: it does not answer usefully.
        """
        client, source, absent = self._pusher.client, receiver.source, 0
        for digest, cid in list(receiver.lacks.items()):
            is_turn = self._is_turn(receiver, cid)
            if not is_turn and absent >= ABSENT_A_LOOK:
                continue
            has = await client.has(cid, source)
            if not has and is_turn:
                has = await self._bring(cid, receiver)
                if not has and cid.codec != RAW:
                    return  # what it names is wanted no sooner
            absent += not has
            if has:
                self._note_had(receiver, digest)

    def _note_had(self, receiver: _Receiver, digest: bytes) -> None:
        del receiver.lacks[digest]
        receiver.lot.discard(digest)
        receiver.moved_at = self._pusher.clock()
        self._had_at.setdefault(digest, receiver.moved_at)

    async def _bring(self, cid: Cid, receiver: _Receiver) -> bool:
        clock = self._pusher.clock
        if receiver.sent_from.get(cid.digest, 0.0) > clock():
            return False
        try:
            block = await asyncio.to_thread(self._pusher.store.get_block, cid)
        except StorageError:  # the disk lost it; it is made again, or comes from others
            return False
        sending = Sending(block)
        try:
            return await self._pusher.client.put(cid, sending, receiver.source)
        finally:
            if sending.sent:
                receiver.note_sent(cid, clock())

    def _is_turn(self, receiver: _Receiver, cid: Cid) -> bool:
        """Whether a block is brought to this receiver now, which has not said that it has it.

        Whatever names other blocks goes to everybody. Of a leaf that nobody has yet the next of its
        lot gets it, once it has its own, where those before took nothing for a quarter of the
        patience: on a slow line they still take theirs. Who takes little at a time is waited for
        until the patience is over twice. Who says to have a leaf, and hands it on to nobody, is
        found out by what the others lack: from a patience later on one more gets it in each
        quarter, until enough have it.
        """
        if cid.codec != RAW:
            return True
        order, receivers = self._order[cid.digest], self._receivers
        place, now = order.index(receiver.source.url), self._pusher.clock()
        patience, quarter = self._to.patience_s, self._to.patience_s / QUARTERS
        if place == 0:
            return True
        had_at = self._had_at.get(cid.digest)
        if had_at is None:
            still = all(now - receivers[url].moved_at >= place * quarter for url in order[:place])
            return not receiver.lot and (still or now - self._began >= 2 * patience)
        having = sum(cid.digest not in each.lacks for each in receivers.values())
        return having < self._to.enough and now - had_at >= patience + (place - 1) * quarter
