"""What the chain says becomes events of the machines.

Rule of this file: a job that is over and has nothing of ours is left alone but for a look now and
then: a network has thousands of such jobs, and a machine that steps takes time from the others.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import structlog

from atoll.chain.follower import News
from atoll.protocol.types import JobId
from atoll.protocol.views import JobView
from atoll.service.alone import AloneCheck
from atoll.service.context import Context
from atoll.service.duties.send_keeper_calls import is_left, is_over
from atoll.service.machine import Head, HeadAdvanced, State, ViewChanged
from atoll.service.machines import Machines
from atoll.service.participation import Participation
from atoll.service.performing import Performing

S = TypeVar("S")
LOOK_BLOCKS = 64
"""So often a job is looked at that is over: what is due then, as to let go of it, has weeks."""
log = structlog.get_logger("atoll.service")


class Feeding(Generic[S]):
    """Follows the chain for the machines, and begins one for each job.

    Attributes:
        over: jobs that are over, as they were when that was seen, and at which block.
    """

    def __init__(
        self,
        *,
        setup: S,
        context: Context,
        machines: Machines[S],
        participation: Participation[S],
        performing: Performing[S],
        alone: AloneCheck,
    ) -> None:
        self.over: dict[JobId, tuple[JobView, int]] = {}
        self._setup = setup
        self._context = context
        self._machines = machines
        self._participation = participation
        self._performing = performing
        self._alone = alone

    def fold(self, news: News) -> None:
        """Raises JournalGone, where the account's past is not this folder's."""
        follower, machines = self._context.follower, self._machines
        if news.head:
            machines.hear(Head(news.head.number, news.head.timestamp))
        self._alone.see(news, machines.head)
        if news.begins or news.turned or news.folded or news.head:
            # before the views: who has just joined is not told to leave
            self._participation.choose()
        changed = {step.view.job_id for step in news.folded if step.view is not None}
        failing = {job for job, _ in self._performing.failing}
        for job, view in follower.views.items():
            machine = self._machine(job, view)
            is_new = job in changed or news.begins or news.turned
            is_idle = not machine.in_flight and job not in failing
            if not is_new and (not news.head or (is_idle and self._rests(view))):
                continue
            ahead = follower.ahead(job)
            block = (follower.confirmed, ahead, follower.confirmed_at)
            machines.put(job, ViewChanged(view, *block))
            if news.head and machines.head is not None:
                machines.put(job, HeadAdvanced(machines.head))

    def _rests(self, view: JobView) -> bool:
        """Whether the newest block is nothing to the job: it is over, and nothing of ours in it, or
        for us to do.
        """
        job, head = view.job_id, self._machines.head
        if head is None:
            return False
        known, looked_at = self.over.get(job, (None, 0))
        if known is view and head.number < looked_at + LOOK_BLOCKS:
            return True
        me = self._context.me
        is_home = is_over(view, head.time) and not view.is_bound(me)
        if is_home and not is_left(view, me, head.time):
            self.over[job] = (view, head.number)
        return False

    def _machine(self, job: JobId, view: JobView) -> State[S]:
        states = self._machines.states
        if job not in states:
            states[job] = State(
                me=self._context.me,
                setup=self._setup,
                view=view,
                head=Head(view.block.number, view.block.timestamp),
                entries=self._context.journal.read(job).after_restart(),
                sits_out=self._participation.why_out(job),
                may_take=self._participation.choice.may_take(job),
            )
            log.info("follows a job", job=job)
        return states[job]
