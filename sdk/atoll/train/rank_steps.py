"""What ranks do together: each order of the first one, by all of them.

Rule of this file: a rank that follows knows no job. It has its rows of the tensors that the first
one names by numbers, and a frozen base; whatever else it needs, the order says.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from atoll.numerics.batch import MicroBatch
from atoll.numerics.frozen_base import Base, groups_of
from atoll.numerics.gradients import StepInput
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.interface import Frozen
from atoll.numerics.memory_plan import MemoryPlan
from atoll.numerics.ops import Ops, operations, reference_operations
from atoll.numerics.optimisers import OtherBits
from atoll.numerics.schedule import Recipe
from atoll.numerics.shards import Shape
from atoll.numerics.state import Tensors
from atoll.numerics.step import OptimiserStep, optimise
from atoll.numerics.tensors import Allocate
from atoll.protocol.method_spec import InnerSpec
from atoll.protocol.model_spec import ModelSpec
from atoll.train.mapped_tensors import MappedTensors
from atoll.train.rank_base import BaseRows, headers, received_base, tensors_of
from atoll.train.rank_shards import (
    Group,
    Lazily,
    gathered,
    gathered_frozen,
    hand_out,
    hashes,
    peak_of,
    put_together,
    with_peak,
)
from atoll.train.rank_sums import add_up, losses_by_micro_batch, runs_of
from atoll.train.rank_wire import FIRST, Document, on_wire, received_document, send, wire_device
from atoll.train.shard_cuts import Cuts

_MAPPED: Final = "atoll-mapped"
"""A folder where the system has what is temporary."""


class Rank:
    """What a rank holds from one order to the next, and what it does for each.

    Args:
        device: where its rows lie.

    Attributes:
        groups: by the first rank's numbers.
        base: what adapters are added to; of one in rows the first rank's view of it, which asks
            all ranks. base_rows: this rank's of that one.
        most_bytes: of all that was held at once, after any order, but for what lies apart.
    """

    def __init__(self, device: torch.device) -> None:
        self.groups: dict[int, Group] = {}
        self.base: Base | None = None
        self.base_rows: BaseRows | None = None
        self.most_bytes = 0
        self._device = device
        self._apart: dict[int, Allocate] = {}

    def let_go(self, groups: list[int]) -> None:
        """Of what the first rank does not name any more."""
        for number in groups:
            self.groups.pop(number, None)
            self._apart.pop(number, None)

    def note_bytes(self) -> None:
        """Groups may share tensors, which are there once."""
        groups = [group for number, group in self.groups.items() if number not in self._apart]
        held = {id(t): t for group in groups for t in group.parts.values()}
        size = sum(t.numel() * t.element_size() for t in held.values())
        self.most_bytes = max(self.most_bytes, size)

    def make(self, number: int, shapes: Mapping[str, Shape], whole: list[str], apart: str) -> None:
        """A group, as yet without tensors.

        Args:
            whole: see `Cuts.of`.
            apart: a folder for rows that lie in files, or beside a GPU; empty for memory.
        """
        self.groups[number] = Group(Cuts.of(shapes, whole, dist.get_world_size()))
        if apart:
            self._apart[number] = self._beside(Path(apart))

    def new_base(self, scale: float) -> None:
        """One in rows, as yet without any, in place of the one before."""
        self.base, self.base_rows = None, BaseRows(scale, self._device)

    def whole_base(self, base: Base | None) -> None:
        """One that every rank has whole, or none, in place of the one before."""
        self.base, self.base_rows = base, None

    def copy(self, number: int, of: int) -> None:
        """Another group of the same tensors."""
        self.groups[number] = self.groups[of].copied()
        if of in self._apart:
            self._apart[number] = self._apart[of]

    def put(self, number: int, name: str, tensor: Tensor | None = None) -> None:
        """Takes this rank's rows of a tensor that the first one has."""
        allocate = self._apart.get(number, self._in_memory)
        hand_out(self.groups[number], name, tensor, allocate)

    def get(self, number: int, name: str) -> Tensor | None:
        """A tensor, for the first rank."""
        return put_together(self.groups[number], name)

    def hashes(self, number: int, prefix: str) -> list[bytes] | None:
        """Leaves of a group, for the first rank."""
        return hashes(self.groups[number], prefix)

    def gradients(
        self, params: int, sums: int, given: StepInput, recipe: Recipe
    ) -> tuple[float, ...]:
        """Leaves the gradients of a batch in a new group; its losses, for the first rank."""
        held = self.groups[params]
        self.groups[sums] = Group(held.cuts)
        if self.base_rows is not None:
            recipe = replace(recipe, base=self.base_rows.base())
        values, recipe = gathered_params(held, recipe)
        # By the reference another rank computes it, so that what one does wrongly is found.
        shift = 1 if is_reference(recipe.ops) else 0
        losses = add_up(values, given, recipe, self.groups[sums], shift=shift)
        return _collected(losses, given, recipe, shift)

    def norm(self, sums: int, ops: Ops) -> float:
        """Of gradients: `ExactOps.global_norm` by integers that are added, one grid a tensor."""
        group = self.groups[sums]
        names = [name for name in group.cuts.shapes if name in group.names]
        peaks = torch.stack([peak_of(group.parts.get(name)) for name in names])
        dist.all_reduce(peaks, dist.ReduceOp.MAX)
        largest = peaks.view(torch.float32).to(self._device)
        alone = _square_sums(list(largest.unbind()), ops)
        counts = torch.zeros(len(names), dtype=torch.int64)
        for at, name in enumerate(names):
            if (part := group.parts.get(name)) is not None:
                ((count, _),) = _square_sums([with_peak(part, largest[at])], ops)
                counts[at] = count - alone[at][0]
        counts = counts.to(wire_device())
        dist.all_reduce(counts, dist.ReduceOp.SUM)
        total = 0.0
        for count, (_, step) in zip(counts.tolist(), alone, strict=True):
            total += float(count) * (step * step)
        return math.sqrt(total)

    def optimise(
        self,
        params: int,
        slots: Mapping[str, int],
        sums: int,
        step: OptimiserStep,
    ) -> bool:
        """Steps all parameters; whether all are bounded.

        Raises:
            OtherBits: where the reference gives other bits to any rank.
        """
        parts = {slot: self.groups[number].parts for slot, number in slots.items()}
        values, gradients = self.groups[params].parts, self.groups[sums]
        is_bounded, is_same = True, True
        try:
            is_bounded = optimise(values, parts, gradients.parts, step)
        except OtherBits:
            is_same = False
        flags = torch.tensor([is_bounded, is_same], dtype=torch.int32, device=wire_device())
        dist.all_reduce(flags, dist.ReduceOp.MIN)
        gradients.names.clear()
        is_bounded, is_same = map(bool, flags.tolist())
        if not is_same:
            raise OtherBits("a parameter has other bits by the reference")
        return is_bounded

    def _in_memory(self, _name: str, shape: Shape, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self._device)

    def _beside(self, folder: Path) -> Allocate:
        if self._device.type != "cpu":
            return lambda _, shape, dtype: torch.empty(shape, dtype=dtype)
        mapped = MappedTensors(folder if folder.is_dir() else Path(tempfile.gettempdir()) / _MAPPED)
        return partial(_mapped, mapped)


def follow_group() -> None:
    """Does what comes, of a group that has met; raises RuntimeError once that is broken."""
    rank = Rank(operations().device)
    while True:
        document = received_document()
        rank.let_go(document["dropped"])
        _follow(rank, document)
        rank.note_bytes()


def _follow(rank: Rank, document: Document) -> None:
    match document["kind"]:
        case "make":
            shapes = {name: tuple(shape) for name, shape in document["shapes"].items()}
            rank.make(document["group"], shapes, document["whole"], document["apart"])
        case "copy":
            rank.copy(document["group"], document["of"])
        case "put":
            rank.put(document["group"], document["name"])
        case "get":
            rank.get(document["group"], document["name"])
        case "hash":
            rank.hashes(document["group"], document["prefix"])
        case "base" | "no base" | "new base" | "base piece" | "get base":
            _follow_base(rank, document)
        case "gradients":
            recipe = _recipe_of(document["recipe"], rank.base)
            given = _received_input(document)
            rank.gradients(document["group"], document["sums"], given, recipe)
        case "norm":
            rank.norm(document["group"], _ops_of(document["by_reference"]))
        case "optimise":
            _follow_optimise(rank, document)
        case "bytes":
            dist.gather(bytes_of(rank), dst=FIRST)


def _follow_base(rank: Rank, document: Document) -> None:
    match document["kind"]:
        case "base":
            rank.whole_base(received_base(document))
        case "no base":
            rank.whole_base(None)
        case "new base":
            rank.new_base(document["scale"])
        case "base piece":
            rows_of(rank).take(document["name"], document["piece"])
        case "get base":
            rows_of(rank).gathered(document["name"])


def _follow_optimise(rank: Rank, document: Document) -> None:
    recipe = _recipe_of(document["recipe"], rank.base)
    reference = replace(recipe, ops=_ops_of(True)) if document["is_compared"] else None
    scalars = document["count"], document["scale"], document["rate"]
    step = OptimiserStep(*scalars, recipe, reference)
    try:
        rank.optimise(document["group"], document["slots"], document["sums"], step)
    except OtherBits:
        return  # the first rank says so


def bytes_of(rank: Rank) -> Tensor:
    """The most that was held, and of a base in rows; as it is sent."""
    of_base = 0 if rank.base_rows is None else rank.base_rows.bytes
    return torch.tensor([rank.most_bytes, of_base], device=wire_device())


def rows_of(rank: Rank) -> BaseRows:
    """Of the base, which is in rows."""
    if rank.base_rows is None:
        raise RuntimeError("this rank has no rows of a base")
    return rank.base_rows


# --- what a step reads ---


def step_document(given: StepInput) -> Document:
    """What the others need of a batch, whose numbers `send_batch` sends."""
    return {
        "batch": [headers(_numbers(m)) for m in given.batch],
        "sampled": [m.is_sampled for m in given.batch],
        "global_step": given.global_step,
        "dropout_key": list(given.dropout_key),
    }


def send_batch(given: StepInput) -> None:
    """Of the first rank, to all others."""
    for micro_batch in given.batch:
        for tensor in _numbers(micro_batch):
            send(tensor)


def _received_input(document: Document) -> StepInput:
    batch = []
    for parts, is_sampled in zip(document["batch"], document["sampled"], strict=True):
        ids, targets, weights = (tensor.cpu() for tensor in tensors_of(parts))
        batch.append(MicroBatch(ids, targets, weights, is_sampled))
    first, second = document["dropout_key"]
    return StepInput(batch, document["global_step"], (first, second))


def _numbers(micro_batch: MicroBatch) -> tuple[Tensor, Tensor, Tensor]:
    return micro_batch.ids, micro_batch.targets, micro_batch.weights


def recipe_document(recipe: Recipe) -> Document:
    """What the others need of it, but for the base."""
    return {
        "model": recipe.model.model_dump(mode="json"),
        "inner": recipe.inner.model_dump(mode="json"),
        "total_steps": recipe.total_steps,
        "memory": asdict(recipe.memory),
        "by_reference": is_reference(recipe.ops),
    }


def _recipe_of(document: Document, base: Base | None) -> Recipe:
    return Recipe(
        ModelSpec.model_validate(document["model"]),
        InnerSpec.model_validate(document["inner"]),
        document["total_steps"],
        _ops_of(document["by_reference"]),
        base,
        MemoryPlan(**document["memory"]),
    )


def is_reference(ops: Ops) -> bool:
    """Whether these are `reference_operations`."""
    engine = _exact(ops).engine
    return (engine.kernels.name, engine.route.name) == ("eager", "fp64")


def _ops_of(by_reference: bool) -> Ops:
    ops = operations()
    return reference_operations(ops.device) if by_reference else ops


def _exact(ops: Ops) -> ExactOps:
    if not isinstance(ops, ExactOps):
        raise TypeError("ranks compute exactly, or not together")
    return ops


def _square_sums(tensors: list[Tensor], ops: Ops) -> list[tuple[int, float]]:
    return _exact(ops).engine.kernels.square_sums(tensors)


# --- parameters ---


def gathered_params(held: Group, recipe: Recipe) -> tuple[Tensors, Recipe]:
    """Parameters as a step reads them, and what has their linears, of which there is but the shape
    among them: gathered once, or by layer, each time, where memory is short.
    """
    shapes, device = held.cuts.shapes, recipe.ops.device
    linears = {
        names[0].removesuffix(".weight"): names
        for names in groups_of(recipe.model)
        if names[0] in shapes
    }

    def make(name: str) -> Frozen:
        return gathered_frozen(held, linears[name], recipe.ops)

    rounded: Mapping[str, Frozen] = Lazily(make, linears)
    if not recipe.memory.recomputes_layers:
        rounded = dict(rounded.items())
    inside = {name for names in linears.values() for name in names}
    # One number, seen everywhere: autograd asks for a shape, and nobody for a value.
    nothing = torch.zeros(1, 1, device=device)
    params = {
        name: nothing.expand(shape) if name in inside else gathered(held, name).to(device)
        for name, shape in shapes.items()
    }
    return params, replace(recipe, rounded=rounded)


def _mapped(mapped: MappedTensors, _name: str, shape: Shape, dtype: torch.dtype) -> Tensor:
    return mapped.empty(shape, dtype) if 0 not in shape else torch.empty(shape, dtype=dtype)


# --- losses ---


def _collected(
    mine: list[float], given: StepInput, recipe: Recipe, shift: int
) -> tuple[float, ...]:
    """The losses of all ranks, in the order of the batch, at the first; none at the others."""
    words, size = _loss_words(mine, given), dist.get_world_size()
    if dist.get_rank() != FIRST:
        dist.gather(words, dst=FIRST)
        return ()
    rows = [torch.empty_like(words) for _ in range(size)]
    dist.gather(words, rows, dst=FIRST)
    runs = runs_of(len(given.batch), recipe, size)
    counts = [sum(map(len, runs[(rank + shift) % size :: size])) for rank in range(size)]
    by_rank: list[list[float]] = [
        row.cpu().view(torch.float64)[:count].tolist()
        for row, count in zip(rows, counts, strict=True)
    ]
    return losses_by_micro_batch(len(given.batch), recipe, by_rank, shift=shift)


def _loss_words(losses: list[float], given: StepInput) -> Tensor:
    padded = losses + [0.0] * (len(given.batch) - len(losses))
    return on_wire(torch.tensor(padded, dtype=torch.float64).view(torch.int64))
