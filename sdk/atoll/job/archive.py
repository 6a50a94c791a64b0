"""A job's models and updates, kept and served by its submitter after members let go of them.

Members keep a round's updates until it is FINAL. Whoever wants to merge and to train it again
later, from public data, needs somebody who has them still: the submitter, who may keep them until
the job's claim deadline, since nothing about its money can be asked after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from atoll.errors import AtollError
from atoll.numerics.state_layout import max_state_bytes
from atoll.protocol.manifest import Manifest
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import SeatIndex, bits
from atoll.protocol.views import JobView
from atoll.service.background_tasks import background_tasks
from atoll.service.update_limits import UNFETCHABLE_CONTENT, max_update_bytes
from atoll.storage.cid import Cid

if TYPE_CHECKING:
    from atoll.job.handle import JobHandle

LOOK_SECONDS: Final = 3.0
"""Between two looks for what can be kept."""
LAST_LOOK_SECONDS: Final = 60.0
"""Between two looks at the chain's clock once a job is over."""
log = structlog.get_logger("atoll.job.archive")


@dataclass
class Archive:
    """What is kept of one job.

    Attributes:
        quota: bytes that are not exceeded.
        kept: CIDs and their bytes; 0 of what no source can give.
        is_full: whether something was excluded for want of room.
    """

    handle: JobHandle
    quota: int
    kept: dict[bytes, int] = field(default_factory=dict)
    is_full: bool = False

    @property
    def used(self) -> int:
        return sum(self.kept.values())

    async def look(self) -> None:
        """Keeps what there is and is not kept yet; what is not to be had now is left for later.

        Raises AtollError where the chain or the manifest is not to be had.
        """
        view, manifest = await self.handle.view(), await self.handle.manifest()
        for settled_round in view.settled:
            for cid, most in _files(settled_round, manifest):
                if cid not in self.kept and not self.is_full:
                    await self._keep(view, settled_round, cid, most)

    async def _keep(
        self, view: JobView, settled_round: SettledRound, cid: bytes, most: int
    ) -> None:
        store, job = self.handle.client.store, view.job_id
        if self.used + most > self.quota:
            self.is_full = True
            log.warning("the archive is full", job=job, round=settled_round.round, bytes=self.used)
            return
        try:
            where = Cid.from_bytes(cid)
            with store.holding():
                await self.handle.client.fetcher_of(job).fetch(where, most)
                await asyncio.to_thread(store.pin, where, reason(job))
            self.kept[cid] = await asyncio.to_thread(store.file_bytes, where)
        except UNFETCHABLE_CONTENT:
            self.kept[cid] = 0
        except AtollError as error:
            log.info("not archived yet", job=job, round=settled_round.round, cause=str(error))

    async def run(self) -> None:
        """Looks again and again, until cancelled."""
        while True:
            try:
                await self.look()
            except AtollError as error:
                log.info("nothing is archived now", job=self.handle.id, cause=str(error))
            await asyncio.sleep(LOOK_SECONDS)


def reason(job: int) -> str:
    """What the store knows an archive's pins by."""
    return f"job/{job}/archive"


@asynccontextmanager
async def archiving(handle: JobHandle, quota: int) -> AsyncIterator[None]:
    """Keeps a job's models and updates beside what is inside; a quota of 0 keeps none."""
    async with background_tasks([Archive(handle, quota).run()] if quota else []):
        yield


async def until_claimed(handle: JobHandle) -> None:
    """Waits for the claim deadline of a job that is over, by the chain's clock; then what was kept
    may be collected. A chain that does not answer is waited for.
    """
    due: int | None = None
    while due is None or handle.client.follower.now < due:
        try:
            due = await handle.rest_due()
            await handle.view()
        except AtollError as error:
            log.info("the chain does not answer", job=handle.id, cause=str(error))
        await asyncio.sleep(LAST_LOOK_SECONDS)
    await asyncio.to_thread(handle.client.store.unpin, reason(handle.id))


def _files(settled_round: SettledRound, manifest: Manifest) -> Iterator[tuple[bytes, int]]:
    """What a round left: its merge's model, and the updates that it was made of."""
    if settled_round.verdict.cid:
        yield settled_round.verdict.cid, max_state_bytes(manifest)
    for seat in map(SeatIndex, bits(settled_round.record.available)):
        revealed = settled_round.reveals.get(seat)
        if revealed is not None and revealed.reveal.update_cid:
            yield revealed.reveal.update_cid, max_update_bytes(manifest)
