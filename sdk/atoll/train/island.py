"""Ranks: processes of one machine that compute a batch's gradients together, with the bits of one.

The first rank is the process that trains or replays. For each step it gives the others its
parameters and the batch; all of them compute gradients of whole runs of micro-batches, add them up
as `rank_sums` says, and the first goes on with the sums. Nothing else is shared: state, optimiser
and digests are the first rank's, and so is the second run that finds a machine's faults.

Where a rank ends, or is silent for too long, the first lets all others go and computes the step
alone: that costs time and no bit. The next step starts them anew, a few times.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

import structlog
import torch
import torch.distributed as dist

from atoll.numerics.frozen_base import Base
from atoll.numerics.gradients import BatchGradients, Gradients, StepInput, batch_gradients
from atoll.numerics.kernels.variables import DEVICE_VARIABLE, RANKS_VARIABLE
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import Tensors
from atoll.train.follower import GPUS_VARIABLE, FollowedBase, FollowedStep, Group, follow, join
from atoll.train.rank_sums import (
    FIRST,
    losses_by_micro_batch,
    received_sums,
    send_params,
    share_of_sums,
)

SILENCE: Final = timedelta(minutes=10)
"""As long as a rank may take for its part of a step."""
START_SECONDS: Final = 300
MOST_STARTS: Final = 4
"""Of the followers, in a process's life: what ends them again and again ends them for good."""
_log = structlog.get_logger("atoll.island")


class _RankGone(RuntimeError):
    """A follower ended, or did not come."""


class Island:
    """This process as the first of so many ranks; the others are started at the first step.

    A process is of one island at a time: torch has one group of all ranks.
    """

    def __init__(self, ranks: int, silence: timedelta = SILENCE) -> None:
        self._ranks, self._silence = ranks, silence
        self._followers: _Followers | None = None
        self._starts = 0

    def gradients(self, params: Tensors, given: StepInput, recipe: Recipe) -> BatchGradients:
        """As `batch_gradients`, bit for bit."""
        is_shared = self._ranks > 1 and len(given.batch) > 1
        if is_shared and (self._followers or self._starts < MOST_STARTS):
            try:
                return self._started().gradients(params, given, recipe)
            except (RuntimeError, OSError, EOFError) as error:
                self.end()
                _log.error(
                    "a rank ended: this process computes the step alone",
                    step=given.global_step,
                    cause=str(error),
                    next_step="look for why it ended, as memory; fewer ranks need less of it",
                )
        return batch_gradients(params, given, recipe)

    @property
    def processes(self) -> list[int]:
        """The followers' ids."""
        return self._followers.processes if self._followers else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Ends the followers; another step would start them anew."""
        followers, self._followers = self._followers, None
        if followers is not None:
            followers.end()

    def _started(self) -> _Followers:
        if self._followers is None:
            self._starts += 1
            self._followers = _Followers(self._ranks, self._silence)
            self._followers.meet()
        return self._followers


class _Followers:
    """Processes that follow this one."""

    def __init__(self, ranks: int, silence: timedelta) -> None:
        self._ranks, self._silence = ranks, silence
        self._all: list[tuple[BaseProcess, Connection]] = []
        self._base: Base | None = None

    @property
    def processes(self) -> list[int]:
        return [process.pid or 0 for process, _ in self._all]

    def meet(self) -> None:
        """Starts them, and waits until all are there."""
        context, silence = get_context("spawn"), self._silence
        with TemporaryDirectory(prefix="atoll-ranks-") as folder:
            meeting = str(Path(folder) / "meeting")
            for rank in range(FIRST + 1, self._ranks):
                here, there = context.Pipe()
                group = Group(rank, self._ranks, meeting, silence)
                arguments = (there, group, _gpu_of(rank))
                process: BaseProcess = context.Process(target=follow, args=arguments, daemon=True)
                process.start()
                there.close()
                self._all.append((process, here))
            self._await_all()
            join(Group(FIRST, self._ranks, meeting, silence))
            self._await_all()  # who has yet to meet others reads the file

    def gradients(self, params: Tensors, given: StepInput, recipe: Recipe) -> BatchGradients:
        if recipe.base is not self._base:
            self._send(None if recipe.base is None else FollowedBase.of(recipe.base))
            self._base = recipe.base
        shapes = {name: tuple(tensor.shape) for name, tensor in params.items()}
        self._send(FollowedStep.of(given, recipe, shapes))
        send_params(params)
        mine, parts = share_of_sums(params, given, recipe)
        gradients = received_sums(params, parts)
        seconds = self._silence.total_seconds()
        by_rank = [mine, *(self._received(*each, seconds) for each in self._all)]
        losses = losses_by_micro_batch(len(given.batch), recipe.inner, by_rank)
        return BatchGradients(losses, gradients)

    def end(self) -> None:
        for process, connection in self._all:
            process.kill()
            process.join()
            connection.close()
        if dist.is_initialized():
            with suppress(RuntimeError):  # of a group that is broken
                dist.destroy_process_group()

    def _await_all(self) -> None:
        for process, connection in self._all:
            self._received(process, connection, START_SECONDS)

    def _send(self, what: FollowedBase | FollowedStep | None) -> None:
        for _, connection in self._all:
            connection.send(what)

    @staticmethod
    def _received(process: BaseProcess, connection: Connection, seconds: float) -> list[float]:
        there = wait([connection, process.sentinel], seconds)
        if connection not in there:
            raise _RankGone(f"rank with process {process.pid} is not there")
        losses: list[float] = connection.recv()
        return losses


def _gpu_of(rank: int) -> str | None:
    """What a follower has as its only GPU: they take turns with the first rank."""
    if os.environ.get(DEVICE_VARIABLE, "cpu") == "cpu" or not torch.cuda.is_available():
        return None
    named = os.environ.get(GPUS_VARIABLE, "")
    gpus = named.split(",") if named else [str(each) for each in range(torch.cuda.device_count())]
    return gpus[rank % len(gpus)]


def ranks_here() -> int:
    """Of each process that trains or replays, as its operator says."""
    count = os.environ.get(RANKS_VARIABLE, "")
    return int(count) if count.isdigit() and int(count) else 1


def ranks_on(device: torch.device) -> int:
    """How many of them share the memory of one such device."""
    if device.type != "cuda":
        return ranks_here()
    return -(-ranks_here() // max(1, torch.cuda.device_count()))


def gradients_here() -> Gradients | None:
    """What computes gradients with all ranks; None where there is one."""
    ranks = ranks_here()
    return None if ranks == 1 else _island(ranks).gradients


@lru_cache(maxsize=1)
def _island(ranks: int) -> Island:
    return Island(ranks)
