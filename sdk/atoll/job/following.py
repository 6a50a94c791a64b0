"""Jobs as their events tell them, kept up to date for whoever watches.

Rule of this file: a watcher's log only ever grows; a reorg is an entry in it, not a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from atoll.chain.deployment import Deployment
from atoll.chain.index import EventIndex, Indexed, Rewound, Update
from atoll.chain.mirror import Mirror
from atoll.errors import ChainError
from atoll.job.narrate import JobSnapshot, JobUpdate, describe
from atoll.law.views import JobView
from atoll.law.words import JobId


class JobFollower:
    """Follows the jobs it was asked for, from their first event."""

    def __init__(self, index: EventIndex, deployment: Deployment) -> None:
        self._index = index
        self._deployment = deployment
        self._jobs: dict[JobId, _Followed] = {}
        self._syncing = asyncio.Lock()

    async def view(self, job: JobId) -> JobView:
        """The job as of the last confirmed block.

        Raises:
            ChainError: the chain has no such job.
            RpcUnavailable: no endpoint answers.
        """
        view = (await self._sync(job)).view
        if view is None:
            raise ChainError(
                f"the chain has no job {job} yet", next_step="check the number and the deployment"
            )
        return view

    async def updates(self, job: JobId) -> Sequence[JobUpdate]:
        """Everything that happened in the job, oldest first. Raises RpcUnavailable."""
        return (await self._sync(job)).log

    def gateways(self, job: JobId) -> Sequence[str]:
        """The gateways of a followed job's members and submitter; none of a job that is not."""
        view = self._jobs[job].view if job in self._jobs else None
        return () if view is None else view.gateway_urls()

    async def _sync(self, job: JobId) -> _Followed:
        async with self._syncing:
            updates = await self._index.poll()
            for followed in self._jobs.values():
                followed.take(updates, self._index)
            if job not in self._jobs:
                self._jobs[job] = _Followed(job, self._deployment)
                self._jobs[job].fold(self._index.history())
            return self._jobs[job]


class _Followed:
    """One job's view and log."""

    def __init__(self, job: JobId, deployment: Deployment) -> None:
        self._job = job
        self._mirror = Mirror(deployment.domain, deployment.addresses["Jobs"], {job})
        self.log: list[JobUpdate] = []

    @property
    def view(self) -> JobView | None:
        return self._mirror.views.get(self._job)

    def take(self, updates: Sequence[Update], index: EventIndex) -> None:
        """Folds what a poll brought; a reorg first takes back what it voids."""
        turns = [at for at, update in enumerate(updates) if isinstance(update, Rewound)]
        if turns:
            turned = updates[turns[-1]]
            assert isinstance(turned, Rewound)
            self._turn_back(turned.to_block, index.history())
            updates = updates[turns[-1] + 1 :]
        self.fold(update for update in updates if isinstance(update, Indexed))

    def fold(self, items: Iterable[Indexed]) -> None:
        """Takes events in, oldest first."""
        for item in items:
            changed = self._mirror.fold([(item.event, item.block)])
            text = describe(item.event)
            if changed and text is not None and self.view is not None:
                kind, snapshot = type(item.event).__name__, JobSnapshot.of(self.view)
                self.log.append(JobUpdate(kind, text, item.block, item.event, snapshot))

    def _turn_back(self, to_block: int, history: Iterable[Indexed]) -> None:
        self._mirror.clear()
        kept = (item for item in history if item.block.number <= to_block)
        self._mirror.fold((item.event, item.block) for item in kept)
        if self.view is not None:
            text = f"a reorg took back what came after block {to_block}"
            snapshot = JobSnapshot.of(self.view)
            self.log.append(JobUpdate("Rewound", text, self.view.block, None, snapshot))
