"""Checkpoints of the chain's logs, asked for by whoever joins.

Whoever has read nothing yet and has much to read asks the gateways that members announced, the
newest first: a note names the file that `atoll.service.checkpoint_writer` has put there.

Rule of this file: what is fetched is a stranger's; `atoll.chain.checkpoint` decides whether it is
true, and whatever goes wrong here costs a warning, after which the chain is read in ranges.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

import structlog

from atoll.chain.contracts import AtollChain
from atoll.chain.decode import RawLog, decode_log
from atoll.chain.index import MAX_RANGE
from atoll.chain.log_snapshot import CheckpointRefused, LogSnapshot, read_snapshot
from atoll.errors import RpcUnavailable, StorageError, UndecodableLog
from atoll.nested import loads
from atoll.protocol.events import GatewayAnnounced
from atoll.protocol.types import Address, BlockRef
from atoll.storage.cid import Cid
from atoll.storage.fetch import Fetcher

log = structlog.get_logger("atoll.service.checkpoints")

NAME: Final = "checkpoint"
"""Of the note, and of what keeps the file from being let go of."""
MOST_NOTE: Final = 1 << 10
MOST_BYTES: Final = 1 << 28
"""Of a file, compressed."""
MOST_ASKED: Final = 8
"""Gateways."""
ASKING_SECONDS: Final = 60.0
"""For one gateway's, before another is asked."""


@dataclass(frozen=True, slots=True)
class CheckpointNote:
    """What a gateway says of the checkpoint that it serves."""

    block: int
    count: int
    cid: Cid
    size: int

    def to_bytes(self) -> bytes:
        named = {"block": self.block, "count": self.count, "cid": str(self.cid), "size": self.size}
        return json.dumps(named).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises CheckpointRefused."""
        try:
            document: dict[str, Any] = loads(data)
            numbers = (document["block"], document["count"], document["size"])
            cid = Cid.parse(document["cid"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointRefused("a gateway's note of a checkpoint is none") from error
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise CheckpointRefused("a gateway's note of a checkpoint has no numbers")
        if numbers[2] > MOST_BYTES:
            raise CheckpointRefused(f"a gateway's checkpoint is larger than {MOST_BYTES} bytes")
        return cls(numbers[0], numbers[1], cid, numbers[2])


@dataclass(frozen=True, slots=True)
class CheckpointFinder:
    """Brings checkpoints from the gateways that members announced.

    Args:
        fetcher: given a gateway, what fetches from it.
        first: the height at which the deployment's logs begin.
        account: who joins; one that the logs name reads ranges, as it has to know which
            transactions were its own, and no head covers that.
    """

    chain: AtollChain
    fetcher: Callable[[str], Fetcher]
    first: int
    account: Address | None

    async def __call__(self, last: BlockRef) -> AsyncIterator[LogSnapshot]:
        """One after another, until the caller has one that is true."""
        for url in (await self._gateways(last.number))[:MOST_ASKED]:
            try:
                async with asyncio.timeout(ASKING_SECONDS):
                    snapshot = await self._of(url)
            except (CheckpointRefused, StorageError, TimeoutError) as error:
                log.warning("a checkpoint is refused", url=url, cause=str(error) or "is too slow")
                continue
            if snapshot is None:
                continue
            if self.account is not None and any(map(self._names_us, snapshot.logs)):
                log.info("reads the chain in ranges, as the account has acted on it before")
                return
            yield snapshot

    async def _of(self, url: str) -> LogSnapshot | None:
        """What a gateway serves; None where it says that it has none."""
        fetcher = self.fetcher(url)
        body = await fetcher.note(url, NAME, MOST_NOTE)
        if body is None:
            return None
        note = CheckpointNote.from_bytes(body)
        data = await fetcher.get(note.cid, max(1, note.size), [url])
        return await asyncio.to_thread(read_snapshot, data, self.chain.deployment.domain)

    async def _gateways(self, last: int) -> list[str]:
        """As an endpoint tells them, the newest first; of the newest blocks where it refuses all.

        They are where to ask, and nothing else rests on them.
        """
        logs = list[RawLog]()
        for first in (self.first, max(self.first, last - MAX_RANGE + 1)):
            with suppress(RpcUnavailable):
                logs = await self.chain.events.announcing(first, last)
                break
        urls = list[str]()
        for raw in reversed(logs):
            with suppress(UndecodableLog):
                event = decode_log(raw)
                urls += [event.url] if isinstance(event, GatewayAnnounced) and event.url else []
        return list(dict.fromkeys(urls))

    def _names_us(self, raw: RawLog) -> bool:
        us = bytes.fromhex((self.account or "0x")[2:])
        return us in raw.data or any(us in topic for topic in raw.topics)
