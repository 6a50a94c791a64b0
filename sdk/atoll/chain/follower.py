"""Jobs as their events tell them: the one fold of the index into views, which survives reorgs.

Rule of this file: a view is what the events up to one block make of it, and nothing else. A reorg
takes back what came after a block; the newest fold of a block up to it is gone on with, so that no
view remembers what never happened. A start goes on with a fold that this code has left in the
folder. An event that does not fold is passed over and counted.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
import zlib
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

import structlog

from atoll.chain.deployment import Deployment
from atoll.chain.index import Advanced, Change, EventIndex, LogRangeOnDisk, Rewound
from atoll.chain.indexed import Indexed
from atoll.chain.log_store import EVERY_LOG, FAR, LogFilter
from atoll.errors import RpcUnavailable
from atoll.protocol import events
from atoll.protocol.disputes import GameMove
from atoll.protocol.events import (
    Began,
    Challenged,
    ContractEvent,
    CrowdedOut,
    Decided,
    Ended,
    GatewayAnnounced,
    JobCreated,
    Owed,
)
from atoll.protocol.game_records import parties
from atoll.protocol.membership import NOWHERE
from atoll.protocol.owners import Ownership, enter, ownership_of
from atoll.protocol.rounds import apply
from atoll.protocol.types import Address, BlockRef, JobId
from atoll.protocol.views import JobView

log = structlog.get_logger("atoll.chain.follower")

KEPT = 16
"""Folds that are remembered, of the newest blocks with events: reorgs are shallow."""
CACHED_EVENTS = 2_000
"""At least so many new ones, and an eighth of all, before a fold is written to disk again."""
PIECE = 256
"""Events that are read or folded before others get their turn."""


@dataclass(frozen=True, slots=True)
class Folded:
    """An event, and the view after it of the job that it is of.

    Attributes:
        view: its gateways are as of an earlier event; None where the event is of no followed job,
            or does not fold.
    """

    item: Indexed
    view: JobView | None


@dataclass(frozen=True, slots=True)
class TurnedBack:
    """A reorg took back what came after a block.

    Attributes:
        views: every followed job as the events tell it that still stand.
    """

    to_block: int
    views: Mapping[JobId, JobView]


@dataclass(frozen=True, slots=True)
class News:
    """What one poll brought.

    Attributes:
        begins: whether it is the first poll, behind which the views know everything so far; of the
            events until then `Follower.history` gives those that are asked for.
        turned: a reorg, which came before what was folded.
        folded: new events, oldest first.
        head: the newest block where it is another than before: the chain's clock.
    """

    begins: bool = False
    turned: TurnedBack | None = None
    folded: tuple[Folded, ...] = ()
    head: BlockRef | None = None


class Follower:
    """The views of the followed jobs, as of the index's last confirmed block.

    Args:
        index: asked by nobody else.
        only: the jobs to follow; None follows every job.

    Attributes:
        silence: why the last patient poll brought nothing, and `helps` what helps; empty where it
            was answered.
    """

    def __init__(
        self, index: EventIndex, deployment: Deployment, only: Collection[int] | None = None
    ) -> None:
        self._index = index
        self._deployment = deployment
        self._only = None if only is None else set(only)
        self._fold = Fold(deployment, self._only)
        self._has_begun = False
        self._begun_with: Fold | None = None
        self._kept: deque[Fold] = deque(maxlen=KEPT)  # they are copied, and not folded on
        self._count_on_disk = 0
        self._confirmed, self._confirmed_at = -1, 0
        self._untold: list[Change] = []
        self._ahead: dict[JobId, JobView] = {}
        self.silence = self.helps = ""

    def ahead(self, job: JobId) -> JobView | None:
        """The job as the newest block tells it; None where the last confirmed one tells the same.

        A reorg may take it back: nothing that is signed may rest on it.
        """
        return self._ahead.get(job)

    async def newest(self, job: JobId) -> JobView | None:
        """The followed job as the newest block tells it now, whether or not each poll looks there.

        A reorg may take it back. Raises RpcUnavailable.
        """
        fold = self._fold.copy()
        fold.fold_all(await self._index.look_ahead())
        return fold.views.get(job)

    @property
    def views(self) -> Mapping[JobId, JobView]:
        """Every followed job that exists."""
        return self._fold.views

    def ownership(self, account: Address) -> Ownership:
        """Who moves an account's stake and whom it pays, as of the last confirmed block."""
        return ownership_of(self._fold.owners, account)

    @property
    def confirmed(self) -> int:
        """Height up to which the views know everything; -1 before the first poll."""
        return self._confirmed

    @property
    def confirmed_at(self) -> int:
        """Unix seconds of the block at that height; 0 before the first poll."""
        return self._confirmed_at

    def history(self, which: LogFilter = EVERY_LOG) -> tuple[Indexed, ...]:
        """Every event that stands, oldest first; or those of them that are asked for."""
        return tuple(self._index.history(which))

    def checkpoint(self) -> LogRangeOnDisk | None:
        """What a checkpoint of the newest final block would have: see `EventIndex.checkpoint`."""
        return self._index.checkpoint()

    async def poll(self) -> News:
        """What is new; on the first call everything since the deployment. Waits for no block.

        One call at a time: until it returns, the views are as they were.

        Raises:
            RpcUnavailable: no endpoint answers; call again.
        """
        if self._begun_with is None:
            self._begun_with = self._kept_at(FAR)
            self._index.begin_behind(self._begun_with.newest)
        self._untold += await self._index.poll()
        turns = [change.to_block for change in self._untold if isinstance(change, Rewound)]
        items = [change for change in self._untold if isinstance(change, Indexed)]
        heads = [change.block for change in self._untold if isinstance(change, Advanced)]
        fold, turned, begins = self._fold, None, not self._has_begun
        if turns:
            # What one reorg brought another may have taken back: the index knows what stands.
            base = self._kept_at(min(turns))
            history = self._index.history(after=base.newest)
            items = [item async for item in _in_pieces(history)]
            standing = [item for item in items if begins or item.block.number <= min(turns)]
            items = items[len(standing) :]
            fold = await _folded(base, standing)
            turned = None if begins else TurnedBack(min(turns), dict(fold.views))
        elif begins:
            fold, items = await _folded(self._begun_with, items), []
        elif items:
            fold = fold.copy()
        folded = tuple([fold.fold(item) async for item in _in_pieces(items)])
        # Nothing waits from here on: who was cancelled before is told all of it by the next poll.
        self._fold, self._untold, self._has_begun = fold, [], True
        self._confirmed = self._index.confirmed
        self._confirmed_at = self._index.confirmed_at
        while turns and self._kept and self._kept[-1].newest > min(turns):
            self._kept.pop()  # of events that a reorg took back
        if begins or turned is not None or folded:
            self._keep()
        self._ahead = {}
        if self._index.ahead:
            ahead = fold.copy()
            ahead.fold_all(self._index.ahead)
            self._ahead = {j: v for j, v in ahead.views.items() if v is not self.views.get(j)}
        return News(begins, turned, folded, heads[-1] if heads else None)

    def _kept_at(self, number: int) -> Fold:
        """The newest fold of events up to that height: remembered, or from disk; else of none."""
        remembered = next((fold for fold in reversed(self._kept) if fold.newest <= number), None)
        if remembered is not None:
            return remembered
        on_disk = self._index.kept_fold(fold_code(self._only), number)
        fold = None if on_disk is None else Fold.from_bytes(on_disk.fold)
        if fold is None:
            return Fold(self._deployment, self._only)
        self._count_on_disk = fold.count
        return fold

    def _keep(self) -> None:
        """Remembers the fold as it is; on disk now and then, as it is written whole."""
        fold = self._fold
        if self._kept and self._kept[-1].newest == fold.newest:
            self._kept.pop()
        self._kept.append(fold)
        if abs(fold.count - self._count_on_disk) >= max(CACHED_EVENTS, fold.count // 8):
            self._index.keep_fold(fold_code(self._only), fold.to_bytes())
            self._count_on_disk = fold.count

    async def poll_patiently(self) -> News:
        """`poll`, or no news where the chain does not answer; `silence` says why then."""
        try:
            news = await self.poll()
        except RpcUnavailable as error:
            if self.silence != str(error):  # told once of what comes again with every look
                log.warning("the chain does not answer", cause=str(error), next=error.next_step)
            self.silence, self.helps = str(error), error.next_step or ""
            return News()
        if self.silence:
            log.info("the chain answers again")
        self.silence = self.helps = ""
        return news

    async def follow(self, job: JobId) -> tuple[Folded, ...]:
        """Follows one more job, right after a poll; what happened in it so far, oldest first.

        Until it returns, nobody polls, and the job is not followed.
        """
        if self._only is None or job in self._only:
            return ()
        alone = Fold(self._deployment, {job})
        history = self._index.history(LogFilter.of_job(job))
        steps = (alone.fold(item) async for item in _in_pieces(history))
        earlier = tuple([step async for step in steps if step.view is not None])
        self._only.add(job)
        self._fold.take(alone)
        self._kept.clear()  # they lack it
        return earlier

    @property
    def undecodable(self) -> int:
        """Logs of the contracts that are no events, whoever wrote them."""
        return self._index.undecodable

    @property
    def rejected(self) -> int:
        """Events since the last reorg that the law's fold did not accept; they were passed over."""
        return self._fold.rejected

    def gateways(self, job: JobId) -> tuple[str, ...]:
        """The gateways of a followed job's members and submitter; none of a job that is not."""
        view = self.views.get(job)
        return () if view is None else view.gateway_urls()


async def _in_pieces(items: Iterable[Indexed]) -> AsyncIterator[Indexed]:
    """The same events; others get their turn after each `PIECE` of them."""
    for count, item in enumerate(items, 1):
        yield item
        if count % PIECE == 0:
            await asyncio.sleep(0)


async def _folded(base: Fold, items: Iterable[Indexed]) -> Fold:
    """A fold gone on with; that one stays as it is."""
    fold = base.copy()
    async for item in _in_pieces(items):
        fold.fold(item)
    return fold


def fold_code(only: Collection[int] | None) -> bytes:
    """Names what a fold is made by: the code of the law and of this room, and the jobs it follows.

    Whoever changes a line of either folds anew, from nothing.
    """
    jobs = "all" if only is None else ",".join(map(str, sorted(only)))
    return sha256(_code() + jobs.encode()).digest()


@cache
def _code() -> bytes:
    rooms = (Path(events.__file__).parent.parent, Path(__file__).parent)
    files = sorted(file for room in rooms for file in room.rglob("*.py"))
    sums = (sha256(file.read_bytes()).digest() for file in files)
    return sha256(repr(sys.version_info).encode() + b"".join(sums)).digest()


class Fold:
    """Events into views, without a chain.

    Announcing a gateway costs a stranger gas alone, and every job may come to need it: the views
    share one mapping of them, which is made anew where somebody looks at the views.

    Attributes:
        owners: every account whose events tell more of it than that it is its own.
        rejected: events that the law's fold did not accept; they were passed over.
        count: events that were folded.
        newest: height of the last one's block; -1 where there was none.
    """

    def __init__(self, deployment: Deployment, only: Collection[int] | None) -> None:
        self._deployment = deployment
        self._only = only
        self._views: dict[JobId, JobView] = {}
        self._games: dict[int, JobId] = {}
        self._announced: dict[Address, str] = {}
        self._gateways: Mapping[Address, str] = {}  # of every view; lacks what is announced since
        self._announced_in: BlockRef | None = None  # the newest that it lacks
        self.owners: dict[Address, Ownership] = {}
        self.rejected = self.count = 0
        self.newest = -1

    @classmethod
    def from_bytes(cls, data: bytes) -> Fold | None:
        """One's own fold, from one's own folder; None where it cannot be read."""
        try:
            fold = pickle.loads(zlib.decompress(data))  # noqa: S301 - no stranger's bytes come here
        except Exception:
            log.warning("a kept fold cannot be read; all is folded anew", exc_info=True)
            return None
        return fold if isinstance(fold, cls) else None

    def to_bytes(self) -> bytes:
        """For `from_bytes` of the same code, and nobody else's."""
        return zlib.compress(pickle.dumps(self, pickle.HIGHEST_PROTOCOL), 1)

    @property
    def views(self) -> dict[JobId, JobView]:
        """Every followed job that exists."""
        if self._announced_in is not None:
            self._gateways, newest = dict(self._announced), self._announced_in
            for job, view in self._views.items():
                block = max(view.block, newest, key=lambda block: block.number)
                self._views[job] = replace(view, gateways=self._gateways, block=block)
            self._announced_in = None
        return self._views

    def copy(self) -> Fold:
        """The same so far, to fold on without this one."""
        other = Fold(self._deployment, self._only)
        other._views, other._gateways = dict(self.views), self._gateways
        other._games, other._announced = dict(self._games), dict(self._announced)
        other.owners, other.rejected = dict(self.owners), self.rejected
        other.count, other.newest = self.count, self.newest
        return other

    def take(self, other: Fold) -> None:
        """Goes on with the views of a fold of the same events that followed other jobs."""
        mine = self.views
        for job, view in other.views.items():
            mine[job] = replace(view, gateways=self._gateways)

    def fold_all(self, items: Iterable[Indexed]) -> None:
        """Folds events, oldest first."""
        for item in items:
            self.fold(item)

    def fold(self, item: Indexed) -> Folded:
        """Folds one event, the next in chain order."""
        event, block = item.event, item.block
        self.count, self.newest = self.count + 1, block.number
        if isinstance(event, GatewayAnnounced):
            self._announce(event, block)
        enter(self.owners, event)
        job = self._job_of(event)
        before = None if job is None else self._view_before(job, event)
        if job is None or before is None:
            return Folded(item, None)
        # One job's event must not end what follows the others: an event that the law's fold
        # does not accept leaves that job's view as it was.
        try:
            view = self._views[job] = apply(before, event, block)
        except Exception:
            self.rejected += 1
            kind = type(event).__name__
            log.exception("an event is passed over", job=job, block=block.number, kind=kind)
            return Folded(item, None)
        return Folded(item, view)

    def _announce(self, event: GatewayAnnounced, block: BlockRef) -> None:
        """In the mapping itself: a copy for each announcement would be a stranger's to ask for."""
        if event.url == NOWHERE:
            self._announced.pop(event.account, None)
        else:
            self._announced[event.account] = event.url
        self._announced_in = block

    def _job_of(self, event: ContractEvent) -> JobId | None:
        """The one job whose view the event can change; most events of a game name no job."""
        if isinstance(event, Challenged | CrowdedOut):
            about = parties(event.claim)
            if isinstance(event, Challenged) and about is not None:
                self._games[event.id] = about[0]
            return None if about is None else about[0]
        if isinstance(event, GameMove | Owed | Began | Decided | Ended):
            return self._games.get(event.id)
        return getattr(event, "job_id", None)

    def _view_before(self, job: JobId, event: ContractEvent) -> JobView | None:
        """What the event applies to; None for a job that is not followed."""
        if isinstance(event, JobCreated) and (self._only is None or job in self._only):
            view = JobView.of(self._deployment.domain, job)
            return replace(view, gateways=self._gateways)
        return self._views.get(job)
