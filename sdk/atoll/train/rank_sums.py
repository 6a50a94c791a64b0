"""What ranks send one another: gradients of runs of micro-batches, and the sums of them.

Rule of this file: the network adds nothing. A reduction's order is its own, and half of the values
of a sum of local sums are others than the law's. So what is sent are words, each rank has a part of
every tensor, and adds it up in the order of micro-batches and lanes.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from atoll.numerics.gradients import StepInput, add_to, lanes_of, run_gradients
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import Tensors
from atoll.numerics.tensors import Shape
from atoll.protocol.method_spec import InnerSpec

FIRST = 0
"""The rank of the process that trains or replays."""


def send_params(params: Tensors) -> None:
    """Of the first rank, to all others."""
    for tensor in params.values():
        dist.broadcast(_words(tensor), FIRST)


def received_params(shapes: Mapping[str, Shape], device: torch.device) -> Tensors:
    """What `send_params` sends."""
    params: Tensors = {}
    for name, shape in shapes.items():
        words = torch.empty(shape, dtype=torch.int32)
        dist.broadcast(words, FIRST)
        params[name] = words.view(torch.float32).to(device)
    return params


def share_of_sums(
    params: Tensors, given: StepInput, recipe: Recipe
) -> tuple[list[float], list[Tensor]]:
    """The losses of the micro-batches that this rank computed, in their order, and its part of
    every parameter's gradient, summed over all of them.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    runs = runs_of(len(given.batch), recipe.inner, size)
    losses: list[float] = []
    parts = _Parts(lanes_of(len(given.batch), recipe.inner))
    for start in range(0, len(runs), size):
        wave = runs[start : start + size]
        gradients: Tensors = {}
        if rank < len(wave):
            computed = run_gradients(params, given, recipe, wave[rank])
            losses += computed.losses
            gradients = computed.gradients
        for name, param in params.items():
            rows = _exchanged(gradients.pop(name, None), param.numel(), size)
            for run, row in zip(wave, rows, strict=False):
                parts.add(name, run, row)
    return losses, [parts.sum_of(name) for name in params]


def runs_of(micro_batches: int, inner: InnerSpec, ranks: int) -> list[range]:
    """What a rank computes at a time: lanes, or micro-batches where there are fewer lanes than
    ranks.
    """
    lanes = lanes_of(micro_batches, inner)
    if len(lanes) >= ranks:
        return lanes
    return [range(index, index + 1) for index in range(micro_batches)]


def losses_by_micro_batch(
    micro_batches: int, inner: InnerSpec, by_rank: list[list[float]]
) -> tuple[float, ...]:
    """All ranks' losses in the order of the batch."""
    runs = runs_of(micro_batches, inner, len(by_rank))
    taken = [iter(losses) for losses in by_rank]
    return tuple(next(taken[at % len(by_rank)]) for at, run in enumerate(runs) for _ in run)


def send_sums(parts: list[Tensor]) -> None:
    """A rank's parts, to the first."""
    for part in parts:
        dist.gather(_words(part), dst=FIRST)


def received_sums(params: Tensors, parts: list[Tensor]) -> Tensors:
    """The gradients, of the first rank's parts and what `send_sums` sends."""
    sums: Tensors = {}
    for (name, param), part in zip(params.items(), parts, strict=True):
        rows = [torch.empty_like(part, dtype=torch.int32) for _ in range(dist.get_world_size())]
        dist.gather(_words(part), rows, dst=FIRST)
        words = torch.cat(rows)[: param.numel()]
        sums[name] = words.view(torch.float32).view(param.shape).to(param.device)
    return sums


def _exchanged(gradient: Tensor | None, count: int, size: int) -> list[Tensor]:
    """Of each rank's gradient the part that is this rank's; zeros of those that have none."""
    width = -(-count // size)
    outgoing = torch.zeros(size * width, dtype=torch.int32)
    if gradient is not None:
        outgoing[:count] = _words(gradient).flatten()
    incoming = torch.empty_like(outgoing)
    dist.all_to_all_single(incoming, outgoing)
    return list(incoming.view(torch.float32).view(size, width))


def _words(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().view(torch.int32)


class _Parts:
    """A rank's parts, to which gradients come in the order of their micro-batches."""

    def __init__(self, lanes: list[range]) -> None:
        self._starts = {lane.start for lane in lanes}
        self._lane: Tensors = {}
        self._lanes: Tensors = {}

    def add(self, name: str, run: range, part: Tensor) -> None:
        if run.start in self._starts:
            self._end_lane(name)
        add_to(self._lane, name, part if name in self._lane else part.clone())

    def sum_of(self, name: str) -> Tensor:
        self._end_lane(name)
        return self._lanes.pop(name)

    def _end_lane(self, name: str) -> None:
        if name in self._lane:
            add_to(self._lanes, name, self._lane.pop(name))
