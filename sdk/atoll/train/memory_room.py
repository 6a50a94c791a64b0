"""How much memory this machine has for a job's steps, and what they do for want of it."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

import torch
from torch import Tensor

from atoll.numerics.kernels.interface import CPU
from atoll.numerics.memory_plan import MemoryPlan
from atoll.numerics.ops import operations
from atoll.numerics.shards import Shape
from atoll.numerics.state import Holds
from atoll.numerics.state_layout import trained_shapes
from atoll.numerics.tensors import Allocate, in_memory
from atoll.protocol.manifest import Manifest
from atoll.storage.local import LocalStore
from atoll.train.island import island_here, ranks_on
from atoll.train.mapped_tensors import MappedTensors
from atoll.train.memory_limit import room_for_work, share_of
from atoll.train.memory_needs import plan_for, slots_fit, state_fits

_FOLDER: Final = "mapped"
"""In a store's folder."""
_MOMENTS: Final = frozenset(("m", "v"))


def room_on(device: torch.device) -> int:
    """Bytes of memory that there are for steps where their operands lie."""
    if device.type == "cuda":
        return share_of(int(torch.cuda.get_device_properties(device).total_memory))
    return room_for_work()


def plan_here(manifest: Manifest) -> MemoryPlan:
    """What this machine's steps of a job do."""
    device = operations().device
    return plan_for(manifest, room_on(device) // ranks_on(device), island_here().size)


def seat_allocator(manifest: Manifest, store: LocalStore) -> Allocate:
    """Where this machine has the tensors of a seat's state.

    Moments that are apart lie in memory beside a GPU's, where there is room for them, else in
    files. With several ranks a tensor is here until it has been handed out.
    """
    if not island_here().is_alone:
        return in_memory
    device = operations().device
    if not plan_here(manifest).moments_apart:
        return in_memory
    if device.type != "cpu" and state_fits(manifest, room_on(CPU)):
        return in_memory
    return _with_files(store, _MOMENTS)


def holds_here(manifest: Manifest, store: LocalStore) -> Holds:
    """What this machine puts the groups of a seat's state into: with all its ranks.

    Raises:
        RankEnded: they do not come.
    """
    apart = str(store.root / _FOLDER) if plan_here(manifest).moments_apart else ""
    return island_here().holds(trained_shapes(manifest), manifest.inner, apart=apart)


def global_allocator(manifest: Manifest, store: LocalStore) -> Allocate:
    """Where this machine has those of a global state: the outer slots in files, if need be."""
    if slots_fit(manifest, room_on(CPU)):
        return in_memory
    return _with_files(store, frozenset(manifest.outer.properties.slots))


def _with_files(store: LocalStore, groups: Collection[str]) -> Allocate:
    return partial(_allocated, MappedTensors(store.root / _FOLDER), groups)


def _allocated(
    mapped: MappedTensors, groups: Collection[str], name: str, shape: Shape, dtype: torch.dtype
) -> Tensor:
    is_mapped = name.partition("/")[0] in groups
    return mapped.empty(shape, dtype) if is_mapped else in_memory(name, shape, dtype)
