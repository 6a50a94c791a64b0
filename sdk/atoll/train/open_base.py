"""The frozen model of a job that trains adapters, opened from the store.

Rule of this file: a process holds one base, the last one asked for, and never its bytes besides;
where ranks hold it together, none of them has it whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from torch import Tensor

from atoll.numerics.frozen_base import Base, checked, freeze, frozen_pieces
from atoll.numerics.init import stream_params
from atoll.numerics.kernels.interface import Frozen
from atoll.numerics.ops import operations
from atoll.numerics.state_layout import max_params_bytes, param_shapes
from atoll.numerics.tensors import ByteSource
from atoll.protocol.manifest import InitSpec, Manifest
from atoll.protocol.model_spec import LoraSpec, ModelSpec
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.island import island_here
from atoll.train.memory_room import plan_here


def open_base(manifest: Manifest, store: LocalStore) -> Base | None:
    """What a job's adapters are added to, checked against the manifest; None without adapters.

    Raises:
        NotFound, CorruptBlock: a block of the weights is missing or damaged.
        TooLarge, MalformedDag, MalformedState: they are not what the manifest says.
    """
    if manifest.lora is None:
        return None
    ops = operations()
    return _base(manifest.model, manifest.lora, manifest.init, store.root, str(ops.device))


def open_base_of_ranks(manifest: Manifest, store: LocalStore) -> Base | None:
    """As `open_base`, for a seat's steps: in rows, where several ranks compute layers again.

    A job that samples reads all of it for every token, and so has it whole.

    Raises:
        RankEnded: a rank is gone.
    """
    island, lora, init = island_here(), manifest.lora, manifest.init
    is_whole = manifest.task is not None or not plan_here(manifest).recomputes_layers
    if lora is None or init.root is None or island.is_alone or is_whole:
        return open_base(manifest, store)
    _base.cache_clear()
    root, ops = init.root, operations()

    def pieces() -> Iterator[tuple[str, Frozen | Tensor]]:
        weights = checked(read_weights(init, manifest.model, store), root)
        return frozen_pieces(weights, manifest.model, ops)

    return island.base_in_rows((manifest.model, lora, init), pieces, lora.scale)


def check_base(manifest: Manifest, store: LocalStore) -> None:
    """Reads what a job's adapters are added to, and keeps none of it. Raises as `open_base`."""
    if manifest.lora is None or manifest.init.root is None:
        return
    for _ in checked(read_weights(manifest.init, manifest.model, store), manifest.init.root):
        pass


@lru_cache(maxsize=1)
def _base(model: ModelSpec, lora: LoraSpec, init: InitSpec, folder: Path, device: str) -> Base:
    if init.root is None:
        raise ValueError("the manifest names no weights to add adapters to")
    weights = read_weights(init, model, LocalStore(folder))
    return freeze(weights, init.root, model, lora, operations())


def read_weights(
    init: InitSpec, model: ModelSpec, store: LocalStore
) -> Iterator[tuple[str, Tensor]]:
    """Initial weights that are content, a tensor at a time. Raises as `open_base`."""
    if init.cid is None:
        raise ValueError("the initial weights are no content")
    cid, limit = Cid.from_bytes(init.cid), max_params_bytes(model)
    source = ByteSource(store.file_bytes(cid), store.iter_bytes(cid, limit))
    return stream_params(source, param_shapes(model))
