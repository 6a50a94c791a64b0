"""Ranks that follow, as processes: one ends with the process that started it, or with torchrun."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from secrets import token_hex
from typing import Final

import structlog
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # theirs

from atoll.nested import loads
from atoll.numerics.kernels.devices import CPU_NAME, GPUS_VARIABLE
from atoll.numerics.kernels.variables import DEVICES_VARIABLE
from atoll.numerics.ops import operations
from atoll.train.devices_here import gpus_of_ranks
from atoll.train.rank_steps import follow_group
from atoll.train.rank_wire import FIRST, SILENCE, Group, join, leave
from atoll.train.torchrun import Torchrun

READY: Final = b"ready"
_MEETINGS: Final = "meetings"
"""How many leaders have called, in the store of several hosts."""
_OVER: Final = "over"
"""How many services have ended there."""
_LOOK_SECONDS: Final = 0.1
_REACH: Final = timedelta(minutes=5)
"""As long as torchrun's agent may take to answer."""
_log = structlog.get_logger("atoll.island")


def follow(connection: Connection, group: Group, file: str, gpu: str | None) -> None:
    """Follows the process that started this one, until the group is broken.

    Args:
        connection: gets `READY` when the others can be met, and again when they have been.
        file: where they meet.
        gpu: what CUDA calls the one that this rank computes on; None for the CPU.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _log_apart()
    _compute_on(gpu)
    operations()
    connection.send_bytes(READY)
    join(group, file=file)
    connection.send_bytes(READY)
    try:
        follow_group()
    except RuntimeError as error:
        _log.warning("a rank that follows ends", cause=str(error))


def follow_hosts(here: Torchrun, silence: timedelta = SILENCE) -> None:
    """Follows whatever process leads the ranks that torchrun started, one after another, until the
    first rank's service is over.

    Raises:
        ConfigError: this host has other devices than are named, or another number than ranks.
    """
    _log_apart()
    gpus = gpus_of_ranks(here)
    _compute_on(gpus[here.host_rank] if gpus else None)
    operations()
    store, met, name = store_of(here), 0, token_hex(8)
    # torchrun's SIGTERM has a service end as an operator's does: what ended before is another one.
    over = store.add(_OVER, 0)

    def is_over() -> bool:
        return store.add(_OVER, 0) != over

    while not is_over():
        newest = store.add(_MEETINGS, 0)
        if newest == met:
            time.sleep(_LOOK_SECONDS)
            continue
        met = newest
        try:
            backend = Meeting(store, met).answered(here.rank, name, is_over)
            if backend is not None:
                group = Group(here.rank, here.size, silence, backend)
                join(group, store=Meeting(store, met).store)
                follow_group()
        except RuntimeError as error:
            _log.warning("the ranks are no group any more", rank=here.rank, cause=str(error))
        finally:
            leave()


@dataclass(frozen=True, slots=True)
class Meeting:
    """A call of a process that leads, which the ranks of all hosts answer.

    torchrun starts ranks anew, and the store stays: a call of a leader that is gone says which
    processes answered it, and no later one is among them.

    Attributes:
        every: of all hosts.
    """

    every: Store
    number: int

    @classmethod
    def called(cls, here: Torchrun, backend: str, patience: timedelta) -> Meeting:
        """A new one that all have answered. Raises RuntimeError where some do not."""
        store = store_of(here)
        meeting = cls(store, store.add(_MEETINGS, 1))
        answers = [meeting._answer(rank) for rank in range(FIRST + 1, here.size)]
        store.wait(answers, patience)
        names = [store.get(answer).decode() for answer in answers]
        store.set(meeting._begun, json.dumps([backend, *names]))
        return meeting

    def answered(self, rank: int, name: str, is_over: Callable[[], bool]) -> str | None:
        """The backend of the group, once it begins; None where it does so without this process."""
        self.every.set(self._answer(rank), name)
        while not self.every.check([self._begun]):
            if is_over() or self.every.add(_MEETINGS, 0) != self.number:
                return None
            time.sleep(_LOOK_SECONDS)
        backend, *names = loads(self.every.get(self._begun))
        return str(backend) if names[rank - FIRST - 1] == name else None

    @property
    def store(self) -> Store:
        """Where the group's processes find each other."""
        return PrefixStore(f"{_MEETINGS}/{self.number}/group", self.every)

    @property
    def _begun(self) -> str:
        return f"{_MEETINGS}/{self.number}/begun"

    def _answer(self, rank: int) -> str:
        return f"{_MEETINGS}/{self.number}/answer/{rank}"


def store_of(here: Torchrun) -> Store:
    """Where the ranks that torchrun started find each other."""
    store = TCPStore(here.address, here.port, is_master=False, timeout=_REACH)
    return PrefixStore("atoll", store)


def end_hosts(here: Torchrun) -> None:
    """Lets all ranks that follow end, as the service has, which torchrun is not to start again."""
    store_of(here).add(_OVER, 1)


def _compute_on(gpu: str | None) -> None:
    """Has this process compute on a GPU, or on the CPU, and on nothing else."""
    if gpu is not None:
        os.environ[GPUS_VARIABLE] = gpu
    os.environ[DEVICES_VARIABLE] = CPU_NAME if gpu is None else "cuda:0"


def _log_apart() -> None:
    if not structlog.is_configured():
        # Commands print what programs read on standard output.
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
