"""What ranks send one another: gradients of micro-batches, and who adds them up.

Rule of this file: the network adds nothing. A reduction's order is its own, and half of the values
of a sum of local sums are others than the law's. So what is sent are words, each rank has its rows
of every tensor, and adds them up in the order of micro-batches and lanes.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from atoll.numerics.gradients import StepInput, add_to, lanes_of, micro_batch_gradients
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import Tensors
from atoll.train.rank_shards import Group
from atoll.train.rank_wire import on_wire, wire_device, words_of
from atoll.train.shard_cuts import Cuts


def add_up(
    params: Mapping[str, Tensor], given: StepInput, recipe: Recipe, sums: Group, *, shift: int = 0
) -> list[float]:
    """Leaves this rank's rows of the gradients in `sums`, which is empty before; the losses of the
    micro-batches that it computed, in their order.

    A rank sends the sum of a run as soon as the last backward pass of it has it, layer by layer. A
    rank that has no run in a wave computes the first one's once more, for nothing: that is when
    weights are gathered, and all are needed for that.

    Args:
        shift: has each rank compute what the one so many places behind it computes without.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    runs = runs_of(len(given.batch), recipe, size)
    losses: list[float] = []
    parts = _Parts(lanes_of(len(given.batch), recipe.inner))
    for start in range(0, len(runs), size):
        wave = runs[start : start + size]
        at = (rank + shift) % size
        run = wave[at] if at < len(wave) else wave[0]
        exchange = _Exchange(sums.cuts, wave, parts, shift)
        computed = [
            micro_batch_gradients(
                params, given, recipe, index, exchange.last if index == run[-1] else exchange.add
            )
            for index in run
        ]
        losses += computed if at < len(wave) else []
    for name in params:
        sums.keep(name, parts.sum_of(name).view(sums.cuts.part(name, rank)).to(recipe.ops.device))
    return losses


def runs_of(micro_batches: int, recipe: Recipe, ranks: int) -> list[range]:
    """What a rank computes at a time: lanes; micro-batches where there are fewer lanes than ranks,
    or no memory for the sum of a lane at each of them.
    """
    lanes = lanes_of(micro_batches, recipe.inner)
    if len(lanes) >= ranks and not recipe.memory.recomputes_layers:
        return lanes
    return [range(index, index + 1) for index in range(micro_batches)]


def losses_by_micro_batch(
    micro_batches: int, recipe: Recipe, by_rank: list[list[float]], *, shift: int = 0
) -> tuple[float, ...]:
    """All ranks' losses in the order of the batch."""
    size = len(by_rank)
    runs = runs_of(micro_batches, recipe, size)
    taken = [iter(losses) for losses in by_rank]
    return tuple(next(taken[(at - shift) % size]) for at, run in enumerate(runs) for _ in run)


class _Exchange:
    """A wave: each rank's run, whose sum goes to those who hold its rows."""

    def __init__(self, cuts: Cuts, wave: list[range], parts: _Parts, shift: int) -> None:
        self._cuts, self._wave, self._parts, self._shift = cuts, wave, parts, shift
        self._sums: Tensors = {}

    def add(self, name: str, gradient: Tensor) -> None:
        """Takes one of a micro-batch that is not the run's last."""
        add_to(self._sums, name, gradient)

    def last(self, name: str, gradient: Tensor) -> None:
        """Takes one of the last, and sends what the run comes to."""
        add_to(self._sums, name, gradient)
        counts = self._cuts.counts(name)
        outgoing = words_of(on_wire(self._sums.pop(name))).flatten()
        mine, size = counts[dist.get_rank()], len(counts)
        incoming = torch.empty(size * mine, dtype=torch.int32, device=wire_device())
        dist.all_to_all_single(incoming, outgoing, [mine] * size, counts)
        rows = incoming.view(torch.float32).view(size, mine)
        for at, run in enumerate(self._wave):
            self._parts.add(name, run, rows[(at - self._shift) % size])


class _Parts:
    """A rank's rows, to which gradients come in the order of their micro-batches."""

    def __init__(self, lanes: list[range]) -> None:
        self._starts, self._stops = ({getattr(x, end) for x in lanes} for end in ("start", "stop"))
        self._lane: Tensors = {}
        self._lanes: Tensors = {}

    def add(self, name: str, run: range, part: Tensor) -> None:
        """Takes a run's, behind those before it; a lane that is whole is added to the others."""
        if run.start in self._starts and run.stop in self._stops and name in self._lanes:
            self._lanes[name] += part
            return
        add_to(self._lane, name, part if name in self._lane else part.clone())
        if run.stop in self._stops:
            add_to(self._lanes, name, self._lane.pop(name))

    def sum_of(self, name: str) -> Tensor:
        """Of all lanes."""
        return self._lanes.pop(name)
