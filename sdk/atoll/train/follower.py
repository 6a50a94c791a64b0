"""A rank that follows: it computes gradients of what the first rank gives it, and knows no job.

Rule of this file: a follower holds nothing from one step to the next but a frozen base, so that
one that is gone takes nothing with it. It ends with the process that started it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, Final

import numpy.typing as npt
import structlog
import torch
import torch.distributed as dist
from torch import Tensor

from atoll.numerics.batch import MicroBatch
from atoll.numerics.frozen_base import Base
from atoll.numerics.gradients import StepInput
from atoll.numerics.kernels.interface import Frozen
from atoll.numerics.memory_plan import MemoryPlan
from atoll.numerics.ops import operations
from atoll.numerics.schedule import Recipe
from atoll.numerics.tensors import Shape
from atoll.protocol.method_spec import InnerSpec
from atoll.protocol.model_spec import ModelSpec
from atoll.train.rank_sums import received_params, send_sums, share_of_sums

GPUS_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
_INTERFACE: Final = "GLOO_SOCKET_IFNAME"
READY: Final = "ready"


@dataclass(frozen=True, slots=True)
class Group:
    """Which ranks there are.

    Attributes:
        meeting: a file that only they can read, where they find each other.
        silence: after which a rank counts as gone.
    """

    rank: int
    size: int
    meeting: str
    silence: timedelta


@dataclass(frozen=True, slots=True)
class FollowedStep:
    """What a step's gradients follow from, beside parameters and base, as it goes to a process.

    Attributes:
        batch: of each micro-batch ids, targets and weights, and whether it was sampled.
    """

    model: ModelSpec
    inner: InnerSpec
    total_steps: int
    memory: MemoryPlan
    shapes: dict[str, Shape]
    batch: tuple[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], bool], ...]
    global_step: int
    dropout_key: tuple[int, int]

    @classmethod
    def of(cls, given: StepInput, recipe: Recipe, shapes: dict[str, Shape]) -> FollowedStep:
        batch = tuple(
            (m.ids.numpy(), m.targets.numpy(), m.weights.numpy(), m.is_sampled) for m in given.batch
        )
        return cls(
            model=recipe.model,
            inner=recipe.inner,
            total_steps=recipe.total_steps,
            memory=recipe.memory,
            shapes=shapes,
            batch=batch,
            global_step=given.global_step,
            dropout_key=given.dropout_key,
        )

    def recipe(self, base: Base | None) -> Recipe:
        ops = operations()
        return Recipe(self.model, self.inner, self.total_steps, ops, base, self.memory)

    def given(self) -> StepInput:
        read = torch.from_numpy
        batch = [
            MicroBatch(read(ids), read(targets), read(weights), is_sampled)
            for ids, targets, weights, is_sampled in self.batch
        ]
        return StepInput(batch, self.global_step, self.dropout_key)


@dataclass(frozen=True, slots=True)
class FollowedBase:
    """A frozen base as it goes to a process; nothing where none is needed any more."""

    products: dict[str, tuple[list[npt.NDArray[Any]], tuple[int, ...]]]
    others: dict[str, npt.NDArray[Any]]
    scale: float

    @classmethod
    def of(cls, base: Base) -> FollowedBase:
        products = {**base.products, _HEAD: base.head}
        return cls(
            {name: ([p.cpu().numpy() for p in k.parts], k.widths) for name, k in products.items()},
            {name: tensor.cpu().numpy() for name, tensor in base.others.items()},
            base.scale,
        )

    def base(self) -> Base:
        device = operations().device

        def placed(array: npt.NDArray[Any]) -> Tensor:
            return torch.from_numpy(array).to(device)

        products = {
            name: Frozen(tuple(map(placed, parts)), widths)
            for name, (parts, widths) in self.products.items()
        }
        head = products.pop(_HEAD)
        others = {name: placed(array) for name, array in self.others.items()}
        return Base(products, head, others, self.scale)


_HEAD: Final = ""
"""No linear's name."""


def join(group: Group) -> None:
    """Meets the other ranks. Raises RuntimeError where they do not come."""
    # By no name of this machine's, which may lead to no address, or to one that others reach.
    os.environ.setdefault(_INTERFACE, "lo0" if sys.platform == "darwin" else "lo")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{group.meeting}",
        rank=group.rank,
        world_size=group.size,
        timeout=group.silence,
    )


def follow(connection: Connection, group: Group, gpu: str | None) -> None:
    """Computes what comes, until whoever started this ends or lets it go.

    Args:
        connection: brings `FollowedBase` and `FollowedStep`; each step's losses go back, before
            them `READY` when the others can be met, and again when they have been.
        gpu: that this rank has to itself; None where there is no choice.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    if not structlog.is_configured():
        # Commands print what programs read on standard output.
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))
    if gpu is not None:
        os.environ[GPUS_VARIABLE] = gpu
    operations()
    connection.send(READY)
    join(group)
    connection.send(READY)
    base: Base | None = None
    while True:
        try:
            work = connection.recv()
        except EOFError:
            return
        if isinstance(work, FollowedStep):
            connection.send(_losses(work, base))
        else:
            base = None if work is None else work.base()


def _losses(step: FollowedStep, base: Base | None) -> list[float]:
    recipe = step.recipe(base)
    params = received_params(step.shapes, recipe.ops.device)
    losses, parts = share_of_sums(params, step.given(), recipe)
    send_sums(parts)
    return losses


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
