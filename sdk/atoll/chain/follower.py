"""Jobs as their events tell them: the one fold of the index into views, which survives reorgs.

Rule of this file: a view is what the events up to one block make of it, and nothing else. A reorg
takes back what came after a block; what is up to it is folded anew, so that no view remembers what
never happened. An event that does not fold is passed over and counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from atoll.chain.deployment import Deployment
from atoll.chain.index import Advanced, EventIndex, Rewound
from atoll.chain.indexed import Indexed
from atoll.errors import RpcUnavailable
from atoll.law.events import ContractEvent, GatewayAnnounced, JobCreated
from atoll.law.owners import Ownership, enter, ownership_of
from atoll.law.rounds import apply
from atoll.law.views import JobView
from atoll.law.words import Address, BlockRef, JobId

log = structlog.get_logger("atoll.chain.follower")


@dataclass(frozen=True, slots=True)
class Folded:
    """An event, and the view after it of each followed job that it may have changed."""

    item: Indexed
    views: Mapping[JobId, JobView]


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
        turned: a reorg, which came before what was folded.
        folded: new events, oldest first.
        head: the newest block where it is another than before: the chain's clock.
    """

    turned: TurnedBack | None = None
    folded: tuple[Folded, ...] = ()
    head: BlockRef | None = None


class Follower:
    """The views of the followed jobs, as of the index's last confirmed block.

    Args:
        index: asked by nobody else.
        only: the jobs to follow; None follows every job.

    Attributes:
        silence: why the last patient poll brought nothing; empty where it was answered.
    """

    def __init__(
        self, index: EventIndex, deployment: Deployment, only: Collection[int] | None = None
    ) -> None:
        self._index = index
        self._deployment = deployment
        self._only = None if only is None else set(only)
        self._fold = Fold(deployment, self._only)
        self._ahead: dict[JobId, JobView] = {}
        self.silence = ""

    def ahead(self, job: JobId) -> JobView | None:
        """The job as the newest block tells it; None where the last confirmed one tells the same.

        A reorg may take it back: nothing that is signed may rest on it.
        """
        return self._ahead.get(job)

    @property
    def views(self) -> Mapping[JobId, JobView]:
        """Every followed job that exists."""
        return self._fold.views

    def ownership(self, account: Address) -> Ownership:
        """Who moves an account's stake and whom it pays, as of the last confirmed block."""
        return ownership_of(self._fold.owners, account)

    @property
    def confirmed(self) -> int:
        """Height up to which the views know everything."""
        return self._index.confirmed

    def history(self) -> tuple[Indexed, ...]:
        """Every event that stands, of every job, oldest first."""
        return tuple(self._index.history())

    async def poll(self) -> News:
        """What is new; on the first call everything since the deployment. Waits for no block.

        Raises:
            RpcUnavailable: no endpoint answers; call again.
        """
        changes = await self._index.poll()
        turns = [change.to_block for change in changes if isinstance(change, Rewound)]
        items = [change for change in changes if isinstance(change, Indexed)]
        heads = [change.block for change in changes if isinstance(change, Advanced)]
        turned = None
        if turns:
            # What one reorg brought another may have taken back: the index knows what stands.
            to_block, history = min(turns), self._index.history()
            kept = tuple(item for item in history if item.block.number <= to_block)
            items = history[len(kept) :]
            self._fold = Fold(self._deployment, self._only)
            self._fold.fold_all(kept)
            turned = TurnedBack(to_block, kept, dict(self.views))
        folded = self._fold.fold_all(items)
        ahead = self._fold.copy()
        ahead.fold_all(self._index.ahead)
        self._ahead = {j: v for j, v in ahead.views.items() if v is not self.views.get(j)}
        return News(turned, folded, heads[-1] if heads else None)

    async def poll_patiently(self) -> News:
        """`poll`, or no news where the chain does not answer; `silence` says why then."""
        try:
            found = await self.poll()
        except RpcUnavailable as error:
            self.silence = str(error)
            log.warning("the chain does not answer", cause=self.silence)
            return News()
        self.silence = ""
        return found

    def follow(self, job: JobId) -> tuple[Folded, ...]:
        """Follows one more job, right after a poll; what happened in it so far, oldest first."""
        if self._only is None or job in self._only:
            return ()
        self._only.add(job)
        alone = Fold(self._deployment, {job})
        past = alone.fold_all(self._index.history())
        self._fold.views.update(alone.views)
        return tuple(step for step in past if step.views)

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


class Fold:
    """Events into views, without a chain.

    Attributes:
        owners: every account whose events tell more of it than that it is its own.
        rejected: events that the law's fold did not accept; they were passed over.
    """

    def __init__(self, deployment: Deployment, only: Collection[int] | None) -> None:
        self._deployment = deployment
        self._only = only
        self._gateways: dict[Address, str] = {}
        self.views: dict[JobId, JobView] = {}
        self.owners: dict[Address, Ownership] = {}
        self.rejected = 0

    def copy(self) -> Fold:
        """The same so far, to fold on without this one."""
        other = Fold(self._deployment, self._only)
        other._gateways, other.views = dict(self._gateways), dict(self.views)
        other.owners = dict(self.owners)
        return other

    def fold_all(self, items: Iterable[Indexed]) -> tuple[Folded, ...]:
        """Folds events, oldest first."""
        return tuple(Folded(item, self._fold_one(item.event, item.block)) for item in items)

    def _fold_one(self, event: ContractEvent, block: BlockRef) -> dict[JobId, JobView]:
        if isinstance(event, GatewayAnnounced):
            self._gateways[event.account] = event.url
        enter(self.owners, event)
        job: JobId | None = getattr(event, "job_id", None)
        changed: dict[JobId, JobView] = {}
        for each in self.views if job is None else [job]:
            before = self._view_before(each, event)
            if before is None:
                continue
            # One job's event must not end what follows the others: an event that the law's fold
            # does not accept leaves that job's view as it was.
            try:
                changed[each] = apply(before, event, block)
            except Exception:
                self.rejected += 1
                kind = type(event).__name__
                log.exception("an event is passed over", job=each, block=block.number, kind=kind)
        self.views.update(changed)
        return changed

    def _view_before(self, job: JobId, event: ContractEvent) -> JobView | None:
        """What the event applies to; None for a job that is not followed."""
        if isinstance(event, JobCreated) and (self._only is None or job in self._only):
            view = JobView.of(self._deployment.domain, job)
            return replace(view, gateways=dict(self._gateways))
        return self.views.get(job)
