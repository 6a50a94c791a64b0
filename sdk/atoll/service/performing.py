"""Commands out, results back in: effects run beside the machines, and come back as events.

Rule of this file: whatever an effect raises becomes an event, so that its duty can be decided
again; a defect of one must not stop the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from atoll.chain import response_checks
from atoll.errors import AtollError, NotFound
from atoll.protocol.types import JobId
from atoll.protocol.views import JobView
from atoll.service.background_tasks import end
from atoll.service.duties.material import DoFetchSpec
from atoll.service.effects import Effects
from atoll.service.entries import NotYet
from atoll.service.health_status import Failing
from atoll.service.machine import AnyCommand, Cancel, Event, Failed, Finished, Order
from atoll.service.machines import Machines

S = TypeVar("S")
log = structlog.get_logger("atoll.service")


class Performing(Generic[S]):
    """The effects that are under way, and those that keep failing.

    Attributes:
        running: by job and the command's key.
        failing: the same, as it is told to the operator.
        failed: how many effects did not take place, since the start.
    """

    def __init__(
        self,
        *,
        effects: Effects,
        machines: Machines[S],
        is_alone: asyncio.Event,
        spec_did_not_come: Callable[[JobId], None],
    ) -> None:
        self.running: dict[tuple[JobId, str], asyncio.Task[None]] = {}
        self.failing: dict[tuple[JobId, str], Failing] = {}
        self.failed = 0
        self._effects = effects
        self._machines = machines
        self._is_alone = is_alone
        self._spec_did_not_come = spec_did_not_come

    def start(self, job: JobId, view: JobView, command: Order) -> None:
        """Carries a command out beside the machines, or ends what carries it out."""
        if isinstance(command, Cancel):
            task = self.running.pop((job, command.key), None)
            if task is not None:
                log.info("cancels", job=job, command=command.key)
                task.cancel()
            return
        log.info("starts", job=job, command=command.key)
        task = asyncio.create_task(self._perform(job, view, command))
        self.running[(job, command.key)] = task

    async def stop(self) -> None:
        """Ends all, and waits for that."""
        tasks = list(self.running.values())
        self.running.clear()
        await end(tasks)

    def failing_of(self, wanted: set[tuple[JobId, str]]) -> dict[tuple[JobId, str], Failing]:
        """What keeps failing of what is still wanted; the rest is forgotten."""
        self.failing = {where: kept for where, kept in self.failing.items() if where in wanted}
        return self.failing

    async def _perform(self, job: JobId, view: JobView, command: AnyCommand) -> None:
        event: Event = Failed(command.key, "it ended without a word")
        try:
            await self._is_alone.wait()
            result = await self._effects.run(view, command)
            event = Finished(command.key, result.entry, result.block)
            self.failing.pop((job, command.key), None)
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
            if self.running.get((job, command.key)) is asyncio.current_task():
                del self.running[(job, command.key)]
                self._machines.put(job, event)

    def _note_failure(self, job: JobId, command: AnyCommand, error: Exception) -> None:
        before = self.failing.get((job, command.key))
        self.failed += 1
        if isinstance(command, DoFetchSpec):
            self._spec_did_not_come(job)
        self.failing[(job, command.key)] = Failing(
            kind=type(error).__name__,
            text=response_checks.text(str(error)),
            next_step=getattr(error, "next_step", None) or "",
            times=before.times + 1 if before else 1,
        )
