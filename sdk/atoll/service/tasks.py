"""What both roles run in the worker process. Only here and in the roles' own `tasks` is torch met.

Rule of this file: arguments and results are plain values and binary CIDs; data goes through the
store, which the worker opens by its folder.
"""

from __future__ import annotations

from atoll.bits.state import GlobalState
from atoll.content.local import LocalStore
from atoll.law.manifest import Manifest
from atoll.service.duties.opening import OpeningReady
from atoll.train import evaluate
from atoll.train.base import open_base
from atoll.train.course import open_held_out_tokens, open_training_tokens
from atoll.train.data import open_tokenizer
from atoll.train.initial import open_initial_state
from atoll.train.probe import check_environment, configure_native
from atoll.train.round import read_global_state


def check_machine(manifest: bytes) -> None:
    """Raises NumericsMismatch or ManifestError unless this machine comes to the manifest's bits."""
    configure_native()
    check_environment(Manifest.from_bytes(manifest))


def check_data(manifest: bytes, store_dir: str) -> None:
    """Reads the whole data, a MiB at a time, and the initial weights once, every block checked.

    Raises:
        MalformedDataset, MalformedState: they are not what the manifest says.
        NotFound, CorruptBlock: a block is missing or damaged.
    """
    job, store = Manifest.from_bytes(manifest), LocalStore(store_dir)
    open_training_tokens(job, store).check()
    if job.data.eval_cid is not None:
        open_held_out_tokens(job, store).check()
    open_tokenizer(store, job.data.tokenizer_cid)
    if job.init.cid is not None:
        open_initial_state(job, store)
        open_base(job, store)


def make_initial_state(manifest: bytes, store_dir: str) -> OpeningReady:
    """Writes round 0's global state, which follows from the manifest and what it names."""
    configure_native()
    store = LocalStore(store_dir)
    state = open_initial_state(Manifest.from_bytes(manifest), store)
    cid = store.add_pieces(state.pieces())
    return _ready(cid.to_bytes(), state)


def inspect_state(manifest: bytes, cid: bytes, store_dir: str) -> OpeningReady:
    """The digests of a global state in the store. Raises MalformedState where it is none."""
    configure_native()
    return _ready(cid, read_global_state(Manifest.from_bytes(manifest), cid, LocalStore(store_dir)))


def _ready(cid: bytes, state: GlobalState) -> OpeningReady:
    return OpeningReady(cid, state.digest(), state.params_root(), state.moments.opening_root)


def evaluate_batch(
    manifest: bytes, cid: bytes, batch: int, store_dir: str
) -> tuple[list[float], list[int]]:
    """A batch of a global state's held-out loss: micro-batches' losses and counts of targets.

    Raises:
        NotFound, CorruptBlock, MalformedDataset: the evaluation set cannot be used.
    """
    configure_native()
    job, store = Manifest.from_bytes(manifest), LocalStore(store_dir)
    state = read_global_state(job, cid, store, outer=False, moments=False)
    return evaluate.evaluate_batch(state.params, job, batch, store)
