"""Every followed job's view, folded from the index's events; built anew after a reorg."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import structlog

from atoll.law.events import ContractEvent, GatewayAnnounced, JobCreated
from atoll.law.rounds import apply
from atoll.law.views import JobView
from atoll.law.words import Address, BlockRef, Domain, JobId

log = structlog.get_logger("atoll.chain.mirror")


class Mirror:
    """Views by job.

    Args:
        domain: the rounds contract the events come from.
        jobs: the escrow contract of the same deployment.
        only: the jobs to follow; None follows every job.

    Attributes:
        rejected: events since `clear` that the law's fold did not accept; they were passed over.
    """

    def __init__(self, domain: Domain, jobs: Address, only: Collection[int] | None) -> None:
        self._domain = domain
        self._jobs = jobs
        self._only = only
        self._gateways: dict[Address, str] = {}
        self.views: dict[JobId, JobView] = {}
        self.rejected = 0

    def clear(self) -> None:
        """Forgets everything; the events are to be folded again."""
        self.views.clear()
        self._gateways.clear()
        self.rejected = 0

    def fold(self, events: Iterable[tuple[ContractEvent, BlockRef]]) -> set[JobId]:
        """Applies events, oldest first; returns the jobs they may have changed."""
        changed: set[JobId] = set()
        for event, block in events:
            changed |= self._fold_one(event, block)
        return changed

    def _fold_one(self, event: ContractEvent, block: BlockRef) -> set[JobId]:
        if isinstance(event, GatewayAnnounced):
            self._gateways[event.account] = event.url
        job: JobId | None = getattr(event, "job_id", None)
        changed: set[JobId] = set()
        for each in list(self.views) if job is None else [job]:
            before = self._view_before(each, event)
            if before is None:
                continue
            # One job's event must not end what follows the others: an event that the law's fold
            # does not accept leaves that job's view as it was.
            try:
                self.views[each] = apply(before, event, block)
            except Exception:
                self.rejected += 1
                kind = type(event).__name__
                log.exception("an event is passed over", job=each, block=block.number, kind=kind)
            else:
                changed.add(each)
        return changed

    def _view_before(self, job: JobId, event: ContractEvent) -> JobView | None:
        """What the event applies to; None for a job that is not followed."""
        if isinstance(event, JobCreated) and (self._only is None or job in self._only):
            view = JobView.of(self._domain, self._jobs, job)
            return replace(view, gateways=dict(self._gateways))
        return self.views.get(job)
