"""The loop of a service: events in, machine step, commands out, results back in.

Rule of this file: one task takes events in, one at a time; effects run beside it and come back as
events. Nothing here decides anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog

from atoll.chain.index import Head as ChainHead
from atoll.chain.index import Indexed, Rewound, Update
from atoll.errors import AtollError, NotFound, RpcUnavailable
from atoll.law.views import JobView
from atoll.law.words import JobId
from atoll.service.effects import Effects, NotYet
from atoll.service.facts import PER_START
from atoll.service.machine import (
    Cancel,
    Command,
    Drain,
    Event,
    Failed,
    Finished,
    Head,
    HeadAdvanced,
    State,
    ViewChanged,
)
from atoll.service.metrics import NO_ROUND, write_metrics

S = TypeVar("S")
METRICS_SECONDS = 2.0
log = structlog.get_logger("atoll.service")


@dataclass(frozen=True)
class Role(Generic[S]):
    """What makes a service a provider's or a verifier's.

    Attributes:
        name: `provider` or `verifier`.
        setup: the machine's constants, given the announced gateway URL.
        step: the machine.
        effects: carries out its commands.
    """

    name: str
    setup: S
    step: Callable[[State[S], Event], tuple[State[S], list[Command]]]
    effects: Effects


@dataclass
class Service(Generic[S]):
    """Runs one role's machines, one a job, until cancelled."""

    role: Role[S]
    _machines: dict[JobId, State[S]] = field(default_factory=dict)
    _events: asyncio.Queue[tuple[JobId, Event]] = field(default_factory=asyncio.Queue)
    _running: dict[tuple[JobId, str], asyncio.Task[None]] = field(default_factory=dict)
    _bytes_seen: dict[str, int] = field(default_factory=dict)
    _draining: bool = False
    _defects: dict[JobId, str] = field(default_factory=dict)
    _metrics_failed: str = ""

    async def run(self) -> None:
        """Works until cancelled. Raises what a broken queue or index raises."""
        context = self.role.effects.context
        log.info("started", role=self.role.name, account=context.me, gateway=context.url)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(context.queue.run())
                group.create_task(self._follow())
                group.create_task(self._take_events())
                group.create_task(self._measure())
        finally:
            await self._stop_effects()
            self.write_metrics()
            log.info("stopped", role=self.role.name)

    def drain(self) -> None:
        """Asks every machine to finish its round and to leave."""
        self._draining = True
        for job in self._machines:
            self._events.put_nowait((job, Drain()))

    # --- events in ---

    async def _follow(self) -> None:
        """Polls the index; an unreachable chain is waited for."""
        context = self.role.effects.context
        while True:
            try:
                self._take_updates(await context.index.poll())
            except RpcUnavailable as error:
                log.warning("the chain does not answer", cause=str(error))
            await asyncio.sleep(context.config.poll_interval_s)

    def _take_updates(self, updates: list[Update]) -> None:
        context = self.role.effects.context
        mirror, index = context.mirror, context.index
        items = [update for update in updates if isinstance(update, Indexed)]
        changed: set[JobId] = set()
        if any(isinstance(update, Rewound) for update in updates):
            mirror.clear()
            items, changed = index.history(), set(self._machines)
        changed |= mirror.fold((item.event, item.block) for item in items)
        heads = [update.block for update in updates if isinstance(update, ChainHead)]
        for job, view in mirror.views.items():
            self._machine(job, view)
            if job in changed or heads:
                self._events.put_nowait((job, ViewChanged(view, index.confirmed)))
            if heads:
                head = Head(heads[-1].number, heads[-1].timestamp)
                self._events.put_nowait((job, HeadAdvanced(head)))

    def _machine(self, job: JobId, view: JobView) -> State[S]:
        if job not in self._machines:
            context = self.role.effects.context
            self._machines[job] = State(
                me=context.me,
                setup=self.role.setup,
                view=view,
                head=Head(view.block.number, view.block.timestamp),
                facts=context.journal.read(job).minus(PER_START),
                draining=self._draining,
            )
            log.info("follows a job", job=job)
        return self._machines[job]

    async def _take_events(self) -> None:
        while True:
            job, event = await self._events.get()
            before = self._machines[job]
            try:
                state, commands = self.role.step(before, event)
            except Exception as error:  # what one job brings about must not stop the others
                self._note_defect(job, error)
                continue
            self._machines[job] = state
            self._log_reasons(job, before, state)
            for command in commands:
                self._start(job, state.view, command)

    def _note_defect(self, job: JobId, error: Exception) -> None:
        """Tells once of what comes again with every block."""
        if self._defects.get(job) != repr(error):
            self._defects[job] = repr(error)
            log.exception("defect: a job's machine does not step", job=job)

    def _log_reasons(self, job: JobId, before: State[S], after: State[S]) -> None:
        for duty, reason in after.reasons.items():
            if before.reasons.get(duty) != reason:
                log.info("decision", job=job, duty=duty, reason=reason)

    # --- commands out ---

    def _start(self, job: JobId, view: JobView, command: Command) -> None:
        if isinstance(command, Cancel):
            task = self._running.pop((job, command.key), None)
            if task is not None:
                log.info("cancels", job=job, command=command.key)
                task.cancel()
            return
        log.info("starts", job=job, command=command.key)
        task = asyncio.create_task(self._perform(job, view, command))
        self._running[(job, command.key)] = task

    async def _perform(self, job: JobId, view: JobView, command: Command) -> None:
        event: Event
        try:
            done = await self.role.effects.run(view, command)
            event = Finished(command.key, done.facts, done.block)
            log.info("finished", job=job, command=command.key)
        except asyncio.CancelledError:
            raise
        except NotFound as error:
            event = Failed(command.key, str(error), not_found=True, missing=error.digest)
            log.info("not found", job=job, command=command.key, cause=str(error))
        except NotYet as error:
            event = Failed(command.key, str(error), due_at=error.due_at)
            log.info("too early", job=job, command=command.key, cause=str(error))
        except AtollError as error:
            event = Failed(command.key, str(error))
            log.warning("failed", job=job, command=command.key, cause=str(error))
        except Exception as error:  # a defect of ours must not stop the other duties
            event = Failed(command.key, repr(error))
            log.exception("defect", job=job, command=command.key)
        if self._running.get((job, command.key)) is asyncio.current_task():
            del self._running[(job, command.key)]
            self._events.put_nowait((job, event))

    async def _stop_effects(self) -> None:
        tasks = list(self._running.values())
        self._running.clear()
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    # --- measures ---

    async def _measure(self) -> None:
        while True:
            self.write_metrics()
            await asyncio.sleep(METRICS_SECONDS)

    def write_metrics(self) -> None:
        """Adds traffic since the last call to the journal, and writes the metrics file.

        Never raises: a full disk, a file table without room or a path that is not ours costs the
        measures, and not the duties that they are about.
        """
        try:
            self._write_metrics()
        except Exception as error:
            if self._metrics_failed != repr(error):
                log.warning("metrics cannot be written", cause=str(error))
            self._metrics_failed = repr(error)
        else:
            self._metrics_failed = ""

    def _write_metrics(self) -> None:
        context = self.role.effects.context
        traffic = {"bytes_up": context.gateway.bytes_up, "bytes_down": context.fetcher.bytes_down}
        for name, total in traffic.items():
            delta = total - self._bytes_seen.get(name, 0)
            if delta:
                context.journal.measure(0, NO_ROUND, name, delta)
            self._bytes_seen[name] = total
        gas = {
            label: {
                "transactions": use.transactions,
                "gas": use.gas,
                "highest": use.highest,
                "fees_wei": str(use.fees),
            }
            for label, use in context.queue.gas_by_label().items()
        }
        write_metrics(
            context.journal,
            context.config.metrics_file,
            {
                "account": context.me,
                "role": self.role.name,
                "gas": gas,
                "useless_answers": context.chain.provider.useless_answers,
                "left_out_logs": context.chain.events.left_out,
                "undecodable_logs": context.index.undecodable,
                "rejected_events": context.mirror.rejected,
                "stuck_jobs": sorted(self._defects),
            },
        )
