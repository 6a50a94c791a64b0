"""Round 0's global model, from the manifest's seed or from the weights that it names."""

from __future__ import annotations

from atoll.numerics.init import initial_global_state
from atoll.numerics.state import GlobalState
from atoll.protocol.manifest import Manifest
from atoll.storage.local import LocalStore
from atoll.train.memory_room import global_allocator
from atoll.train.open_base import read_weights


def open_initial_state(manifest: Manifest, store: LocalStore) -> GlobalState:
    """The model that a job starts from; weights that are content are checked.

    Where adapters are trained, they are that model; `train.open_base` opens what they are added to.

    Raises:
        NotFound, CorruptBlock: a block of the weights is missing or damaged.
        TooLarge, MalformedDag, MalformedState: they are not what the manifest says.
    """
    allocate = global_allocator(manifest, store)
    if manifest.init.cid is None or manifest.lora is not None:
        return initial_global_state(manifest, allocate=allocate)
    weights = dict(read_weights(manifest.init, manifest.model, store))
    return initial_global_state(manifest, weights, allocate=allocate)
