"""What an operator asks a service: what keeps it from its work, and where it stands.

Rule of this file: it looks and changes nothing but what was told already; one job that cannot be
looked at leaves the others alone.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from atoll.chain.txstatus import TRIED_AGAIN
from atoll.service.alerts import alerts, missed_duties, plain_obligations, waits_for
from atoll.service.alone import AloneCheck
from atoll.service.context import Context
from atoll.service.draining import Draining
from atoll.service.duties.material import refusal
from atoll.service.feeding import Feeding
from atoll.service.health_status import HealthStatus, KnownOfService, blocking
from atoll.service.machines import Machines
from atoll.service.participation import Participation
from atoll.service.performing import Performing
from atoll.service.stand_notes import StandNotes

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting(Generic[S]):
    """Over the parts of one service."""

    role: str
    context: Context
    machines: Machines[S]
    participation: Participation[S]
    performing: Performing[S]
    alone: AloneCheck
    feeding: Feeding[S]
    draining: Draining[S]
    stand_notes: StandNotes[S]

    def health_status(self) -> HealthStatus | None:
        """What keeps it from its work now."""
        context, states = self.context, self.machines.states
        open_jobs = [s.view for s in states.values() if not s.view.status.is_closed]
        strange = {int(view.job_id) for view in open_jobs if view.standing(context.me) is None}
        wanted = {(job, key) for job, s in states.items() for key in (*s.holds, *s.in_flight)}
        failing = self.performing.failing_of(wanted)
        messages = [status.message for status in context.queue.waiting() if status.message]
        head = self.machines.head
        silent = time.monotonic() - self.machines.heard_at if head is not None else None
        return blocking(
            KnownOfService(
                silent_seconds=silent,
                silence=context.follower.silence,
                helps=context.follower.helps,
                room=shutil.disk_usage(context.config.data_dir).free,
                jobs=len(open_jobs),
                strange=frozenset(strange),
                refused={job: why for job, why in self._refused().items() if job in strange},
                measured=frozenset(self.participation.choice.looked_at),
                failing={(int(job), key): kept for (job, key), kept in failing.items()},
                waiting=[each for each in messages if not each.startswith(TRIED_AGAIN)],
                gateway=context.gateway.trouble,
                defects={
                    int(job): next(iter(all_.values()))
                    for job, all_ in self.machines.defects.items()
                },
                alerts=self._alerts(),
                gathering={int(job): what for job, s in states.items() if (what := waits_for(s))},
                sits_out=self.participation.sits_out(),
                doppelganger=self.alone.why_waits,
            )
        )

    def _refused(self) -> dict[int, str]:
        """Why jobs are not for this machine, its operator or its version."""
        refusals = {int(job): refusal(s.entries) for job, s in self.machines.states.items()}
        return {job: refused.reason for job, refused in refusals.items() if refused is not None}

    def _alerts(self) -> list[HealthStatus]:
        """Of every job."""
        conditions: list[HealthStatus] = []
        for job, state in self.machines.states.items():
            try:
                conditions += alerts(state)
            except Exception as error:  # what one job brings about must not hide the others
                self.machines.note_defect(job, "alerts", error)
            else:
                self.machines.clear_defect(job, "alerts")
        return conditions

    def status(self) -> dict[str, Any]:
        """Where it stands, in JSON values: the blocking health status, the head, every job's
        duties.

        `taken` is the block up to which every machine has been given what is confirmed, and has
        begun what follows from it, or -1 while something waits for one; `sent` is the newest block
        that has a transaction of theirs.
        """
        context, health_status, head = self.context, self.health_status(), self.machines.head
        views, states = context.follower.views, self.machines.states
        owned = context.follower.ownership(context.me)
        return {
            "role": self.role,
            "account": context.me,
            "owner": owned.owner,
            "payee": owned.payee,
            "gateway": context.url,
            "orders": self.participation.orders.to_json_value(),
            "sits_out": self.participation.sits_out(),
            "bonded": [int(job) for job in self.draining.bonded()],
            "over": [
                int(job) for job, (known, _) in self.feeding.over.items() if views.get(job) is known
            ],
            "blocking": health_status.to_json_value() if health_status is not None else None,
            "head": {"block": head.number, "time": head.time} if head else None,
            **self._by_job(),
            "failing": [
                {"job": int(job), "command": key, "times": kept.times, "text": kept.text}
                for (job, key), kept in sorted(self.performing.failing.items())
            ],
            "under_way": sorted(f"{job}:{key}" for job, key in self.performing.running),
            "taken": context.follower.confirmed if self.machines.events.empty() else -1,
            "sent": max((state.sent_in for state in states.values()), default=0),
        }

    def _by_job(self) -> dict[str, Any]:
        states = self.machines.states
        missed = {job: missed_duties(state) for job, state in states.items()}
        return {
            "duties": {
                str(job): {duty: reason for duty, reason in state.reasons.items() if reason}
                for job, state in states.items()
            },
            "obligations": {str(job): plain_obligations(state) for job, state in states.items()},
            "missed_duties": {str(job): rows for job, rows in missed.items() if rows},
            "stands": {
                str(job): {"stand": note.stand.name.lower(), "text": note.text}
                for job, note in self.stand_notes.current().items()
            },
        }
