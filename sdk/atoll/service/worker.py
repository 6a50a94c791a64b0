"""The worker process: where torch lives, so that an event loop never waits for a training step.

Rule of this file: the worker never outlives the service (a thread waits for the parent's death and
ends the process), and a cancelled task costs the process, not the service.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from typing import TypeVar

import structlog

from atoll.errors import AtollError
from atoll.numerics.kernels.devices import CPU_NAME, Devices, as_text, kind_here
from atoll.numerics.kernels.gpu import is_gpu_failure
from atoll.numerics.kernels.variables import DEVICES_VARIABLE
from atoll.service.elsewhere import handed_over
from atoll.service.log_files import level_here, lines_to, log_from
from atoll.service.priority_lock import PriorityLock
from atoll.service.task import TaskCall
from atoll.train.memory_limit import MEMORY_VARIABLE
from atoll.train.torchrun import LEADS_VARIABLE

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
R = TypeVar("R")
GIVES_WAY = 4
"""How often at most what comes last is begun."""
_log = structlog.get_logger("atoll.worker")
_ahead: list[ProcessPoolExecutor] = []
"""Started by `fork_ahead`, and not yet taken."""


class WorkerDied(AtollError):
    """The worker process ended in the middle of a task: killed, out of memory, or cancelled."""


class Worker:
    """One spawned process that runs tasks, one after another.

    Args:
        threads: threads of numerical libraries. Exact bits do not depend on it; native ones are
            those of the number that the manifest's software class names, which is 1.
        niceness: added to the process's niceness, so that training does not starve the service.
        context: how the process is started; None spawns it.
        devices: of the ranks that train and replay, of which this process is the first; None
            leaves what ATOLL_DEVICES says.
        leads: whether torchrun started the other ranks, and this process is to lead them.
    """

    def __init__(
        self,
        threads: int = 1,
        niceness: int = 0,
        context: BaseContext | None = None,
        devices: Devices | None = None,
        most_memory: int | None = None,
        *,
        leads: bool = False,
    ) -> None:
        self._initial = _Initial(threads, niceness, devices, most_memory, leads)
        self._context = context or multiprocessing.get_context("spawn")
        self._pool: ProcessPoolExecutor | None = None
        self._lock = PriorityLock()
        self._gives_way = False  # whether what runs does

    async def run(
        self,
        call: TaskCall[R],
        *,
        is_first: bool = False,
        due: int = 0,
        patience_s: float | None = None,
    ) -> R:
        """Calls a task in the worker and returns its result.

        Arguments and result must be plain picklable values; large data goes through the store.
        When the awaiting task is cancelled while the function runs, the process is ended.

        Args:
            is_first: whether it goes before what waits, though not before what runs.
            due: unix seconds of the chain by which it is owed: what waits goes by them; 0 for what
                has no such time, and is not waited with.
            patience_s: how long it waits for its turn; None for as long as it takes.

        Raises:
            TimeoutError: its turn did not come.
            WorkerDied: the process ended; the next call starts a new one.
            Exception: whatever the function raised.
        """
        if self._gives_way:
            self._gives_way = False
            self.kill()
        async with self._lock.taken(_FIRST if is_first else due, patience_s=patience_s):
            return await self._called(call)

    async def run_last(self, call: TaskCall[R]) -> R:
        """As `run`, behind everything else; what comes meanwhile ends it, and it begins again.

        That happens a few times only, or what is always busy would never come to it.
        """
        left = GIVES_WAY
        while True:
            left -= 1
            async with self._lock.taken(_LAST):
                self._gives_way = left > 0
                try:
                    return await self._called(call)
                except WorkerDied:
                    if self._gives_way or not left:  # it died by itself
                        raise
                finally:
                    self._gives_way = False

    async def _called(self, call: TaskCall[R]) -> R:
        try:
            return await asyncio.wrap_future(self._submit(call))
        except BrokenProcessPool as error:
            self.kill()
            raise WorkerDied(f"the worker process ended while it ran {call.task.kind}") from error
        except asyncio.CancelledError:
            self.kill()
            raise

    def kill(self) -> None:
        """Ends the process at once; a running call raises WorkerDied."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        for process in list((pool._processes or {}).values()):  # Python 3.14 has kill_workers
            process.kill()
        # Its processes are dead, so this takes no time; without it the semaphores of a pool stay
        # where whoever calls this ends at once.
        pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, call: TaskCall[R]) -> Future[R]:
        """Hands a call over, to a new process where the old one died with nothing to do.

        Raises BrokenProcessPool where that one died at once.
        """
        try:
            pool = self._pool = self._pool or self._start()
            return pool.submit(_call, call)
        except BrokenProcessPool:
            self.kill()
            pool = self._pool = self._start()
            return pool.submit(_call, call)

    def _start(self) -> ProcessPoolExecutor:
        pool = _ahead.pop() if _ahead else _pool(self._context)
        pool.submit(_tune, self._initial, level_here())
        return pool


_FIRST, _LAST = -1, 1 << 64
"""Before and behind whatever is due at a time."""


def fork_ahead(count: int = 1) -> None:
    """Starts the processes of the next so many `Worker`s now, with everything that is imported.

    Only for a process that has no thread yet: what other threads hold, a fork would hold for ever.
    """
    pools = [_pool(multiprocessing.get_context("fork")) for _ in range(count)]
    for pool in pools:
        # What its first task does before it starts a thread, which the next pool must not see.
        pool._launch_processes()  # type: ignore[attr-defined]  # not in the type stubs
    _ahead.extend(pools)


def _call(call: TaskCall[R]) -> R:
    other = handed_over(call)
    return call_here(call) if other is None else other()


def call_here(call: TaskCall[R]) -> R:
    """Does work by the code of this release, on the CPU where the GPU fails."""
    try:
        return call()
    except RuntimeError as error:
        if kind_here() == "cpu" or not is_gpu_failure(error):
            raise
        next_step = "give the GPU less (smaller jobs, jobs_at_once); if it stays, start anew"
        failure = {"function": call.task.kind, "cause": str(error), "next_step": next_step}
        _log.error("the GPU failed: this is done on the CPU", **failure)
    finally:
        _give_back_gpu_memory()
    # This call alone: else anybody's job that is too large for a GPU would take it from all others.
    kept = {name: os.environ.get(name, "") for name in (DEVICES_VARIABLE, LEADS_VARIABLE)}
    os.environ |= {DEVICES_VARIABLE: CPU_NAME, LEADS_VARIABLE: ""}
    try:
        return call()
    finally:
        os.environ |= kept


def _give_back_gpu_memory() -> None:
    """What torch keeps for its next tensors, which other workers of the service cannot have."""
    torch, graphs = (sys.modules.get(name) for name in ("torch", "atoll.numerics.kernels.graphs"))
    if graphs is not None:
        graphs.Graphs.let_go()  # of what is kept for another call, as a game's own run is
    if torch is not None and torch.cuda.is_initialized():
        with suppress(RuntimeError):  # of a GPU that failed
            torch.cuda.empty_cache()


def _pool(context: BaseContext) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(max_workers=1, mp_context=context, initializer=_attach)


def _attach() -> None:
    if not structlog.is_configured():
        # A spawned one logs to standard output else, where commands print what programs read.
        structlog.configure(logger_factory=lines_to(sys.stderr))
    # Ctrl-C reaches the whole process group; the service decides when the worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        watcher = threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True)
        watcher.start()


@dataclass(frozen=True, slots=True)
class _Initial:
    """What `Worker` is given for its process."""

    threads: int
    niceness: int
    devices: Devices | None
    most_memory: int | None
    leads: bool


def _tune(initial: _Initial, level: int) -> None:
    # The starter has one by now: as it forked a process ahead, it had none yet.
    log_from(level)
    # What a process loaded before it was forked keeps the threads that it was loaded with.
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(initial.threads)
    for variable, value in (
        (DEVICES_VARIABLE, None if initial.devices is None else as_text(initial.devices)),
        (MEMORY_VARIABLE, initial.most_memory),
        (LEADS_VARIABLE, "1" if initial.leads else ""),
    ):
        if value is not None:
            os.environ[variable] = str(value)
    os.nice(initial.niceness)


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
