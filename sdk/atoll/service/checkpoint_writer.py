"""Checkpoints of the chain's logs, made by every service for whoever joins.

Rule of this file: what is served is what was held against the state, up to a block that no reorg
takes back. One is served at a time; who is fetching the one before comes again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from atoll.chain.index import LogRangeOnDisk
from atoll.chain.log_snapshot import CheckpointRefused, write_snapshot
from atoll.errors import ConfigError, StorageError
from atoll.service.checkpoints import MOST_BYTES, NAME, CheckpointNote
from atoll.service.context import Context

log = structlog.get_logger("atoll.service.checkpoints")

LEAST_LOGS: Final = 256
"""New ones; and an eighth of all, as the file is written whole."""


class CheckpointWriter:
    """Makes and serves checkpoints, one at a time."""

    async def look(self, context: Context) -> None:
        """Makes another one where there is so much new since the last."""
        served = self._served(context)
        newest = context.follower.checkpoint()
        count = 0 if served is None else served.count
        if newest is None or newest.count - count < max(LEAST_LOGS, count // 8):
            return
        try:
            await self._make(context, newest, served)
        except (ConfigError, StorageError) as error:  # a store that only reads is one of them
            log.warning("no checkpoint is made", cause=str(error))

    async def _make(
        self, context: Context, newest: LogRangeOnDisk, served: CheckpointNote | None
    ) -> None:
        storage, domain = context.storage, context.chain.deployment.domain
        pieces = list[bytes]()
        for piece in write_snapshot(domain, newest.block, newest.count, newest.pages()):
            pieces.append(piece)
            await asyncio.sleep(0)
        data = b"".join(pieces)
        if len(data) > MOST_BYTES:
            return
        cid = await storage.add_bytes(data)
        await storage.pin(cid, NAME)
        note = CheckpointNote(newest.block.number, newest.count, cid, len(data))
        context.journal.publish(NAME, note.to_bytes())
        if served is not None and served.cid != cid:
            await storage.unpin(NAME, served.cid)
        log.info("serves a checkpoint", block=note.block, logs=note.count, bytes=note.size)

    @staticmethod
    def _served(context: Context) -> CheckpointNote | None:
        note = context.journal.note(NAME)
        with suppress(CheckpointRefused):
            return None if note is None else CheckpointNote.from_bytes(note)
        return None
