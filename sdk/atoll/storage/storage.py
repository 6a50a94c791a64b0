"""One interface to content, wherever it is kept.

`embedded` keeps blocks in a folder and fetches from gateways; no daemon. `kubo:URL` does the same
and mirrors what is added and pinned into a Kubo daemon, which is also asked for what no gateway
has. `gateway:URL` reads from that gateway and publishes nothing. The CIDs are the same in all
three.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from atoll.errors import ConfigError, StorageError
from atoll.storage.backend import parse_backend
from atoll.storage.block_links import walk_dag
from atoll.storage.blocks import BlockFolder
from atoll.storage.cid import RAW, Cid
from atoll.storage.fetch import Fetcher
from atoll.storage.fetch_config import FetchConfig
from atoll.storage.kubo import BlockRemote, KuboRemote
from atoll.storage.local import LocalStore
from atoll.storage.unixfs import V1, Added, Profile, Readable

log = structlog.get_logger("atoll.storage")


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where content is kept and how it is fetched.

    Attributes:
        root: the folder of blocks.
        backend: `embedded`, `kubo:URL` (the daemon's RPC) or `gateway:URL` (read-only).
        quota_bytes: how much the blocks may take (see `LocalStore.set_quota`); None for no bound,
            0 to leave what the folder has.
        sync: whether content reaches the disk before it counts as stored.
        fetch: limits of every fetch.
    """

    root: Path
    backend: str = "embedded"
    quota_bytes: int | None = 0
    sync: bool = True
    fetch: FetchConfig = field(default_factory=FetchConfig)


class Storage:
    """Content by CID. Make it with `open_storage`.

    Args:
        local: the blocks on this machine.
        fetcher: brings what is not here.
        remote: where additions and pins are mirrored.
        read_only: whether additions are refused.
    """

    def __init__(
        self, local: LocalStore, fetcher: Fetcher, remote: BlockRemote | None, *, read_only: bool
    ) -> None:
        self.local = local
        self.fetcher = fetcher
        self._remote = remote
        self._read_only = read_only
        self._left: deque[Callable[[], Awaitable[None]]] = deque()
        self._copying: asyncio.Task[None] | None = None

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
        """Closes every connection; what is still to be copied is not."""
        if self._copying is not None:
            self._copying.cancel()
            await asyncio.wait([self._copying])
        await self.fetcher.close()
        if self._remote is not None:
            await self._remote.close()

    async def add_bytes(self, data: bytes, profile: Profile = V1) -> Cid:
        """Stores bytes as a file.

        Raises:
            ConfigError: the backend is read-only.
            DiskFull: no room.
        """
        self._check_writable()
        cid = await asyncio.to_thread(self.local.add_bytes, data, profile)
        await self.publish(cid)
        return cid

    async def add_block(self, block: bytes, codec: int = RAW) -> Cid:
        """Stores bytes as one block; errors as `add_bytes`, and TooLarge."""
        self._check_writable()
        cid = await asyncio.to_thread(self.local.add_block, block, codec)
        await self.publish(cid)
        return cid

    async def add_stream(self, stream: Readable, profile: Profile = V1) -> Added:
        """Stores everything `stream` yields as one file; errors as `add_bytes`."""
        self._check_writable()
        added = await asyncio.to_thread(self.local.add_stream, stream, profile)
        await self.publish(added.cid)
        return added

    async def add_path(self, path: Path | str, profile: Profile = V1) -> Added:
        """Stores a file or folder from disk; errors as `add_bytes`, and NotFound."""
        self._check_writable()
        added = await asyncio.to_thread(self.local.add_path, path, profile)
        await self.publish(added.cid)
        return added

    async def publish(self, cid: Cid) -> None:
        """Mirrors everything below `cid`, which is here, into the remote, if there is one.

        Workers add to `local` directly; this makes what they added available too.
        """
        if self._remote is None:
            return
        blocks = walk_dag(self.local.get_block, [cid])
        while (block := await asyncio.to_thread(next, blocks, None)) is not None:
            await self._remote.put_block(*block)

    async def mirror(self, cids: Sequence[Cid]) -> None:
        """Puts and pins in the remote, if there is one, whatever of these is here.

        Raises:
            StorageError: the remote refused or does not answer.
            NotFound: something below is not here.
        """
        if self._remote is None:
            return
        for cid in cids:
            if await asyncio.to_thread(self.local.has, cid):
                await self.publish(cid)
                if await self._is_pinned(cid):  # it is let go there when its last reason ends here
                    await asyncio.to_thread(self.local.note_copy, cid, self._remote.place)
                await self._remote.pin(cid)

    def mirror_later(self, cids: Sequence[Cid]) -> None:
        """As `mirror`, beside all else, of what is still pinned then; a remote that fails or hangs
        costs the copy and a warning, and nobody waits for it.
        """

        async def mirror() -> None:
            await self.mirror([cid for cid in cids if await self._is_pinned(cid)])

        self._later(mirror)

    async def get(self, cid: Cid, max_bytes: int, prefer: Sequence[str] = ()) -> bytes:
        """A file's bytes; arguments and errors as `Fetcher.fetch`."""
        return await self.fetcher.get(cid, max_bytes, prefer)

    async def get_file(
        self, cid: Cid, path: Path | str, max_bytes: int, prefer: Sequence[str] = ()
    ) -> int:
        """Writes a file to `path`, whole or not at all; returns its size."""
        return await self.fetcher.get_file(cid, path, max_bytes, prefer)

    async def get_block(self, cid: Cid, prefer: Sequence[str] = ()) -> bytes:
        """One block; errors as `Fetcher.fetch_block`."""
        return await self.fetcher.fetch_block(cid, prefer)

    async def pin(self, cid: Cid, reason: str) -> None:
        """Keeps `cid` and all below it until `reason` ends, here and in the remote."""
        await asyncio.to_thread(self.local.pin, cid, reason)
        if self._remote is not None:
            await asyncio.to_thread(self.local.note_copy, cid, self._remote.place)
            await self._remote.pin(cid)

    async def unpin(self, reason: str, cid: Cid | None = None) -> int:
        """Ends a reason, or one CID's part of it; returns how many pins went.

        Raises:
            StorageError: the remote keeps something still, and lets go with what ends next.
        """
        gone = await asyncio.to_thread(self.local.unpin, reason, cid)
        await self._let_go()
        return gone

    async def release(self, reason: str) -> None:
        """Ends a reason here, and in the remote as `mirror_later`, behind what was begun before."""
        await asyncio.to_thread(self.local.unpin, reason)
        self._later(self._let_go)

    async def _let_go(self) -> None:
        """Ends in the remote what nobody has pinned here, what once failed or was lost included."""
        if self._remote is None:
            return
        for copy in await asyncio.to_thread(self.local.spare_copies, self._remote.place):
            try:
                await self._remote.unpin(copy.cid)
            except StorageError:  # it is tried again behind the others, which it must not hold up
                await asyncio.to_thread(self.local.note_copy, copy.cid, copy.place)
                raise
            if await asyncio.to_thread(self.local.end_copy, copy):  # another process pinned it
                await self._remote.pin(copy.cid)

    async def _is_pinned(self, cid: Cid) -> bool:
        return await asyncio.to_thread(self.local.is_pinned, cid)

    def _later(self, act: Callable[[], Awaitable[None]]) -> None:
        """Does it after what came before, in the remote's own time."""
        if self._remote is None:
            return
        self._left.append(act)
        if self._copying is None or self._copying.done():
            self._copying = asyncio.create_task(self._copy())

    async def _copy(self) -> None:
        while self._left:
            try:
                await self._left.popleft()()
            except StorageError as error:
                log.warning("the remote store failed", cause=str(error))

    def _check_writable(self) -> None:
        if self._read_only:
            raise ConfigError(
                "this storage backend only reads",
                next_step="use `embedded` or `kubo:URL` to add content",
            )


async def open_storage(
    config: StoreConfig, gateways: Callable[[], Sequence[str]] = tuple
) -> Storage:
    """Opens the configured backend.

    Args:
        config: what and where.
        gateways: further gateways to fetch from, such as those announced on chain.

    Raises:
        ConfigError: an unknown backend, an unusable address, a daemon that is too old.
        StorageError: the folder or the daemon cannot be used.
    """
    kind, address = parse_backend(config.backend)
    remote = KuboRemote(address) if kind == "kubo" else None
    if remote is not None:
        await remote.connect()
    if config.quota_bytes != 0:
        # Before the store reads it: what is configured takes the place of one that is damaged.
        BlockFolder(config.root, sync=config.sync).set_quota(config.quota_bytes)
    local = LocalStore(config.root, sync=config.sync)
    fixed = [address] if kind == "gateway" else []
    fetcher = Fetcher(local, lambda: [*fixed, *gateways()], config.fetch, remote=remote)
    return Storage(local, fetcher, remote, read_only=kind == "gateway")
