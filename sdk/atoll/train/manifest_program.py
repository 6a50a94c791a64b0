"""The program root of a manifest: what its judge decides by."""

from __future__ import annotations

from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Digest
from atoll.storage.local import LocalStore
from atoll.train.initial_model import open_initial_state
from atoll.train.own_run import program_header
from atoll.train.probe import pin_torch


def program_root(manifest: bytes, store_dir: str) -> tuple[Digest, Digest]:
    """The root that a manifest's terms have to name, and the digest of round 0's model.

    Raises:
        ManifestError: the job's operations cannot be judged.
        NotFound, CorruptBlock, MalformedState: the initial weights are content, and not here.
    """
    pin_torch()
    job = Manifest.from_bytes(manifest)
    initial = open_initial_state(job, LocalStore(store_dir)).digest()
    return program_header(job, initial).root, initial
