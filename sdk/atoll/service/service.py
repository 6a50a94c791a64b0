"""The loop of a service: events in, machine step, commands out, results back in.

Rule of this file: it puts the parts together, and nothing here decides anything. One task gives the
machines events (`machines.py`); effects run beside it and come back as events (`performing.py`).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog

from atoll.protocol.types import JobId
from atoll.service.accepted_files import longest
from atoll.service.alerts import missed_duties
from atoll.service.alone import AloneCheck
from atoll.service.asked_files import asked_files
from atoll.service.checkpoint_writer import CheckpointWriter
from atoll.service.config import WatchdogSection
from atoll.service.draining import Drained, Draining, Stopped
from atoll.service.drand_posts import DrandPosts
from atoll.service.effects import Effects
from atoll.service.feeding import Feeding
from atoll.service.health_status import HealthStatus
from atoll.service.machine import Head, Step
from atoll.service.machines import Machines
from atoll.service.measuring import Measuring
from atoll.service.orders import Orders
from atoll.service.participation import Participation
from atoll.service.performing import Performing
from atoll.service.reporting import Reporting
from atoll.service.stand_notes import StandNotes
from atoll.service.watchdog import Watchdog, call, notify_systemd

S = TypeVar("S")
WATCH_SECONDS = 5.0
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
VERIFIER = "verifier"
PLAYER = "player"
"""Runs in a folder of its own, or in a node's, and plays for it while it is down."""
log = structlog.get_logger("atoll.service")


@dataclass
class Service(Generic[S]):
    """Runs one role's machines, one a job, until cancelled.

    Attributes:
        role: `provider` or `verifier`.
        setup: the machine's constants.
        step: the machine.
        effects: carries out its commands.
        machines: their states and what waits for them.
        participation: what keeps it out, of everything or of a job.
        alone: holds effects back until nobody else acts with the key.
        performing: the effects under way.
        feeding: makes events of what the chain says.
        draining: watches for the end.
        stand_notes: what is said to jobs that look for members.
        checkpoints: of the chain's logs, for whoever joins.
        measuring: writes measures.
        reporting: what an operator asks.
    """

    role: str
    setup: S
    step: Step[S]
    effects: Effects
    machines: Machines[S] = field(init=False)
    participation: Participation[S] = field(init=False)
    alone: AloneCheck = field(init=False, default_factory=AloneCheck)
    performing: Performing[S] = field(init=False)
    feeding: Feeding[S] = field(init=False)
    draining: Draining[S] = field(init=False)
    stand_notes: StandNotes[S] = field(init=False)
    checkpoints: CheckpointWriter = field(default_factory=CheckpointWriter)
    measuring: Measuring[S] = field(init=False)
    reporting: Reporting[S] = field(init=False)

    def __post_init__(self) -> None:
        effects, context = self.effects, self.effects.context
        self.machines = machines = Machines(self.step)
        self.participation = participation = Participation(self.role, effects, machines)
        self.performing = Performing(
            effects=effects,
            machines=machines,
            is_alone=self.alone.is_alone,
            spec_did_not_come=participation.choice.did_not_come,
        )
        self.feeding = Feeding(
            setup=self.setup,
            context=context,
            machines=machines,
            participation=participation,
            performing=self.performing,
            alone=self.alone,
        )
        self.draining = Draining(effects, machines, participation)
        self.stand_notes = StandNotes(self.role, machines, participation.choice)
        self.measuring = Measuring(self.role, context, machines)
        self.reporting = Reporting(
            role=self.role,
            context=context,
            machines=machines,
            participation=participation,
            performing=self.performing,
            alone=self.alone,
            feeding=self.feeding,
            draining=self.draining,
            stand_notes=self.stand_notes,
        )

    async def run(self) -> None:
        """Works until cancelled. Raises what a broken queue or index raises."""
        context = self.effects.context
        self.participation.begin()
        self.stand_notes.begin(context)
        self.alone.begin(context)
        log.info("started", role=self.role, account=context.me, gateway=context.url)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.draining.until_drained())
                group.create_task(self.draining.until_stopped())
                group.create_task(context.queue.run())
                group.create_task(self._follow())
                group.create_task(
                    self.machines.run(self.performing.start, self.participation.choose_by_facts)
                )
                group.create_task(self.measuring.run())
                group.create_task(DrandPosts.of(context, self.alone.is_alone).run())
                group.create_task(self._watch())
        except* Drained:
            log.info("drained", role=self.role)
        except* Stopped:
            log.info("was told to stop", role=self.role)
        finally:
            await self.performing.stop()
            self.write_metrics()
            log.info("stopped", role=self.role)

    @property
    def head(self) -> Head | None:
        """The newest block seen."""
        return self.machines.head

    @property
    def jobs(self) -> int:
        """How many jobs it follows."""
        return len(self.machines.states)

    @property
    def under_way(self) -> int:
        """How many effects are under way."""
        return len(self.performing.running)

    @property
    def failed(self) -> int:
        """How many effects did not take place, since the start."""
        return self.performing.failed

    @property
    def stuck(self) -> int:
        """How many jobs' machines do not step."""
        return len(self.machines.defects)

    @property
    def missed_duties(self) -> dict[JobId, list[dict[str, Any]]]:
        """What the account was penalised for, by job."""
        return {job: missed_duties(state) for job, state in self.machines.states.items()}

    @property
    def orders(self) -> Orders:
        """What its operator has ordered."""
        return self.participation.orders

    def order(self, orders: Orders) -> None:
        """Obeys from now on, also after a restart."""
        self.participation.order(orders)  # first, since it may not get onto a full disk
        self.draining.has_to_drain = orders.drains

    def stop(self) -> None:
        """Ends once what is under way is let go of; a restart takes up where this one was."""
        self.draining.stop()

    def sits_out(self) -> str:
        """Why it takes no part in anything now; empty where it does."""
        return self.participation.sits_out()

    def health_status(self) -> HealthStatus | None:
        """What keeps it from its work now."""
        return self.reporting.health_status()

    def status(self) -> dict[str, Any]:
        """Where it stands, in JSON values; `Reporting.status` says which."""
        return self.reporting.status()

    def is_alive(self) -> bool:
        """Whether the machines' loop took a turn lately."""
        return time.monotonic() - self.machines.stepped_at < STUCK_SECONDS

    def write_metrics(self) -> None:
        """Adds traffic since the last call to the journal, and writes the metrics file.

        Never raises.
        """
        self.measuring.write()

    async def _follow(self) -> None:
        # It looks; `eth_subscribe newHeads` does not wake it. A look that finds no block takes a
        # quarter of a millisecond of a core, the node's share with it: 1.4 s in all of a demo with
        # ten members. And a subscription that went silent looks like a chain that stands still.
        context = self.effects.context
        while True:
            began = time.monotonic()
            self.feeding.fold(await context.follower.poll_patiently())
            pause = min(PAUSE_BY_LOOK * (time.monotonic() - began), LONGEST_PAUSE)
            await asyncio.sleep(max(context.config.poll_interval_s, pause))

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

    def _ask_for_files(self) -> None:
        """Has a verifier's gateway take what a job begins with and nobody serves."""
        if self.role != VERIFIER:
            return
        states = [state for state in self.machines.states.values() if state.holds]
        asked = [(state.view.submitter, files) for state in states if (files := asked_files(state))]
        self.effects.context.ask_for(
            longest(files for _, files in asked),
            {submitter for submitter, _ in asked},
        )

    async def _look(self, section: WatchdogSection, watchdog: Watchdog) -> None:
        if self.participation.look_at_machine(time.monotonic()):
            log.info("machine", sits_out=self.participation.why_machine_is_not_ours)
            self.participation.tell_machines()
        self.stand_notes.say(self.effects.context)
        self._ask_for_files()
        await self.checkpoints.look(self.effects.context)
        health_status = self.health_status()
        if self.is_alive():
            text = health_status.text if health_status is not None else "works"
            notify_systemd(f"WATCHDOG=1\nSTATUS={text}")
        event = watchdog.look(health_status, time.monotonic())
        if event:
            plain = health_status.to_json_value() if health_status is not None else None
            log.warning("watchdog", told=event, health_status=plain)
            whose = {"role": self.role, "account": self.effects.context.me}
            await call(section, event, {**whose, "health_status": plain})
