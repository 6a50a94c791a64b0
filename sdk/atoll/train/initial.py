"""Round 0's global model, from the manifest's seed or from the weights that it names."""

from __future__ import annotations

from atoll.bits.init import initial_global_state, read_params
from atoll.bits.layout import max_params_bytes, param_shapes
from atoll.bits.state import GlobalState
from atoll.content.cid import Cid
from atoll.content.local import LocalStore
from atoll.law.manifest import Manifest


def open_initial_state(manifest: Manifest, store: LocalStore) -> GlobalState:
    """The model that a job starts from; weights that are content are checked.

    Where adapters are trained, they are that model; `train.base` opens what they are added to.

    Raises:
        NotFound, CorruptBlock: a block of the weights is missing or damaged.
        TooLarge, MalformedDag, MalformedState: they are not what the manifest says.
    """
    if manifest.init.cid is None or manifest.lora is not None:
        return initial_global_state(manifest)
    limit = max_params_bytes(manifest.model)
    data = store.read_bytes(Cid.from_bytes(manifest.init.cid), limit)
    return initial_global_state(manifest, read_params(data, param_shapes(manifest.model)))
