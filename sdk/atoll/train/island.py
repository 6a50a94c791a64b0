"""Ranks: processes that hold a seat's state together and compute its steps, with the bits of one.

The first rank is the process that trains or replays. Each rank has some rows of every tensor of the
state, and of the gradients' sums; `sharded` has the first one's view of them, `rank_steps` what all
of them do. So a model fits that no single device holds.

The others are started by the first, on its own machine, or by torchrun, on several. Where one ends,
or is silent for too long, what it held is gone: the first lets all others go, and begins again from
the last checkpoint (`again_where_ranks_end`), with new ones, a few times, and then alone. What
torchrun started it ends and starts anew itself, the service too, which does the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol, Self, TypeVar

import structlog
import torch
from torch import Tensor

from atoll.numerics.frozen_base import Base
from atoll.numerics.kernels.interface import Frozen
from atoll.numerics.ops import operations
from atoll.numerics.shards import Shape
from atoll.numerics.state import Holds, in_this_process
from atoll.protocol.method_spec import InnerSpec
from atoll.train.devices_here import devices_here, gpus_of_ranks
from atoll.train.follower import Meeting, follow
from atoll.train.rank_wire import FIRST, SILENCE, Group, backend_of, join, leave
from atoll.train.sharded import Leader, Placement, RankEnded
from atoll.train.torchrun import Torchrun

START_SECONDS: Final = 300
_ANSWER: Final = timedelta(minutes=2)
"""As long as ranks of other hosts may take to answer: torchrun may just be starting them anew."""
MOST_FAILURES: Final = 4
"""Of groups, in a process's life: what ends them again and again ends them for good."""
_log = structlog.get_logger("atoll.island")


T = TypeVar("T")


class _Followers(Protocol):
    """The other ranks."""

    @property
    def processes(self) -> list[int]:
        """Those that this process started."""

    def meet(self) -> None:
        """Waits until all are there. Raises RuntimeError where they do not come."""

    def end(self) -> None:
        """Lets them go."""


class Island:
    """This process as the first of so many ranks, whom it meets when there is something to hold.

    A process is of one island at a time: torch has one group of all ranks.

    Args:
        here: what torchrun says of this process, where it started the others; None to start them.
        gpus: what CUDA calls the GPU of each rank of this host, which can be the same one; none
            where all of them compute on the CPU.
        device: where the first rank's rows lie; None for where operations run.
    """

    def __init__(
        self,
        ranks: int,
        silence: timedelta = SILENCE,
        here: Torchrun | None = None,
        device: torch.device | None = None,
        gpus: tuple[str, ...] = (),
    ) -> None:
        self._ranks, self._silence, self._here, self._device = ranks, silence, here, device
        self._gpus = gpus
        self._followers: _Followers | None = None
        self._leader: Leader | None = None
        self._failures = 0

    @property
    def size(self) -> int:
        """Ranks that hold a state together."""
        return 1 if self.is_alone else self._ranks

    @property
    def is_alone(self) -> bool:
        """Whether this process does without others, as there are none, or they ended too often."""
        return self._ranks == 1 or self._failures >= MOST_FAILURES

    def holds(self, shapes: Mapping[str, Shape], inner: InnerSpec, *, apart: str = "") -> Holds:
        """What the groups of a state are put into: with all ranks, or here where there is but one.

        Args:
            shapes: of the parameters.
            inner: how they are stepped.
            apart: a folder for moments that lie in files, or beside a GPU; empty for memory.

        Raises:
            RankEnded: the ranks do not come; `again_where_ranks_end` tries once more.
        """
        if self.is_alone:
            return in_this_process
        return Placement(self._met(), shapes, inner, apart)

    def base_in_rows(
        self,
        key: Hashable,
        pieces: Callable[[], Iterator[tuple[str, Frozen | Tensor]]],
        scale: float,
    ) -> Base:
        """See `Leader.base_in_rows`. Raises RankEnded as `holds`, and ValueError where this process
        does without others.
        """
        if self.is_alone:
            raise ValueError("one rank has a base whole")
        return self._met().base_in_rows(key, pieces, scale)

    def base_bytes(self) -> list[int]:
        """Of a base in rows, that each rank holds."""
        return [] if self._leader is None else self._leader.base_bytes()

    def most_bytes(self) -> list[int]:
        """Of the state and the sums, that each rank has held at once, since it was met."""
        return [] if self._leader is None else self._leader.most_bytes()

    @property
    def processes(self) -> list[int]:
        """The followers' ids, of those that this process started."""
        return self._followers.processes if self._followers else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Lets the followers go, with what they hold; another state would meet them anew."""
        followers, self._followers = self._followers, None
        leader, self._leader = self._leader, None
        if leader is not None:
            leader.end()
        if followers is not None:
            followers.end()

    def _met(self) -> Leader:
        leader = self._leader
        # Who follows takes a silence like this for the end, as it has to: nobody else tells it.
        patience = self._silence.total_seconds() / 2
        if leader is not None and not leader.holds_something:
            self.end() if time.monotonic() - leader.heard > patience else None
        if self._leader is None:
            try:
                self._meet()
            except (RuntimeError, OSError, EOFError) as error:
                self._failed(str(error))
                raise RankEnded(f"a rank did not come: {error}") from error
            device = operations().device if self._device is None else self._device
            self._leader = Leader(device, self._silence, self._failed)
        return self._leader

    def _meet(self) -> None:
        here, silence = self._here, self._silence
        followers: _Followers = (
            _Started(self._ranks, silence, self._gpus)
            if here is None
            else _Hosts(here, silence, self._gpus)
        )
        self._followers = followers
        followers.meet()
        _log.info("all ranks have met", ranks=self._ranks)

    def _failed(self, cause: str) -> None:
        self.end()
        self._failures += 1
        _log.error(
            "a rank ended, and what it held is gone",
            alone_from_now_on=self.is_alone,
            cause=cause,
            next_step="look for why it ended, as memory; more ranks need less of it, each",
        )


def again_where_ranks_end(work: Callable[[], T]) -> T:
    """Does some work, and again where a rank ended in it, from what it kept; at last alone."""
    while True:
        try:
            return work()
        except RankEnded as error:
            _log.warning("begins again from the last checkpoint", cause=str(error))


class _Started:
    """Processes that this one starts."""

    def __init__(self, ranks: int, silence: timedelta, gpus: tuple[str, ...]) -> None:
        self._ranks, self._silence, self._gpus = ranks, silence, gpus
        self._all: list[tuple[BaseProcess, Connection]] = []

    @property
    def processes(self) -> list[int]:
        return [process.pid or 0 for process, _ in self._all]

    def meet(self) -> None:
        context, backend = get_context("spawn"), backend_of(self._gpus)
        with TemporaryDirectory(prefix="atoll-ranks-") as folder:
            file = str(Path(folder) / "meeting")
            for rank in range(FIRST + 1, self._ranks):
                here, there = context.Pipe()
                group = Group(rank, self._ranks, self._silence, backend)
                arguments = (there, group, file, self._gpus[rank] if self._gpus else None)
                process: BaseProcess = context.Process(target=follow, args=arguments, daemon=True)
                process.start()
                there.close()
                self._all.append((process, here))
            self._await_all()
            join(Group(FIRST, self._ranks, self._silence, backend), file=file)
            self._await_all()  # who has yet to meet others reads the file

    def end(self) -> None:
        for process, connection in self._all:
            process.kill()
            process.join()
            connection.close()
        leave()

    def _await_all(self) -> None:
        for process, connection in self._all:
            there = wait([connection, process.sentinel], START_SECONDS)
            if connection not in there:
                raise RuntimeError(f"rank with process {process.pid} is not there")
            connection.recv_bytes()


class _Hosts:
    """Processes that torchrun started beside this one's service."""

    def __init__(self, here: Torchrun, silence: timedelta, gpus: tuple[str, ...]) -> None:
        self._here, self._silence, self._gpus = here, silence, gpus

    @property
    def processes(self) -> list[int]:
        return []

    def meet(self) -> None:
        backend = backend_of(self._gpus)
        meeting = Meeting.called(self._here, backend, _ANSWER)
        join(Group(FIRST, self._here.size, self._silence, backend), store=meeting.store)

    def end(self) -> None:
        leave()


def ranks_on(device: torch.device) -> int:
    """How many ranks share the memory of one such device: each has a GPU to itself."""
    if device.type != "cpu":
        return 1
    here = Torchrun.led()
    return len(devices_here()) if here is None else here.host_size


def island_here() -> Island:
    """This process with its ranks, one for each of its devices; by itself where there is one.

    Raises ConfigError where this host has other devices than are named.
    """
    here = Torchrun.led()
    ranks = len(devices_here()) if here is None else here.size
    key = ranks, gpus_of_ranks(here)
    for other in _islands.keys() - {key}:
        _islands[other].end()
    if key not in _islands:
        _islands[key] = Island(ranks, here=here, gpus=key[1])
    return _islands[key]


_islands: dict[tuple[int, tuple[str, ...]], Island] = {}
"""By ranks and their GPUs, of which there are others where the CPU does what a GPU refused."""
