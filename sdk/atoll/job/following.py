"""Jobs as a person follows them: a log of sentences for whoever watches.

Rule of this file: a watcher's log only ever grows; a reorg is an entry in it, not a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from atoll.chain.follower import Folded, Follower, TurnedBack
from atoll.chain.log_heads import NO_JOB
from atoll.chain.log_store import LogFilter
from atoll.errors import ChainError
from atoll.job.job_snapshot import JobSnapshot
from atoll.job.job_update import JobUpdate, update_text
from atoll.protocol.events import ContractEvent, JobCreated
from atoll.protocol.types import Address, Digest, JobId
from atoll.protocol.views import JobView


class JobFollower:
    """Follows the jobs it was asked for, from their first event."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._logs: dict[JobId, list[JobUpdate]] = {}
        self._syncing = asyncio.Lock()
        self.now = 0
        """The chain's clock, unix seconds, as of the last look."""

    async def view(self, job: JobId) -> JobView:
        """The job as of the last confirmed block.

        Raises:
            ChainError: the chain has no such job.
            RpcUnavailable: no endpoint answers.
        """
        await self.updates(job)
        view = self._follower.views.get(job)
        if view is None:
            raise ChainError(
                f"the chain has no job {job} yet", next_step="check the number and the deployment"
            )
        return view

    async def newest(self, job: JobId) -> JobView:
        """The job as the newest block tells it, which a reorg may take back. Raises as `view`."""
        view = await self.view(job)
        async with self._syncing:
            return await self._follower.newest(job) or view

    async def updates(self, job: JobId) -> Sequence[JobUpdate]:
        """Everything that happened in the job, oldest first. Raises RpcUnavailable."""
        async with self._syncing:
            await self._catch_up()
            if job not in self._logs:
                earlier = await self._follower.follow(job)
                self._logs[job] = []
                for step in earlier:
                    self._fold(step)
            return self._logs[job]

    async def catch_up(self) -> None:
        """Looks at the chain. Raises RpcUnavailable."""
        async with self._syncing:
            await self._catch_up()

    def snapshot(self, job: JobId) -> JobSnapshot | None:
        """Where a followed job stood at the last look; None where the chain has no such job."""
        view = self._follower.views.get(job)
        return None if view is None else JobSnapshot.of(view, self.now)

    async def created(
        self, manifest: Digest, submitter: Address, block: int | None = None
    ) -> JobId | None:
        """The confirmed job of that manifest and submitter, the first of several, if there is one.

        Args:
            block: the height at which it was created; None: any.
        Raises:
            RpcUnavailable: no endpoint answers.
        """
        async with self._syncing:
            await self._catch_up()
            of_no_job = LogFilter(frozenset({NO_JOB}))
            items = self._follower.history(of_no_job)
            events = (item.event for item in items if block in (None, item.block.number))
            jobs = (job_created(event, manifest, submitter) for event in events)
            return next((job for job in jobs if job is not None), None)

    @property
    def confirmed(self) -> int:
        """Height up to which everything is known."""
        return self._follower.confirmed

    async def _catch_up(self) -> None:
        news = await self._follower.poll()
        if news.turned is not None:
            self._turn_back(news.turned)
        for step in news.folded:
            self._fold(step)
        if news.head is not None:
            self.now = news.head.timestamp

    def _fold(self, step: Folded) -> None:
        event, block, view = step.item.event, step.item.block, step.view
        text = None if view is None else update_text(event, view)
        if view is not None and text is not None:
            kind, snapshot = type(event).__name__, JobSnapshot.of(view)
            self._logs[view.job_id].append(JobUpdate(kind, text, block, event, snapshot))

    def _turn_back(self, turned: TurnedBack) -> None:
        text = f"a reorg took back what came after block {turned.to_block}"
        for job, view in turned.views.items():
            snapshot = JobSnapshot.of(view)
            self._logs[job].append(JobUpdate("Rewound", text, view.block, None, snapshot))


def job_created(event: ContractEvent | None, manifest: Digest, submitter: Address) -> JobId | None:
    """The job that an event creates, where it is of that manifest and submitter."""
    if not isinstance(event, JobCreated):
        return None
    is_it = (event.spec_digest, event.submitter) == (manifest, submitter)
    return event.job_id if is_it else None
