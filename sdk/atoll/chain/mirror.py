"""Every followed job's view, folded from the index's events; built anew after a reorg."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from atoll.law.events import ContractEvent, GatewayAnnounced, JobCreated
from atoll.law.rounds import apply
from atoll.law.views import JobView
from atoll.law.words import Address, BlockRef, Domain, JobId


class Mirror:
    """Views by job.

    Args:
        domain: the rounds contract the events come from.
        jobs: the escrow contract of the same deployment.
        only: the jobs to follow; None follows every job.
    """

    def __init__(self, domain: Domain, jobs: Address, only: Collection[int] | None) -> None:
        self._domain = domain
        self._jobs = jobs
        self._only = only
        self._gateways: dict[Address, str] = {}
        self.views: dict[JobId, JobView] = {}

    def clear(self) -> None:
        """Forgets everything; the events are to be folded again."""
        self.views.clear()
        self._gateways.clear()

    def fold(self, events: Iterable[tuple[ContractEvent, BlockRef]]) -> set[JobId]:
        """Applies events, oldest first; returns the jobs they may have changed."""
        changed: set[JobId] = set()
        for event, block in events:
            changed |= self._fold_one(event, block)
        return changed

    def _fold_one(self, event: ContractEvent, block: BlockRef) -> set[JobId]:
        if isinstance(event, GatewayAnnounced):
            self._gateways[event.account] = event.url
        if isinstance(event, JobCreated) and (self._only is None or event.job_id in self._only):
            view = JobView.of(self._domain, self._jobs, event.job_id)
            self.views[event.job_id] = replace(view, gateways=dict(self._gateways))
        job: JobId | None = getattr(event, "job_id", None)
        touched = set(self.views) if job is None else {job} & set(self.views)
        for each in touched:
            self.views[each] = apply(self.views[each], event, block)
        return touched
