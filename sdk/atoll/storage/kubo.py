"""A Kubo daemon as a further place for blocks.

Speaks to the daemon's RPC through ipfshttpclient (the `kubo` extra). That library is synchronous
and its `connect()` refuses every daemon released since 2021, so it is driven from threads of its
own, its `Client` is made directly, and the version is checked here. Blocks are built and named by
this program: the daemon's import defaults never decide a CID, and what it returns is checked like
anyone's.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

from yarl import URL

from atoll.errors import ConfigError, CorruptBlock, NotFound, StorageError, TooLarge
from atoll.storage.cid import Cid
from atoll.storage.unixfs import MAX_BLOCK_BYTES

OLDEST_KUBO: Final = (0, 13)  # the first whose block/put takes a CID codec
_THREADS: Final = 4
_REST_S: Final = 60.0
"""So long a daemon that did not answer in time is asked nothing: each request would wait again."""

_Result = TypeVar("_Result")


class BlockRemote(Protocol):
    """Somewhere else that keeps blocks for us.

    Attributes:
        place: what it is known by, from one start to the next.
    """

    place: str

    async def get_block(self, cid: Cid) -> bytes:
        """Returns a block, checked. Raises NotFound, CorruptBlock, TooLarge or StorageError."""

    async def put_block(self, cid: Cid, block: bytes) -> None:
        """Stores a block under its CID. Raises StorageError."""

    async def pin(self, cid: Cid) -> None:
        """Keeps everything below `cid`. Raises StorageError."""

    async def unpin(self, cid: Cid) -> None:
        """Ends what `pin` began; nothing happens where there is no pin. Raises StorageError."""

    async def close(self) -> None:
        """Closes every connection."""


class _Hangs(StorageError):
    """The daemon did not answer in time, now or a moment ago."""


class KuboRemote:
    """A Kubo daemon.

    Args:
        api: the daemon's RPC address, such as `http://127.0.0.1:5001`.
        timeout_s: for one request; a block that the daemon must find elsewhere counts as not found
            after that. Whatever else takes as long makes it rest.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        api: str,
        *,
        timeout_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.place = self._api = api
        self._multiaddr = kubo_multiaddr(api)
        self._timeout_s = timeout_s
        self._library = _load_library()
        self._threads = ThreadPoolExecutor(_THREADS, "atoll-kubo")
        self._local = threading.local()
        self._clock, self._rests_until = clock, 0.0

    async def connect(self) -> str:
        """Checks that the daemon answers and is recent enough; returns its version.

        Raises:
            ConfigError: it is too old.
            StorageError: it does not answer.
        """
        version = str((await self._call(lambda client: client.version()))["Version"])
        try:
            numbers = tuple(int(part) for part in version.split("-", maxsplit=1)[0].split(".")[:2])
        except ValueError:
            numbers = (0, 0)
        if numbers < OLDEST_KUBO:
            raise ConfigError(
                f"the Kubo daemon at {self._api} is version {version}",
                next_step=f"use Kubo {'.'.join(map(str, OLDEST_KUBO))} or newer",
            )
        return version

    async def close(self) -> None:
        """Ends the threads and their connections."""
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)

    async def get_block(self, cid: Cid) -> bytes:
        """As `BlockRemote.get_block`."""
        try:
            sent = await self._call(lambda client: client.block.get(str(cid)), rests=False)
        except (NotFound, _Hangs) as error:
            message = f"the Kubo daemon at {self._api} has no {cid}"
            raise NotFound(message) from error
        block = bytes(sent)
        if len(block) > MAX_BLOCK_BYTES:
            raise TooLarge(f"the Kubo daemon at {self._api} sent {len(block)} bytes as {cid}")
        if not cid.matches(block):
            raise CorruptBlock(f"the Kubo daemon at {self._api} sent other bytes as {cid}")
        return block

    async def put_block(self, cid: Cid, block: bytes) -> None:
        """As `BlockRemote.put_block`."""
        options = {
            "cid-codec": cid.codec_name,
            "mhtype": "sha2-256",
            "allow-big-block": "true",  # the daemon's own limit is below the 2 MiB that peers take
        }
        answer = await self._call(lambda client: client.block.put(io.BytesIO(block), opts=options))
        if Cid.parse(str(answer["Key"])).digest != cid.digest:
            raise StorageError(f"the Kubo daemon at {self._api} stored {cid} as {answer['Key']}")

    async def pin(self, cid: Cid) -> None:
        """As `BlockRemote.pin`."""
        await self._call(lambda client: client.pin.add(str(cid), recursive=True))

    async def unpin(self, cid: Cid) -> None:
        """As `BlockRemote.unpin`."""
        try:
            await self._call(lambda client: client.pin.rm(str(cid), recursive=True))
        except NotFound:
            return

    async def _call(self, act: Callable[[Any], _Result], *, rests: bool = True) -> _Result:
        """What the daemon answers; `rests` is whether one that does not in time rests."""
        if self._clock() < self._rests_until:
            raise _Hangs(f"the Kubo daemon at {self._api} did not answer, and rests")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, act)
        except _Hangs:
            if rests:
                self._rests_until = self._clock() + _REST_S
            raise

    def _run(self, act: Callable[[Any], _Result]) -> _Result:
        errors = self._library.exceptions
        try:
            return act(self._client())
        except errors.TimeoutError as error:
            message = f"the Kubo daemon at {self._api} does not answer in {self._timeout_s} s"
            raise _Hangs(message, next_step="restart it") from error
        except errors.ErrorResponse as error:
            message = str(error)
            if "not found" in message or "not pinned" in message:
                raise NotFound(message) from error
            raise StorageError(f"the Kubo daemon at {self._api} refused: {message}") from error
        except errors.Error as error:
            raise StorageError(
                f"the Kubo daemon at {self._api} cannot be used: {error}",
                next_step="start it with `ipfs daemon`, or check the address",
            ) from error

    def _client(self) -> Any:
        """One client a thread: the library's session is not safe to share."""
        client = getattr(self._local, "client", None)
        if client is None:
            client = self._library.Client(self._multiaddr, timeout=self._timeout_s, session=True)
            # Its RPC is ours alone, and no proxy's to see; the library has no option for that.
            client._client._session.trust_env = False
            self._local.client = client
        return client


def _load_library() -> Any:
    # The library passes a parameter that urllib3 2 ignores with this warning (and 3 will refuse).
    warnings.filterwarnings("ignore", "The 'strict' parameter is no longer needed", FutureWarning)
    try:
        return importlib.import_module("ipfshttpclient")
    except ImportError as error:
        raise ConfigError(
            "the Kubo backend needs ipfshttpclient", next_step="pip install 'atoll[kubo]'"
        ) from error


def kubo_multiaddr(api: str) -> str:
    """A daemon's address as the library writes it. Raises ConfigError where it is none."""
    try:
        url = URL(api)
        host, port = url.host, url.port
    except (ValueError, IndexError):  # the latter for `http://[::1]@`
        host = port = None
    if not host or not port or url.scheme not in ("http", "https"):
        raise ConfigError(
            f"{api!r} is not the address of a Kubo daemon",
            next_step="write it like kubo:http://127.0.0.1:5001",
        )
    kind = "ip6" if ":" in host else "ip4" if host.replace(".", "").isdigit() else "dns"
    return f"/{kind}/{host}/tcp/{port}/{url.scheme}"
