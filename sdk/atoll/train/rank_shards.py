"""The rows of tensors that a rank holds, and how whole tensors are made of them and cut into them.

Rule of this file: every rank of the group calls the same functions with the same names in the same
order. What the first rank alone has, or gets, is None at the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from atoll.numerics.kernels.freed_memory import let_go_of_pages
from atoll.numerics.kernels.interface import CPU, Frozen
from atoll.numerics.ops import Ops
from atoll.numerics.shards import Shape
from atoll.numerics.tensors import Allocate, part_leaves
from atoll.train.rank_wire import FIRST, on_wire, wire_device, words_of
from atoll.train.shard_cuts import UNIT, Cuts

T = TypeVar("T")
_HASH_BYTES = 32


@dataclass(slots=True)
class Group:
    """Some tensors, as parameters, of which this rank holds rows.

    Attributes:
        names: of those that are there.
        parts: this rank's rows by name, where it has any; fp32.
    """

    cuts: Cuts
    names: set[str] = field(default_factory=set)
    parts: dict[str, Tensor] = field(default_factory=dict)

    def copied(self) -> Group:
        """The same tensors, which can be replaced."""
        return Group(self.cuts, set(self.names), dict(self.parts))

    @property
    def bytes(self) -> int:
        """That this rank holds."""
        return sum(part.numel() * part.element_size() for part in self.parts.values())

    def keep(self, name: str, part: Tensor) -> None:
        """Takes this rank's rows of a tensor."""
        self.names.add(name)
        if part.numel():
            self.parts[name] = part


def hand_out_rows(cuts: Cuts, name: str, tensor: Tensor | None, dtype: torch.dtype) -> Tensor:
    """This rank's rows of the first one's tensor, which are its own: the tensor can go."""
    mine = cuts.part(name, dist.get_rank())
    if tensor is None:
        nothing = torch.empty(mine, dtype=dtype)
        return _received(mine, dtype, FIRST) if nothing.numel() else nothing
    for other in range(FIRST + 1, dist.get_world_size()):
        if prod(cuts.part(name, other)):
            dist.send(words_of(on_wire(tensor[cuts.rows(name, other)])), other)
    return tensor[cuts.rows(name, FIRST)].clone()


def hand_out(group: Group, name: str, tensor: Tensor | None, allocate: Allocate) -> None:
    """Gives each rank its rows of the first one's tensor."""
    rank, cuts = dist.get_rank(), group.cuts
    part = allocate(name, cuts.part(name, rank), torch.float32)
    if tensor is not None:
        for other in range(FIRST + 1, dist.get_world_size()):
            if prod(cuts.part(name, other)):
                dist.send(words_of(on_wire(tensor[cuts.rows(name, other)])), other)
        part.copy_(tensor[cuts.rows(name, rank)])
    elif part.numel():
        part.copy_(_received(tuple(part.shape), torch.float32, FIRST))
    let_go_of_pages(part)
    group.keep(name, part)


def put_together(group: Group, name: str) -> Tensor | None:
    """The whole tensor, at the first rank."""
    cuts = group.cuts
    if dist.get_rank() != FIRST:
        if name in group.parts:
            dist.send(words_of(on_wire(group.parts[name])), FIRST)
        return None
    whole = torch.empty(cuts.shapes[name], dtype=torch.float32)
    for other in range(dist.get_world_size()):
        rows, shape = cuts.rows(name, other), cuts.part(name, other)
        if not prod(shape):
            continue
        is_here = other == FIRST
        whole[rows] = group.parts[name] if is_here else _received(shape, torch.float32, other)
    return whole


def hashes(group: Group, prefix: str) -> list[bytes] | None:
    """The leaves of all tensors, in ascending order of name, at the first rank."""
    rank, names = dist.get_rank(), [name for name in group.cuts.names if name in group.names]
    mine = b"".join(_leaves(group, name, prefix, rank) for name in names)
    if rank != FIRST:
        if mine:
            dist.send(torch.frombuffer(bytearray(mine), dtype=torch.uint8).to(wire_device()), FIRST)
        return None
    by_rank: list[Iterator[bytes]] = []
    for other in range(dist.get_world_size()):
        counts = {name: -(-group.cuts.counts(name)[other] // UNIT) for name in names}
        data, size = mine, _HASH_BYTES * sum(counts.values())
        if other != FIRST and size:
            data = _received((size,), torch.uint8, other).cpu().numpy().tobytes()
        by_rank.append(iter([data[at : at + _HASH_BYTES] for at in range(0, size, _HASH_BYTES)]))
    return [
        next(by_rank[other])
        for name in names
        for other in range(len(by_rank))
        for _ in range(-(-group.cuts.counts(name)[other] // UNIT))
    ]


def gathered(group: Group, name: str) -> Tensor:
    """The whole tensor, at every rank, where the group's wire reads it."""
    out = torch.empty(group.cuts.shapes[name], dtype=torch.float32, device=wire_device())
    gather_rows(out, group.cuts, name, group.parts.get(name))
    return out


def gathered_frozen(group: Group, names: Sequence[str], ops: Ops) -> Frozen:
    """Linears of one input as integers and steps, at every rank: a byte a parameter, as that is all
    that products read of them. Each rank rounds its own rows.
    """
    cuts, device = group.cuts, wire_device()
    widths = tuple(cuts.shapes[name][0] for name in names)
    columns = cuts.shapes[names[0]][1]
    high = torch.empty((sum(widths), columns), dtype=torch.int8, device=device)
    step = torch.empty((sum(widths), 1), dtype=torch.float32, device=device)
    first = 0
    for name, width in zip(names, widths, strict=True):
        part, rows = group.parts.get(name), slice(first, first + width)
        made = (None, None) if part is None else ops.freeze([part]).parts
        for out, values in zip((high, step), made, strict=True):
            gather_rows(out[rows], cuts, name, values)
        first += width
    return Frozen((high.to(ops.device), step.to(ops.device)), widths)


class Lazily(Mapping[str, T]):
    """What is gathered each time that it is asked for, and let go with whoever asked.

    Args:
        names: of what there is.
    """

    def __init__(self, make: Callable[[str], T], names: Collection[str]) -> None:
        self._make, self._names = make, names

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def peak_of(part: Tensor | None) -> Tensor:
    """The largest magnitude as a word whose order is that of the numbers, one NaN on top: a network
    adds no floats, and gloo's own largest float is not NaN where one of them is.
    """
    largest = torch.zeros((), device=wire_device())
    if part is not None:
        largest = part.abs().amax().nan_to_num(nan=torch.nan, posinf=torch.inf).to(wire_device())
    return largest.view(torch.int32) & 0x7FFFFFFF


def with_peak(part: Tensor, peak: Tensor) -> Tensor:
    """Rows with one more, whose only number is the largest magnitude of all ranks' rows: so that
    their grid is that of the whole tensor.
    """
    row = torch.zeros_like(part[:1])
    row.view(-1)[0] = peak
    return torch.cat((part, row))


def _leaves(group: Group, name: str, prefix: str, rank: int) -> bytes:
    part = group.parts.get(name)
    if part is None:
        return b""
    cuts = group.cuts
    first = cuts.rows(name, rank).start * cuts.width(name)
    return b"".join(part_leaves(f"{prefix}{name}", cuts.shapes[name], part.to(CPU), first))


def gather_rows(out: Tensor, cuts: Cuts, name: str, mine: Tensor | None) -> None:
    """Fills a tensor with all ranks' rows of a tensor of as many."""
    rank = dist.get_rank()
    for other in range(dist.get_world_size()):
        rows = cuts.rows(name, other)
        if rows.start == rows.stop:
            continue
        part = out[rows]
        if other == rank and mine is not None:
            part.copy_(mine)
        dist.broadcast(words_of(part), other)


def _received(shape: Shape, dtype: torch.dtype, source: int) -> Tensor:
    tensor = torch.empty(shape, dtype=dtype, device=wire_device())
    dist.recv(words_of(tensor), source)
    return tensor
