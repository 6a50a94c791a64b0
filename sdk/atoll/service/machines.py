"""The machines of a service, one a job: events in, a step, commands out.

Rule of this file: one task steps them, with all events that have come at a time. What one job
brings about must not stop the others: it is told once, and tried again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from atoll.protocol.types import JobId
from atoll.protocol.views import JobView
from atoll.service.entries import Entries
from atoll.service.machine import Event, Head, HeadAdvanced, Order, State, Step, ViewChanged

S = TypeVar("S")
WAIT_SECONDS = 5.0
"""A loop that waits for an event shows so often that it is not stuck."""
log = structlog.get_logger("atoll.service")


class Machines(Generic[S]):
    """Their states, and what waits for them.

    Attributes:
        step: the machine.
        states: by job.
        events: what has come and is not stepped yet.
        defects: of jobs whose machine does not step: where, and what was raised.
        head: the newest block seen, heard of at `heard_at`.
        stepped_at: when the loop last took a turn; both of the monotonic clock.
    """

    def __init__(self, step: Step[S]) -> None:
        self.states: dict[JobId, State[S]] = {}
        self.events: asyncio.Queue[tuple[JobId, Event]] = asyncio.Queue()
        self.defects: dict[JobId, dict[str, str]] = {}
        self.head: Head | None = None
        self.heard_at = 0.0
        self.stepped_at = time.monotonic()
        self.step = step
        self._untaken: dict[JobId, list[Event]] = {}

    def put(self, job: JobId, event: Event) -> None:
        """Has the job's machine take the event in its turn."""
        self.events.put_nowait((job, event))

    def hear(self, head: Head) -> None:
        """There is a newer block."""
        self.head, self.heard_at = head, time.monotonic()

    def entries_of(self, job: JobId) -> Entries:
        machine = self.states.get(job)
        return machine.entries if machine is not None else Entries()

    async def run(
        self,
        start: Callable[[JobId, JobView, Order], None],
        entries_changed: Callable[[JobId], None],
    ) -> None:
        """Steps until cancelled.

        Args:
            start: carries out a command.
            entries_changed: is told of a job of which something new is known.
        """
        while True:
            for job, events in (await self._next_events()).items():
                self.stepped_at = time.monotonic()
                waiting = [*self._untaken.pop(job, []), *events]
                if self._step(job, waiting, start, entries_changed) is None:
                    continue
                for event in waiting:  # what one of them breaks keeps no other from the machine
                    error = self._step(job, [event], start, entries_changed)
                    if error is not None:
                        self._keep_for_later(job, event)
                        self.note_defect(job, type(event).__name__, error)

    def _keep_for_later(self, job: JobId, event: Event) -> None:
        """What comes once is told again with every step, until the machine takes it."""
        if not isinstance(event, ViewChanged | HeadAdvanced):
            self._untaken.setdefault(job, []).append(event)

    def _step(
        self,
        job: JobId,
        events: list[Event],
        start: Callable[[JobId, JobView, Order], None],
        entries_changed: Callable[[JobId], None],
    ) -> Exception | None:
        """Why the job's machine did not take them."""
        before = self.states[job]
        try:
            state, commands = self.step(before, *events)
        except Exception as error:
            return error
        for event in events:
            self.clear_defect(job, type(event).__name__)
        self.states[job] = state
        if state.entries is not before.entries:
            entries_changed(job)
        for duty, reason in state.reasons.items():
            if before.reasons.get(duty) != reason:
                log.info("decision", job=job, duty=duty, reason=reason)
        for command in commands:
            start(job, state.view, command)
        return None

    async def _next_events(self) -> dict[JobId, list[Event]]:
        """All that has come, by job, at least one; a loop that waits for one is not stuck."""
        while True:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    job, event = await self.events.get()
                    break
            except TimeoutError:
                self.stepped_at = time.monotonic()
        arrived = {job: [event]}
        while not self.events.empty():
            job, event = self.events.get_nowait()
            arrived.setdefault(job, []).append(event)
        return arrived

    def note_defect(self, job: JobId, where: str, error: Exception) -> None:
        """Tells once of what comes again with every block."""
        known = self.defects.setdefault(job, {})
        if known.get(where) != repr(error):
            known[where] = repr(error)
            log.error("defect: a job's machine does not step", job=job, where=where, exc_info=error)

    def clear_defect(self, job: JobId, where: str) -> None:
        """What did not work there works again."""
        known = self.defects.get(job)
        if known is not None and known.pop(where, None) is not None:
            log.info("a job's machine steps again", job=job, where=where)
            if not known:
                del self.defects[job]
