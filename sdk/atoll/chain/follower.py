"""Jobs as their events tell them: the one fold of the index into views, which survives reorgs.

Rule of this file: a view is what the events up to one block make of it, and nothing else. A reorg
takes back what came after a block; what is up to it is folded anew, so that no view remembers what
never happened. An event that does not fold is passed over and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from atoll.chain.deployment import Deployment
from atoll.chain.index import Advanced, Change, EventIndex, Rewound
from atoll.chain.indexed import Indexed
from atoll.errors import RpcUnavailable
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
)
from atoll.protocol.game_records import parties
from atoll.protocol.owners import Ownership, enter, ownership_of
from atoll.protocol.rounds import apply
from atoll.protocol.types import Address, BlockRef, JobId
from atoll.protocol.views import JobView

log = structlog.get_logger("atoll.chain.follower")

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
        kept: every event that still stands, oldest first.
        views: every followed job as those events tell it.
    """

    to_block: int
    kept: tuple[Indexed, ...]
    views: Mapping[JobId, JobView]


@dataclass(frozen=True, slots=True)
class News:
    """What one poll brought.

    Attributes:
        earlier: on the first poll every event that stands, oldest first; the views between them are
            nobody's, and would take the room of all jobs many times.
        turned: a reorg, which came before what was folded.
        folded: new events, oldest first.
        head: the newest block where it is another than before: the chain's clock.
    """

    earlier: tuple[Indexed, ...] = ()
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

    def history(self) -> tuple[Indexed, ...]:
        """Every event that stands, of every job, oldest first."""
        return tuple(self._index.history())

    async def poll(self) -> News:
        """What is new; on the first call everything since the deployment. Waits for no block.

        One call at a time: until it returns, the views are as they were.

        Raises:
            RpcUnavailable: no endpoint answers; call again.
        """
        self._untold += await self._index.poll()
        turns = [change.to_block for change in self._untold if isinstance(change, Rewound)]
        items = [change for change in self._untold if isinstance(change, Indexed)]
        heads = [change.block for change in self._untold if isinstance(change, Advanced)]
        fold, earlier, turned = self._fold, tuple[Indexed, ...](), None
        if turns:
            # What one reorg brought another may have taken back: the index knows what stands.
            items = [item async for item in _in_pieces(self._index.history())]
        if not self._has_begun:
            earlier, items = tuple(items), []
            fold = await self._folded(earlier)
        elif turns:
            kept = tuple(item for item in items if item.block.number <= min(turns))
            items = items[len(kept) :]
            fold = await self._folded(kept)
            turned = TurnedBack(min(turns), kept, dict(fold.views))
        elif items:
            fold = fold.copy()
        folded = tuple([fold.fold(item) async for item in _in_pieces(items)])
        # Nothing waits from here on: who was cancelled before is told all of it by the next poll.
        self._fold, self._untold, self._has_begun = fold, [], True
        self._confirmed = self._index.confirmed
        self._confirmed_at = self._index.confirmed_at
        ahead = fold.copy()
        ahead.fold_all(self._index.ahead)
        self._ahead = {j: v for j, v in ahead.views.items() if v is not self.views.get(j)}
        return News(earlier, turned, folded, heads[-1] if heads else None)

    async def _folded(self, items: Iterable[Indexed]) -> Fold:
        """A fold of these events from nothing."""
        fold = Fold(self._deployment, self._only)
        async for item in _in_pieces(items):
            fold.fold(item)
        return fold

    async def poll_patiently(self) -> News:
        """`poll`, or no news where the chain does not answer; `silence` says why then."""
        try:
            found = await self.poll()
        except RpcUnavailable as error:
            if self.silence != str(error):  # told once of what comes again with every look
                log.warning("the chain does not answer", cause=str(error), next=error.next_step)
            self.silence, self.helps = str(error), error.next_step or ""
            return News()
        if self.silence:
            log.info("the chain answers again")
        self.silence = self.helps = ""
        return found

    async def follow(self, job: JobId) -> tuple[Folded, ...]:
        """Follows one more job, right after a poll; what happened in it so far, oldest first.

        Until it returns, nobody polls, and the job is not followed.
        """
        if self._only is None or job in self._only:
            return ()
        alone = Fold(self._deployment, {job})
        steps = (alone.fold(item) async for item in _in_pieces(self._index.history()))
        earlier = tuple([step async for step in steps if step.view is not None])
        self._only.add(job)
        self._fold.take(alone)
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


class Fold:
    """Events into views, without a chain.

    Announcing a gateway costs a stranger gas alone, and every job may come to need it: the views
    share one mapping of them, which is made anew where somebody looks at the views.

    Attributes:
        owners: every account whose events tell more of it than that it is its own.
        rejected: events that the law's fold did not accept; they were passed over.
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
        self.rejected = 0

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
        if isinstance(event, GatewayAnnounced):
            self._announced[event.account], self._announced_in = event.url, block
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

    def _job_of(self, event: ContractEvent) -> JobId | None:
        """The one job whose view the event can change; most events of a game name no job."""
        if isinstance(event, Challenged | CrowdedOut):
            about = parties(event.claim)
            if isinstance(event, Challenged) and about is not None:
                self._games[event.id] = about[0]
            return None if about is None else about[0]
        if isinstance(event, GameMove | Began | Decided | Ended):
            return self._games.get(event.id)
        return getattr(event, "job_id", None)

    def _view_before(self, job: JobId, event: ContractEvent) -> JobView | None:
        """What the event applies to; None for a job that is not followed."""
        if isinstance(event, JobCreated) and (self._only is None or job in self._only):
            view = JobView.of(self._deployment.domain, job)
            return replace(view, gateways=self._gateways)
        return self._views.get(job)
