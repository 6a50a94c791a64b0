"""Processes that start with everything imported: torch takes seconds, a fork milliseconds.

Rule of this file: a member is as much a process of its own as one started from a shell (group,
log file, worker), and ends when whoever started it ends, however that happens.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from atoll.service import gateway_process
from atoll.service.worker import fork_ahead
from atoll_devnet.processes import clock
from atoll_devnet.processes.links import enter_namespace
from atoll_devnet.processes.process import ProcessFailed, last_line

PRELOAD = "atoll_devnet.processes.preload"
FORKS = sys.platform == "linux"
"""The libraries of macOS do not survive a fork, which is why Python spawns there by default."""
STOP_SECONDS = 8.0


@cache
def warm_context() -> BaseContext:
    """Forks from a process that has imported `PRELOAD`; spawns cold ones where that is unsafe."""
    if not FORKS:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOAD])
    return context


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is not as on the rest of the machine.

    Attributes:
        netns: the network namespace; empty for the machine's own. Entering one takes root.
        clock_ahead: seconds that unix time is ahead of the right one.
    """

    netns: str = ""
    clock_ahead: float = 0.0

    def enter(self) -> None:
        """Moves this process there, and what it starts."""
        if self.netns:
            enter_namespace(self.netns)
        if self.clock_ahead:
            clock.shift(self.clock_ahead)


@dataclass(slots=True)
class MemberProcess:
    """One service in a process group of its own, its output in a file.

    Attributes:
        name: for messages.
        module: its `run` takes the arguments and returns the exit code.
        log_file: where standard output and standard error go; appended to.
        place: where it runs.
    """

    name: str
    module: str
    arguments: Sequence[str]
    log_file: Path
    place: Surroundings = Surroundings()
    _process: BaseProcess | None = field(default=None, repr=False)

    def start(self) -> None:
        """Starts the service; after `kill` or `stop`, starts it again with the same arguments."""
        if self.is_running:
            return
        arguments = (self.module, tuple(self.arguments), str(self.log_file), self.place)
        # A context's own Process, which the type stubs give to its subclasses only.
        process: BaseProcess = warm_context().Process(  # type: ignore[attr-defined]
            target=_become, args=arguments, name=self.name
        )
        process.start()
        self._process = process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_alive()

    @property
    def pid(self) -> int | None:
        """Of the service, which is its group's, too; None before it was started."""
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs or before it was started; negative for a signal's number."""
        return None if self._process is None else self._process.exitcode

    def check(self) -> None:
        """Raises ProcessFailed, with the end of its log, if it ended with an error by itself.

        A signal is somebody's who meant it, and who has drained or was told to stop ends with 0.
        """
        code = self.exit_code
        if code is not None and code > 0:
            raise ProcessFailed(
                f"{self.name} ended with code {code}: {last_line(self.log_file)}",
                next_step=f"read {self.log_file}",
            )

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL to what is left after `STOP_SECONDS`."""
        self.request_stop()
        if self._process is not None:
            self._process.join(STOP_SECONDS)
        self.kill()

    def request_stop(self) -> None:
        """SIGTERM without waiting: several processes stop at once, then `stop` collects each."""
        if self._process is not None and self.is_running:
            self._process.terminate()


def _become(module: str, arguments: tuple[str, ...], log_file: str, place: Surroundings) -> None:
    """Turns a process that was just forked into the service; does not return."""
    # Not a session: Linux shares the cores out by session first (sched_autogroup), so that each
    # member would have as much of them as all that shares its starter's.
    os.setpgid(0, 0)
    place.enter()
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    if FORKS:
        # While there is no thread yet, which the next line changes; one more for what is urgent,
        # and one for games.
        fork_ahead(3)
        gateway_process.fork_ahead()
    threading.Thread(target=_end_with_starter, daemon=True).start()
    code = 1
    try:
        code = import_module(module).run(list(arguments))
    except BaseException:  # SystemExit, too: `os._exit` below tells nobody why
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not through multiprocessing's own end, which waits for a worker that nobody took; that
        # one ends with this process.
        os._exit(code)


def _end_with_starter() -> None:
    starter = multiprocessing.parent_process()
    if starter is not None:
        wait([starter.sentinel])
        os.killpg(os.getpgrp(), signal.SIGKILL)
