"""The loop of a service: events in, machine step, commands out, results back in.

Rule of this file: one task gives the machines events, all that have come at a time; effects run
beside it and come back as events. Nothing here decides anything.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog

from atoll.chain import answers
from atoll.chain.follower import News
from atoll.chain.txstatus import TRIED_AGAIN
from atoll.errors import AtollError, NotFound
from atoll.protocol.views import JobView
from atoll.protocol.words import JobId
from atoll.service.alerts import alerts, misses, owed_plain, waits_for
from atoll.service.beside import end
from atoll.service.choice import Choice
from atoll.service.condition import Condition, Failing, Known, blocking
from atoll.service.config import WatchdogSection
from atoll.service.context import Context
from atoll.service.doppelganger import Doppelganger
from atoll.service.duties.game import decide_games
from atoll.service.duties.keeper_calls import decide_pay, is_left, is_over
from atoll.service.duties.material import DoFetchSpec, refusal
from atoll.service.duties.membership import SendJoin
from atoll.service.effects import ROLES, Effects
from atoll.service.facts import OF_SERVICE, Facts, NotYet
from atoll.service.journal import gone
from atoll.service.machine import (
    AnyCommand,
    Cancel,
    Event,
    Failed,
    Finished,
    Head,
    HeadAdvanced,
    Order,
    Ordered,
    State,
    Step,
    ViewChanged,
)
from atoll.service.metrics import NO_ROUND, read_measures, write_metrics
from atoll.service.occupied import Occupied
from atoll.service.orders import NO_ORDERS, ORDERS_KEY, Orders, off_hours
from atoll.service.pace import promised_per_hour
from atoll.service.power import Mains
from atoll.service.stands import (
    MOST_SAID,
    Stand,
    Statement,
    digest_of,
    note_name,
    stand_of,
    to_bytes,
)
from atoll.service.watchdog import Watchdog, call, notify_systemd

S = TypeVar("S")
METRICS_SECONDS = 2.0
SECONDS_BY_MEASURE = 0.001
"""So much later the metrics' file is written again for each measure in it, all of which are: to
write thousands of rounds takes as small a part of the time as to write one.
"""
WATCH_SECONDS = 5.0
LOOK_BLOCKS = 64
"""So often a job is looked at that is over: what is due then, as to let go of it, has weeks."""
STUCK_SECONDS = 60.0
"""A turn of the machines' loop takes milliseconds."""
PAUSE_BY_LOOK = 4
"""So many times as long as a look at the chain took, the next one waits: on a busy machine, looking
takes a fifth of the time at most.
"""
LONGEST_PAUSE = 10.0
"""Seconds. An endpoint that does not answer in time has more to do than it can; asked again at
once, by everybody, it never would.
"""
PLAYER = "player"
"""Runs in a folder of its own, or in a node's, and plays for it while it is down."""
log = structlog.get_logger("atoll.service")


class _Drained(Exception):
    """Everything that was ordered is done: the service ends."""


class _Stopped(Exception):
    """Its operator has it end, whatever it owes."""


@dataclass
class Service(Generic[S]):
    """Runs one role's machines, one a job, until cancelled.

    Attributes:
        role: `provider` or `verifier`.
        setup: the machine's constants.
        step: the machine.
        effects: carries out its commands.
    """

    role: str
    setup: S
    step: Step[S]
    effects: Effects
    _machines: dict[JobId, State[S]] = field(default_factory=dict)
    _events: asyncio.Queue[tuple[JobId, Event]] = field(default_factory=asyncio.Queue)
    _running: dict[tuple[JobId, str], asyncio.Task[None]] = field(default_factory=dict)
    _bytes_seen: dict[str, int] = field(default_factory=dict)
    _orders: Orders = NO_ORDERS
    _mains: Mains = field(default_factory=lambda: Mains(is_wanted=False))
    _others: Occupied = field(default_factory=lambda: Occupied(None))
    _choice: Choice = field(init=False)
    _said: dict[JobId, tuple[Stand, str]] = field(default_factory=dict)
    _doppelganger: Doppelganger | None = None
    _doppelganger_text: str = ""
    _is_past_known: bool = False
    _is_alone: asyncio.Event = field(default_factory=asyncio.Event)
    _has_to_drain: bool = False
    _has_to_stop: asyncio.Event = field(default_factory=asyncio.Event)
    _defects: dict[JobId, dict[str, str]] = field(default_factory=dict)
    _failing: dict[tuple[JobId, str], Failing] = field(default_factory=dict)
    _failed: int = 0
    _untaken: dict[JobId, list[Event]] = field(default_factory=dict)
    _over: dict[JobId, tuple[JobView, int]] = field(default_factory=dict)
    _head: Head | None = None
    _heard_at: float = 0.0
    _stepped_at: float = field(default_factory=time.monotonic)
    _metrics_failed: str = ""
    _metrics_told: tuple[int, dict[str, object]] | None = None
    _measures_read: int = 0

    def __post_init__(self) -> None:
        self._choice = Choice(self.effects.context.me, ROLES.get(self.role))

    async def run(self) -> None:
        """Works until cancelled. Raises what a broken queue or index raises."""
        context = self.effects.context
        self._orders = (*context.journal.read(OF_SERVICE).all_of(Orders), NO_ORDERS)[0]
        self._mains = Mains(is_wanted=not context.config.schedule.on_battery)
        self._others = Occupied(context.config.schedule.most_by_others)
        context.journal.withdraw(note_name("*"))
        self._look_for_doppelganger(context)
        log.info("started", role=self.role, account=context.me, gateway=context.url)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._until_drained())
                group.create_task(self._until_stopped())
                group.create_task(context.queue.run())
                group.create_task(self._follow())
                group.create_task(self._step_machines())
                group.create_task(self._measure())
                group.create_task(self._watch())
        except* _Drained:
            log.info("drained", role=self.role)
        except* _Stopped:
            log.info("was told to stop", role=self.role)
        finally:
            await self._stop_effects()
            self.write_metrics()
            log.info("stopped", role=self.role)

    @property
    def head(self) -> Head | None:
        """The newest block seen."""
        return self._head

    @property
    def jobs(self) -> int:
        """How many jobs it follows."""
        return len(self._machines)

    @property
    def under_way(self) -> int:
        """How many effects are under way."""
        return len(self._running)

    @property
    def failed(self) -> int:
        """How many effects did not take place, since the start."""
        return self._failed

    @property
    def stuck(self) -> int:
        """How many jobs' machines do not step."""
        return len(self._defects)

    @property
    def misses(self) -> dict[JobId, list[dict[str, Any]]]:
        """What the account was cut for, by job."""
        return {job: misses(state) for job, state in self._machines.items()}

    @property
    def orders(self) -> Orders:
        """What its operator has ordered."""
        return self._orders

    def order(self, orders: Orders) -> None:
        """Obeys from now on, also after a restart."""
        self.effects.context.journal.write(OF_SERVICE, ORDERS_KEY, orders)
        self._orders = orders
        self._has_to_drain = orders.drains
        self._tell_orders()

    def _tell_orders(self) -> None:
        for job in self._machines:
            self._events.put_nowait((job, self._ordered(job)))

    def _ordered(self, job: JobId) -> Ordered:
        return Ordered(self._why_out(job), self._choice.may_take(job))

    def _why_out(self, job: JobId) -> str:
        ordered = self._orders.why_out(job) or self._machine_is_not_ours()
        return ordered or self._choice.why_out(job)

    def _choose(self) -> None:
        """Which jobs are looked at, taken, and left: what anybody can announce takes nothing of
        those that have our bonds. A player takes no places.
        """
        context, head = self.effects.context, self._head
        views, most = context.follower.views, context.config.policy.jobs_at_once
        now = head.time if head is not None else 0
        if self._choice.see(views, self._facts_of, most, now):
            self.effects.unpaid = self._choice.unpaid
            self._tell_orders()

    def _facts_of(self, job: JobId) -> Facts:
        machine = self._machines.get(job)
        return machine.facts if machine is not None else Facts()

    def _machine_is_not_ours(self) -> str:
        return self._mains.why_out or self._others.why_out

    def sits_out(self) -> str:
        """Why it takes no part in anything now; empty where it does."""
        ordered = Orders(self._orders.pauses, self._orders.drains).why_out(JobId(0))
        now = self._head.time if self._head is not None else int(time.time())
        schedule = self.effects.context.config.schedule
        return ordered or self._machine_is_not_ours() or off_hours(schedule, now)

    def _look_for_doppelganger(self, context: Context) -> None:
        """From now on; nothing is done before it is known that nobody else acts with the key."""
        journal, wait = context.journal, context.config.doppelganger_wait_s

        def is_ours(tx_hash: str) -> bool:
            return context.queue.has_signed(tx_hash) or journal.has_sent(tx_hash)

        self._doppelganger = Doppelganger(context.me, is_ours, wait, journal.is_renewed)

    def _see_doppelganger(self, news: News) -> None:
        """What is seen of it at first is the whole history, as `news` tells it at the start.

        Raises JournalGone where that has what this folder lacks.
        """
        doppelganger = self._doppelganger
        if doppelganger is None:
            return
        doppelganger.see([*news.past, *(step.item for step in news.folded)])
        if self._head is None:
            return
        if not self._is_past_known:
            self._look_at_past(doppelganger, self._head)
        before = self._doppelganger_text
        self._doppelganger_text = doppelganger.why_waits(self._head.time, self._head.number)
        if self._doppelganger_text:
            self._is_alone.clear()
            if not before:
                log.warning("somebody else may act with this key", cause=self._doppelganger_text)
        elif not self._is_alone.is_set():
            self.effects.context.journal.begin()
            self._is_alone.set()

    def _look_at_past(self, doppelganger: Doppelganger, head: Head) -> None:
        """Once: whether the journal has what the account did. Raises JournalGone."""
        context = self.effects.context
        journal, views = context.journal, context.follower.views
        lost = doppelganger.lost_past(views, head.time, is_new=journal.is_new)
        if lost and not journal.is_renewed:
            raise gone(context.config.journal_file, lost)
        self._is_past_known = True

    def stop(self) -> None:
        """Ends once what is under way is let go of; a restart takes up where this one was."""
        self._has_to_stop.set()

    async def _until_stopped(self) -> None:
        await self._has_to_stop.wait()
        raise _Stopped

    async def _until_drained(self) -> None:
        """Ends the service once it was told to drain and every bond of its account is home.

        Who is started again after that stays out and does not end: what restarts it would go on.
        """
        while True:
            if self._orders.drains and self._head is not None:
                is_bound = self._is_bound()
                if self._has_to_drain and not is_bound:
                    raise _Drained
                self._has_to_drain = is_bound
            await asyncio.sleep(WATCH_SECONDS)

    def _is_bound(self) -> bool:
        """Whether a bond of the account is in a job, or may be on its way there; or pay is due that
        it collects.
        """
        confirmed = self.effects.context.follower.confirmed
        is_joining = any(
            isinstance(c, SendJoin) for s in self._machines.values() for c in s.in_flight.values()
        )
        is_fresh = any(block > confirmed for block in self.effects.joined.values())
        is_paying = any(map(self._is_paying, self._machines.values()))
        return bool(self._bonded()) or is_joining or is_fresh or is_paying

    def _is_paying(self, state: State[S]) -> bool:
        """Whether it collects something; where that cannot be decided, the machine says so, too."""
        when = self.effects.context.config.auto_claim
        try:
            return bool(decide_pay(state, when).commands or decide_games(state).commands)
        except Exception:
            return True

    def _bonded(self) -> list[JobId]:
        """Jobs in which a bond of the account is not home: of its part, or of a challenge."""
        me = self.effects.context.me
        views = self.effects.context.follower.views
        return [job for job, view in views.items() if view.is_bound(me)]

    # --- events in ---

    async def _follow(self) -> None:
        context = self.effects.context
        while True:
            began = time.monotonic()
            self._fold_news(await context.follower.poll_patiently())
            pause = min(PAUSE_BY_LOOK * (time.monotonic() - began), LONGEST_PAUSE)
            await asyncio.sleep(max(context.config.poll_interval_s, pause))

    def _fold_news(self, news: News) -> None:
        follower = self.effects.context.follower
        if news.head:
            self._head = Head(news.head.number, news.head.timestamp)
            self._heard_at = time.monotonic()
        self._see_doppelganger(news)
        if news.past or news.turned or news.folded or news.head:
            self._choose()  # before the views: who has just sat down is not told to leave
        changed = {step.view.job_id for step in news.folded if step.view is not None}
        failing = {job for job, _ in self._failing}
        for job, view in follower.views.items():
            machine = self._machine(job, view)
            is_new = job in changed or bool(news.past) or news.turned
            is_idle = not machine.in_flight and job not in failing
            if not is_new and (not news.head or (is_idle and self._rests(view))):
                continue
            ahead = follower.ahead(job)
            block = (follower.confirmed, ahead, follower.confirmed_at)
            self._events.put_nowait((job, ViewChanged(view, *block)))
            if news.head and self._head is not None:
                self._events.put_nowait((job, HeadAdvanced(self._head)))

    def _rests(self, view: JobView) -> bool:
        """Whether the newest block is nothing to the job: it is over, and nothing of ours in it, or
        for us to do.
        """
        job, head = view.job_id, self._head
        if head is None:
            return False
        known, looked_at = self._over.get(job, (None, 0))
        if known is view and head.number < looked_at + LOOK_BLOCKS:
            return True
        me = self.effects.context.me
        is_home = is_over(view, head.time) and not view.is_bound(me)
        if is_home and not is_left(view, me, head.time):
            self._over[job] = (view, head.number)
        return False

    def _machine(self, job: JobId, view: JobView) -> State[S]:
        if job not in self._machines:
            context = self.effects.context
            self._machines[job] = State(
                me=context.me,
                setup=self.setup,
                view=view,
                head=Head(view.block.number, view.block.timestamp),
                facts=context.journal.read(job).after_restart(),
                sits_out=self._why_out(job),
                may_take=self._choice.may_take(job),
            )
            log.info("follows a job", job=job)
        return self._machines[job]

    async def _step_machines(self) -> None:
        while True:
            for job, events in (await self._next_events()).items():
                self._stepped_at = time.monotonic()
                told = [*self._untaken.pop(job, []), *events]
                if self._step(job, *told) is None:
                    continue
                for event in told:  # what one of them breaks keeps no other from the machine
                    error = self._step(job, event)
                    if error is not None:
                        self._keep_for_later(job, event)
                        self._note_defect(job, type(event).__name__, error)

    def _keep_for_later(self, job: JobId, event: Event) -> None:
        """What comes once is told again with every step, until the machine takes it."""
        if not isinstance(event, ViewChanged | HeadAdvanced):
            self._untaken.setdefault(job, []).append(event)

    def _step(self, job: JobId, *events: Event) -> Exception | None:
        """Why the job's machine did not take them: what one job brings must not stop the others."""
        before = self._machines[job]
        try:
            state, commands = self.step(before, *events)
        except Exception as error:
            return error
        for event in events:
            self._clear_defect(job, type(event).__name__)
        self._machines[job] = state
        if state.facts is not before.facts and job not in self._choice.held:
            self._choose()
        self._log_reasons(job, before, state)
        for command in commands:
            self._start(job, state.view, command)
        return None

    async def _next_events(self) -> dict[JobId, list[Event]]:
        """All that has come, by job, at least one; a loop that waits for one is not stuck."""
        while True:
            try:
                async with asyncio.timeout(WATCH_SECONDS):
                    job, event = await self._events.get()
                    break
            except TimeoutError:
                self._stepped_at = time.monotonic()
        found = {job: [event]}
        while not self._events.empty():
            job, event = self._events.get_nowait()
            found.setdefault(job, []).append(event)
        return found

    def _note_defect(self, job: JobId, where: str, error: Exception) -> None:
        """Tells once of what comes again with every block."""
        found = self._defects.setdefault(job, {})
        if found.get(where) != repr(error):
            found[where] = repr(error)
            log.error("defect: a job's machine does not step", job=job, where=where, exc_info=error)

    def _clear_defect(self, job: JobId, where: str) -> None:
        """What did not work there works again."""
        found = self._defects.get(job)
        if found is not None and found.pop(where, None) is not None:
            log.info("a job's machine steps again", job=job, where=where)
            if not found:
                del self._defects[job]

    def _log_reasons(self, job: JobId, before: State[S], after: State[S]) -> None:
        for duty, reason in after.reasons.items():
            if before.reasons.get(duty) != reason:
                log.info("decision", job=job, duty=duty, reason=reason)

    # --- commands out ---

    def _start(self, job: JobId, view: JobView, command: Order) -> None:
        if isinstance(command, Cancel):
            task = self._running.pop((job, command.key), None)
            if task is not None:
                log.info("cancels", job=job, command=command.key)
                task.cancel()
            return
        log.info("starts", job=job, command=command.key)
        task = asyncio.create_task(self._perform(job, view, command))
        self._running[(job, command.key)] = task

    async def _perform(self, job: JobId, view: JobView, command: AnyCommand) -> None:
        event: Event = Failed(command.key, "it ended without a word")
        try:
            await self._is_alone.wait()
            done = await self.effects.run(view, command)
            event = Finished(command.key, done.fact, done.block)
            self._failing.pop((job, command.key), None)
            log.info("finished", job=job, command=command.key)
        except asyncio.CancelledError:
            raise
        except NotFound as error:
            self._note_failure(job, command, error)
            event = Failed(command.key, str(error))
            log.info("not found", job=job, command=command.key, cause=str(error))
        except NotYet as error:
            event = Failed(command.key, str(error), due_at=error.due_at)
            log.info("too early", job=job, command=command.key, cause=str(error))
        except AtollError as error:
            self._note_failure(job, command, error)
            event = Failed(command.key, str(error))
            log.warning("failed", job=job, command=command.key, cause=str(error))
        except Exception as error:  # a defect of ours must not stop the other duties
            self._note_failure(job, command, error)
            event = Failed(command.key, repr(error))
            log.exception("defect", job=job, command=command.key)
        finally:  # else it would be under way for ever
            if self._running.get((job, command.key)) is asyncio.current_task():
                del self._running[(job, command.key)]
                self._events.put_nowait((job, event))

    async def _stop_effects(self) -> None:
        tasks = list(self._running.values())
        self._running.clear()
        await end(tasks)

    def _note_failure(self, job: JobId, command: AnyCommand, error: Exception) -> None:
        before = self._failing.get((job, command.key))
        self._failed += 1
        if isinstance(command, DoFetchSpec):
            self._choice.did_not_come(job)
        self._failing[(job, command.key)] = Failing(
            kind=type(error).__name__,
            text=answers.text(str(error)),
            next_step=getattr(error, "next_step", None) or "",
            times=before.times + 1 if before else 1,
        )

    # --- how it stands to jobs ---

    def _stands(self) -> dict[JobId, tuple[Stand, str]]:
        """How it stands to the open jobs that promise most; an outsider's stands to none."""
        role = ROLES.get(self.role)
        if role is None:
            return {}
        found = {}
        for job, state in self._machines.items():
            if (stand := stand_of(state, self._choice)) is not None:
                found[job] = (promised_per_hour(role, state.view.require_terms()), stand)
        best = sorted(found, key=lambda job: (-found[job][0], job))[:MOST_SAID]
        return {job: found[job][1] for job in best}

    def _say_stands(self) -> None:
        """Signs and serves what is another than before; its latest word alone."""
        stands, context = self._stands(), self.effects.context
        for job in self._said.keys() - stands.keys():
            context.journal.withdraw(note_name(job))
            del self._said[job]
        for job, stand in stands.items():
            if self._said.get(job) == stand or self._head is None:
                continue
            said = Statement(ROLES[self.role], stand[0], self._head.time, stand[1])
            digest = digest_of(self._machines[job].view.domain, job, context.me, said)
            context.journal.publish(note_name(job), to_bytes(said, context.sign(digest)))
            self._said[job] = stand

    # --- what an operator asks ---

    def condition(self) -> Condition | None:
        """What keeps it from its work now."""
        context = self.effects.context
        open_jobs = [s.view for s in self._machines.values() if not s.view.status.is_closed]
        strange = {int(view.job_id) for view in open_jobs if view.standing(context.me) is None}
        wanted = {
            (job, key) for job, s in self._machines.items() for key in (*s.holds, *s.in_flight)
        }
        self._failing = {where: one for where, one in self._failing.items() if where in wanted}
        told = [t.message for t in context.queue.waiting() if t.message]
        waits = [message for message in told if not message.startswith(TRIED_AGAIN)]
        silent = time.monotonic() - self._heard_at if self._head is not None else None
        return blocking(
            Known(
                silent_seconds=silent,
                silence=context.follower.silence,
                helps=context.follower.helps,
                room=shutil.disk_usage(context.config.data_dir).free,
                jobs=len(open_jobs),
                strange=frozenset(strange),
                refused={job: why for job, why in self._refused().items() if job in strange},
                measured=frozenset(self._choice.looked_at),
                failing={(int(job), key): one for (job, key), one in self._failing.items()},
                waiting=waits,
                gateway=context.gateway.trouble,
                defects={
                    int(job): next(iter(all_.values())) for job, all_ in self._defects.items()
                },
                alerts=self._alerts(),
                gathering={
                    int(job): what for job, s in self._machines.items() if (what := waits_for(s))
                },
                sits_out=self.sits_out(),
                doppelganger=self._doppelganger_text,
            )
        )

    def _refused(self) -> dict[int, str]:
        """Why jobs are not for this machine, its operator or its version."""
        found = {int(job): refusal(state.facts) for job, state in self._machines.items()}
        return {job: refused.reason for job, refused in found.items() if refused is not None}

    def _alerts(self) -> list[Condition]:
        """Of every job; one that cannot be looked at leaves the others alone."""
        found: list[Condition] = []
        for job, state in self._machines.items():
            try:
                found += alerts(state)
            except Exception as error:  # what one job brings about must not hide the others
                self._note_defect(job, "alerts", error)
            else:
                self._clear_defect(job, "alerts")
        return found

    def status(self) -> dict[str, Any]:
        """Where it stands, in JSON values: the blocking condition, the head, every job's duties.

        `taken` is the block up to which every machine has been given what is confirmed, and has
        begun what follows from it, or -1 while something waits for one; `sent` is the newest block
        that has a transaction of theirs.
        """
        context, found = self.effects.context, self.condition()
        views = context.follower.views
        owned = context.follower.ownership(context.me)
        return {
            "role": self.role,
            "account": context.me,
            "owner": owned.owner,
            "payee": owned.payee,
            "gateway": context.url,
            "orders": self._orders.to_plain(),
            "sits_out": self.sits_out(),
            "bonded": [int(job) for job in self._bonded()],
            "over": [int(job) for job, (known, _) in self._over.items() if views.get(job) is known],
            "blocking": found.to_plain() if found is not None else None,
            "head": {"block": self._head.number, "time": self._head.time} if self._head else None,
            "duties": {
                str(job): {duty: reason for duty, reason in state.reasons.items() if reason}
                for job, state in self._machines.items()
            },
            "owes": {str(job): owed_plain(state) for job, state in self._machines.items()},
            "misses": {str(job): found for job, found in self.misses.items() if found},
            "stands": {
                str(job): {"stand": stand.name.lower(), "text": text}
                for job, (stand, text) in self._stands().items()
            },
            "failing": [
                {"job": int(job), "command": key, "times": one.times, "text": one.text}
                for (job, key), one in sorted(self._failing.items())
            ],
            "under_way": sorted(f"{job}:{key}" for job, key in self._running),
            "taken": context.follower.confirmed if self._events.empty() else -1,
            "sent": max((state.sent_in for state in self._machines.values()), default=0),
        }

    def is_alive(self) -> bool:
        """Whether the machines' loop took a turn lately."""
        return time.monotonic() - self._stepped_at < STUCK_SECONDS

    async def _watch(self) -> None:
        section = self.effects.context.config.watchdog
        watchdog = Watchdog(section.after_s)
        notify_systemd("READY=1")
        while True:
            try:
                await self._look(section, watchdog)
            except Exception:  # who watches must not end what it watches
                log.exception("defect: the watchdog does not look")
            await asyncio.sleep(WATCH_SECONDS)

    async def _look(self, section: WatchdogSection, watchdog: Watchdog) -> None:
        now = time.monotonic()
        if any([self._mains.look(now), self._others.look(now)]):
            log.info("machine", sits_out=self._machine_is_not_ours())
            self._tell_orders()
        self._say_stands()
        found = self.condition()
        if self.is_alive():
            text = found.text if found is not None else "works"
            notify_systemd(f"WATCHDOG=1\nSTATUS={text}")
        event = watchdog.look(found, time.monotonic())
        if event:
            told = {"role": self.role, "account": self.effects.context.me}
            plain = found.to_plain() if found is not None else None
            log.warning("watchdog", told=event, condition=plain)
            await call(section, event, {**told, "condition": plain})

    # --- measures ---

    async def _measure(self) -> None:
        """Months of measures are written beside the duties; what is being written then ends too."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "atoll-metrics") as pool:
            while True:
                with self._metrics_may_fail():
                    if (news := self._news()) is not None:
                        await loop.run_in_executor(pool, self._tell, news)
                pause = max(METRICS_SECONDS, self._measures_read * SECONDS_BY_MEASURE)
                await asyncio.sleep(pause)

    def write_metrics(self) -> None:
        """Adds traffic since the last call to the journal, and writes the metrics file.

        Never raises.
        """
        with self._metrics_may_fail():
            if (news := self._news()) is not None:
                self._tell(news)

    @contextmanager
    def _metrics_may_fail(self) -> Iterator[None]:
        """A full disk, a file table without room or a path that is not ours costs the measures,
        and not the duties that they are about.
        """
        try:
            yield
        except Exception as error:
            if self._metrics_failed != repr(error):
                log.warning("metrics cannot be written", cause=str(error))
            self._metrics_failed = repr(error)
        else:
            self._metrics_failed = ""

    def _news(self) -> tuple[int, dict[str, object]] | None:
        """Adds traffic to the journal; what the file has to say anew, None where it says it."""
        context = self.effects.context
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
        about: dict[str, object] = {
            "account": context.me,
            "role": self.role,
            "gas": gas,
            "useless_answers": context.chain.provider.useless_answers,
            "excluded_logs": context.chain.events.excluded,
            "undecodable_logs": context.follower.undecodable,
            "rejected_events": context.follower.rejected,
            "damaged_rows": context.journal.damaged,
            "stuck_jobs": sorted(self._defects),
            "sent_away": dict(context.gateway.sent_away),
        }
        news = (context.journal.measured, about)
        # A service that waits for days would write the same file every other second.
        is_told = news == self._metrics_told and context.config.metrics_file.exists()
        return None if is_told else news

    def _tell(self, news: tuple[int, dict[str, object]]) -> None:
        """In any thread: uses files alone."""
        config = self.effects.context.config
        measures = read_measures(config.journal_file)
        self._measures_read = len(measures)
        write_metrics(measures, config.metrics_file, news[1])
        self._metrics_told = news
