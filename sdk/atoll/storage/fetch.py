"""Brings files and folders into a store from gateways that owe us nothing."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from atoll.errors import CorruptBlock, NotFound, TooLarge
from atoll.storage.cid import DAG_PB, RAW, Cid
from atoll.storage.directory import MAX_FOLDER_DEPTH, is_directory, list_links
from atoll.storage.download import Asked, Downloader, cancel
from atoll.storage.errors import MalformedDag
from atoll.storage.fetch_config import FetchConfig
from atoll.storage.kubo import BlockRemote
from atoll.storage.local import LocalStore
from atoll.storage.push import Pusher
from atoll.storage.sources import SourceBook
from atoll.storage.spread import TRIES, Spread
from atoll.storage.unixfs import FileNode, FileWalk

_CAR_OVERHEAD = 1 << 20  # for nodes above the leaves, and each block's length and name
_MAX_ENTRIES = 1 << 20  # of a whole folder: its names are held in memory
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.05, 0.5  # for a block that is on its way here
_LARGE = 1 << 14  # bytes of a node that takes milliseconds to decode: hundreds of links


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """How far a fetch has come.

    Attributes:
        file_bytes: bytes of the file; None until its root has arrived.
        done_bytes: of these, how many are in the store.
        blocks: blocks looked at, those already here included.
        bytes_down: bytes received by this fetcher since it was made.
    """

    file_bytes: int | None
    done_bytes: int
    blocks: int
    bytes_down: int


OnProgress = Callable[[FetchProgress], None]


@dataclass(frozen=True, slots=True)
class _Want:
    """A block of a file on its way: what its parent said of it, and how deep it lies."""

    cid: Cid
    claimed_bytes: int | None
    depth: int


_Bring = Callable[[_Want], Coroutine[Any, Any, bytes | None]]
"""A block's bytes; None for a leaf that is here, or comes later."""


class Fetcher:
    """Fetches into a store, from any gateway that has the blocks.

    Use it as an async context manager, or call `close`.

    Args:
        store: where blocks go, and where they are looked for first.
        gateways: the base URLs known now; called for every block, so the list may grow. They are
            asked for everything: see `among` for sources that belong to one job.
        config: the limits.
        remote: asked for what no gateway delivers.
    """

    def __init__(
        self,
        store: LocalStore,
        gateways: Callable[[], Sequence[str]],
        config: FetchConfig | None = None,
        remote: BlockRemote | None = None,
    ) -> None:
        self._store = store
        self._gateways = gateways
        self._remote = remote
        self._party: Hashable = None
        self._config = config or FetchConfig()
        self._arrivals = _Arrivals(store)
        self._downloader = Downloader(self._arrivals.accept, self._config)

    def among(self, gateways: Callable[[], Sequence[str]], party: Hashable) -> Fetcher:
        """This fetcher, asking these gateways, too: where a job's blocks come from.

        Connections, limits and what is known of each gateway are shared; who else is asked is not,
        so that whom one job names is never asked for another's blocks. Jobs take turns, of which
        `party` tells one from another, in what may be requested at once. Close the original alone.
        """
        other, everywhere = copy.copy(self), self._gateways
        other._gateways = lambda: [*everywhere(), *gateways()]
        other._party = party
        return other

    def pusher(self) -> Pusher:
        """Brings files to gateways, over the same connections."""
        return Pusher(self._store, self._downloader.client, self.sources)

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
        await self._downloader.close()

    @property
    def bytes_down(self) -> int:
        """Bytes received so far, wasted ones included."""
        return self._downloader.bytes_down

    @property
    def bytes_up(self) -> int:
        """Bytes of blocks that pushers brought to others."""
        return self._downloader.client.bytes_up

    @property
    def sources(self) -> SourceBook:
        """What is known of each gateway."""
        return self._downloader.sources

    async def get(self, cid: Cid, max_bytes: int, prefer: Sequence[str] = ()) -> bytes:
        """Fetches a file and returns its bytes; arguments and errors as `fetch`."""
        with self._store.holding():
            await self.fetch(cid, max_bytes, prefer)
            return await asyncio.to_thread(self._store.read_bytes, cid, max_bytes)

    async def note(self, gateway: str, name: str, max_bytes: int) -> bytes | None:
        """What a gateway says under a name, None for nothing; its signature alone vouches for it.

        Raises:
            NotFound: it does not answer, or with more than `max_bytes`.
        """
        return await self._downloader.note(gateway, name, max_bytes)

    async def get_file(
        self, cid: Cid, path: Path | str, max_bytes: int, prefer: Sequence[str] = ()
    ) -> int:
        """Fetches a file and writes it to `path`, whole or not at all; returns its size."""
        with self._store.holding():
            await self.fetch(cid, max_bytes, prefer)
            return await asyncio.to_thread(self._store.read_file_to, cid, path, max_bytes)

    async def fetch(
        self,
        cid: Cid,
        max_bytes: int,
        prefer: Sequence[str] = (),
        on_progress: OnProgress | None = None,
    ) -> None:
        """Brings every block of a file into the store; blocks already there are not fetched again.

        Args:
            cid: the file's root, or a DAG-CBOR block.
            max_bytes: the largest file accepted.
            prefer: gateways to ask before the others.
            on_progress: called after each block.

        Raises:
            NotFound: no source delivered some block; what arrived stays, so a repeat resumes.
            TooLarge: the file exceeds `max_bytes`.
            MalformedDag: the blocks are authentic but not a file.
            DiskFull: no room.
        """
        tally = _Tally(FileWalk(cid, max_bytes), on_progress, self._downloader)
        await self._bring_all([_Want(cid, None, 0)], tally, lambda want: self._bring(want, prefer))

    async def fetch_spread(self, cid: Cid, max_bytes: int, spread: Spread) -> None:
        """As `fetch`, of a file that many get at once: its author is asked for our share of it, or
        brings it here.

        The other blocks come from the relays whose turn they are, who are getting them meanwhile;
        what these do not deliver, or not while there is patience, from anybody.

        Raises:
            As `fetch`.
        """
        tally = _Tally(FileWalk(cid, max_bytes), None, self._downloader)
        others: list[_Want] = []
        until = self.sources.clock() + spread.patience_s
        here = _BroughtHere(self._store, self.sources, self._config, until)
        prefer = [spread.author] if spread.author else []

        async def bring_ours(want: _Want) -> bytes | None:
            turns = spread.waited_for(want.cid.digest)
            if want.cid.codec == RAW and turns:
                others.append(want)
                return None
            if spread.is_brought:  # what names other blocks is brought to every relay
                await here.wait(want.cid)
            elif not spread.author:
                return await from_relays(want, turns)
            return await self._bring(want, prefer)

        async def from_relays(want: _Want, turns: Sequence[str]) -> bytes | None:
            if await asyncio.to_thread(self._store.claim, want.cid) is None:
                for relay in turns:
                    block = await self._downloader.awaited(want.cid, relay, until, self._party)
                    if block is not None:
                        return block
            second = len(turns) < min(TRIES, len(spread.relays))
            if second and spread.is_brought:
                await here.wait(want.cid)
            return await self._fetch_block(want.cid, prefer if second else [])

        async def bring_theirs(want: _Want) -> bytes | None:
            return await from_relays(want, spread.waited_for(want.cid.digest))

        await self._bring_all([_Want(cid, None, 0)], tally, bring_ours)
        await self._bring_all(others[::-1], tally, bring_theirs)

    async def fetch_spans(
        self, cid: Cid, max_bytes: int, spans: Sequence[slice], prefer: Sequence[str] = ()
    ) -> None:
        """As `fetch`, of the blocks alone that some of a file's bytes lie in, and of all nodes."""
        walk, stack = FileWalk(cid, max_bytes), [(_Want(cid, None, 0), 0)]
        while stack:
            want, begin = stack.pop()
            end = begin + (want.claimed_bytes or 0)
            is_wanted = any(span.start < end and begin < span.stop for span in spans)
            if want.cid.codec == RAW and want.claimed_bytes is not None and not is_wanted:
                continue
            block = await self.fetch_block(want.cid, prefer)
            node = walk.visit(want.cid, block, want.claimed_bytes, want.depth)
            for child in node.children:
                stack.append((_Want(child.cid, child.file_bytes, want.depth + 1), begin))
                begin += child.file_bytes

    async def show(self, asked: Asked, prefer: Sequence[str] = ()) -> None:
        """Has a gateway show pieces of a file, which `asked.accept` takes.

        Raises:
            NotFound: nobody showed what is accepted.
        """
        await self._downloader.shown(asked, self._gateways, prefer, self._party)

    async def _bring_all(self, stack: list[_Want], tally: _Tally, bring: _Bring) -> None:
        """Brings these blocks, the last first, and what they name."""
        running: dict[asyncio.Task[bytes | None], _Want] = {}
        try:
            while stack or running:
                while stack and len(running) < self._config.parallel:
                    want = stack.pop()
                    running[asyncio.create_task(bring(want))] = want
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    want = running.pop(task)
                    stack.extend(await tally.children(want, task.result()))
        finally:
            await cancel(running)
            await self._arrivals.settle()

    async def fetch_car(self, cid: Cid, max_bytes: int, gateway: str) -> None:
        """As `fetch`, but asks one gateway for all blocks in one stream; the rest come one by one.

        It saves a request a block, which pays for many small blocks. A block that is not part of
        the file ends the stream and counts as a lie.

        Raises:
            As `fetch`.
        """
        tally = _Tally(FileWalk(cid, max_bytes), None, self._downloader)
        wanted = {cid.digest: _Want(cid, None, 0)}
        had: set[bytes] = set()
        cap = max_bytes + max_bytes // 16 + _CAR_OVERHEAD
        try:
            async with aclosing(self._downloader.car(cid, gateway, cap)) as blocks:
                async for sent, block in blocks:
                    want = wanted.pop(sent.digest, None)
                    if want is None and sent.digest not in had:
                        raise CorruptBlock(f"{gateway} sent {sent}, which nobody asked for")
                    if want is not None:
                        had.add(sent.digest)
                        await asyncio.to_thread(self._arrivals.accept, want.cid, block)
                        for below in await tally.children_to_come(want, block):
                            wanted.setdefault(below.cid.digest, below)
        except CorruptBlock:
            self.sources.distrust(gateway)
        except (NotFound, TooLarge):
            pass  # what it did send is kept; others are asked for what is missing
        await self.fetch(cid, max_bytes)

    async def fetch_tree(self, cid: Cid, max_bytes: int, prefer: Sequence[str] = ()) -> None:
        """Brings a file, or a folder with everything below it, into the store.

        Args:
            cid: the root.
            max_bytes: the most that all files may have together.
            prefer: gateways to ask before the others.

        Raises:
            As `fetch`; MalformedDag also for folders nested or filled without end.
        """
        left, entries = max_bytes, 0
        stack = [(cid, 0)]
        while stack:
            below, depth = stack.pop()
            if below.codec == RAW or not is_directory(below, await self.fetch_block(below, prefer)):
                await self.fetch(below, left, prefer)
                left -= await asyncio.to_thread(self._store.file_bytes, below)
                continue
            links = list_links(below, await self.fetch_block(below, prefer))
            entries += len(links)
            if depth > MAX_FOLDER_DEPTH or entries > _MAX_ENTRIES:
                raise MalformedDag(f"{cid} holds more folders than anyone would make")
            stack.extend((link, depth + 1) for link in reversed(links))

    async def fetch_block(self, cid: Cid, prefer: Sequence[str] = ()) -> bytes:
        """Returns one block, from the store or else from a gateway (and then stores it).

        Raises:
            NotFound: no source delivered it.
            DiskFull: no room.
        """
        try:
            return await self._fetch_block(cid, prefer)
        finally:
            await self._arrivals.settle()

    async def _fetch_block(self, cid: Cid, prefer: Sequence[str]) -> bytes:
        if await asyncio.to_thread(self._store.claim, cid) is not None:
            # Else gone or damaged since: fetched like any other.
            with suppress(NotFound, CorruptBlock):
                return await asyncio.to_thread(self._store.get_block, cid)
        return await self._from_others(cid, prefer)

    async def _from_others(self, cid: Cid, prefer: Sequence[str]) -> bytes:
        if self._remote is None:
            return await self._downloader.block(cid, self._gateways, prefer, self._party)
        if self._gateways() or prefer:
            with suppress(NotFound):  # then the remote is asked, below
                return await self._downloader.block(cid, self._gateways, prefer, self._party)
        block = await self._remote.get_block(cid)
        await asyncio.to_thread(self._arrivals.accept, cid, block)
        return block

    async def _bring(self, want: _Want, prefer: Sequence[str]) -> bytes | None:
        """One block's bytes; None for a leaf that is already here with the right size."""
        if want.cid.codec != RAW or want.claimed_bytes is None:
            return await self._fetch_block(want.cid, prefer)
        size = await asyncio.to_thread(self._store.claim, want.cid)
        if size == want.claimed_bytes:
            return None
        if size is None:
            return await self._from_others(want.cid, prefer)
        return await self._fetch_block(want.cid, prefer)


class _BroughtHere:
    """Waits for blocks of one file that another process of ours takes from who made them."""

    def __init__(
        self, store: LocalStore, sources: SourceBook, config: FetchConfig, until: float
    ) -> None:
        self._store, self._sources, self._config = store, sources, config
        self._until, self._last = until, sources.clock()

    async def wait(self, cid: Cid) -> None:
        """Returns when a block is here, or nothing of the file came for as long as relays have."""
        pause = _FIRST_LOOK_S
        while await asyncio.to_thread(self._store.claim, cid) is None:
            patience = self._sources.patience_s(self._config.relay_min_s, self._config.relay_max_s)
            if self._sources.clock() >= min(self._last + patience, self._until):
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK_S)
        self._last = self._sources.clock()


class _Arrivals:
    """Blocks that came and are in the store, but would not survive a power cut yet."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._unsettled: dict[int, bytes] = {}  # one a folder is enough
        self._changing = threading.Lock()
        self._settling = asyncio.Lock()

    def accept(self, cid: Cid, block: bytes) -> None:
        """Checks and stores a block. Raises CorruptBlock, TooLarge, DiskFull."""
        self._store.put_block(cid, block, settle=False)
        with self._changing:
            self._unsettled[cid.digest[0]] = cid.digest

    async def settle(self) -> None:
        """Before anyone relies on what came, it survives a power cut; once for many blocks.

        Raises:
            DiskFull, StorageError: the disk refused; the next call tries the same again.
        """
        async with self._settling:  # another fetch may be settling blocks of this one
            with self._changing:
                unsettled, self._unsettled = self._unsettled, {}
            if not unsettled:
                return
            try:
                await asyncio.to_thread(self._store.settle, unsettled.values())
            except BaseException:  # cancelled, too: nobody waits for the thread any more
                with self._changing:
                    self._unsettled = unsettled | self._unsettled
                raise


class _Tally:
    """Checks a file's nodes as they arrive and counts them."""

    def __init__(
        self, walk: FileWalk, on_progress: OnProgress | None, downloader: Downloader
    ) -> None:
        self._walk = walk
        self._on_progress = on_progress
        self._downloader = downloader
        self._file_bytes: int | None = None
        self._done_bytes = 0
        self._blocks = 0

    async def children(self, want: _Want, block: bytes | None) -> Iterator[_Want]:
        """What to fetch next, last child first, so that a stack yields them in file order.

        `block` is None for a leaf that is already in the store.

        Raises:
            TooLarge, MalformedDag: as `FileWalk.visit`.
        """
        if block is None:
            self._count(want.claimed_bytes or 0)
            return iter(())
        node = await self._visit(want, block)
        if want.claimed_bytes is None:
            self._file_bytes = node.file_bytes
        self._count(len(node.data))
        return (_Want(c.cid, c.file_bytes, want.depth + 1) for c in reversed(node.children))

    async def children_to_come(self, want: _Want, block: bytes) -> list[_Want]:
        """As `children`, of a block that came; in place of each that lies in its own name, those
        below it, since nobody sends it.
        """
        to_come: list[_Want] = []
        stack = list(await self.children(want, block))
        while stack:
            below = stack.pop()
            if below.cid.inline is None:
                to_come.append(below)
            else:
                stack.extend(await self.children(below, below.cid.inline))
        return to_come

    async def _visit(self, want: _Want, block: bytes) -> FileNode:
        visited = (want.cid, block, want.claimed_bytes, want.depth)
        if want.cid.codec == DAG_PB and len(block) > _LARGE:
            return await asyncio.to_thread(self._walk.visit, *visited)
        return self._walk.visit(*visited)

    def _count(self, file_bytes: int) -> None:
        self._done_bytes += file_bytes
        self._blocks += 1
        if self._on_progress is not None:
            self._on_progress(
                FetchProgress(
                    self._file_bytes, self._done_bytes, self._blocks, self._downloader.bytes_down
                )
            )
