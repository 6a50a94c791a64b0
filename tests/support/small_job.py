"""A job so small that a round takes a second, in a store: no part of the job room is needed.

Four segments of two steps, AdamW, int8, four seats of which one may be bad.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.identities import DOMAIN
from tests.support.manifests import DEMO, whole_manifest

from atoll.protocol.manifest import Manifest, NumericsSpec
from atoll.protocol.types import Digest, JobId, RoundId, RoundIndex, SeatIndex
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.prepare import prepare
from atoll.train.initial_model import open_initial_state
from atoll.train.manifest_program import program_root
from atoll.train.probe import numerics_spec, pin_torch
from atoll.train.seat_task import TrainTask
from atoll_devnet.processes.warm import warm_context

DATA_SEED = Digest(b"\x05" * 32)
FIRST = RoundId(DOMAIN, JobId(1), RoundIndex(0))
TEXT = "".join(f"line {i}: the quick brown fox jumps over {i * i} lazy dogs\n" for i in range(300))


@cache
def numerics_of_members() -> NumericsSpec:
    """As members find them, asked of the process that they are forked from, which knows them."""
    with ProcessPoolExecutor(1, mp_context=warm_context()) as pool:
        return pool.submit(numerics_spec).result()


def small_manifest(
    store: LocalStore,
    numerics: NumericsSpec | None = None,
    inner: Mapping[str, Any] | None = None,
    **terms: Any,
) -> Manifest:
    """Its data are put into the store.

    Args:
        numerics: None for those that this process comes to.
        inner: other fields of the inner optimisation than those of the small base.
        terms: other ones than those of the small base.
    """
    text = store.root.parent / "text.txt"
    text.write_text(TEXT)
    options = DataOptions(paths=(text,), held_out="0.1", model_vocab=DEMO["model"]["vocab"])
    return whole_manifest(
        {
            "numerics": (numerics or numerics_spec()).model_dump(),
            "data": prepare(options, store, lambda _: None).spec(1).model_dump(),
            "inner": {
                "steps": terms.get("steps", 8),
                "segment": terms.get("segment_steps", 2),
                **(inner or {}),
            },
            "terms": terms,
        },
        "small",
    )


def with_program(manifest: Manifest, store: LocalStore) -> Manifest:
    """The same job with a judge."""
    root, _ = program_root(manifest.to_bytes(), str(store.root))
    terms = replace(manifest.terms, program=root)
    return manifest.model_copy(update={"terms": terms})


@dataclass(frozen=True)
class SmallJob:
    """A prepared job in a store of its own."""

    store: LocalStore
    manifest: Manifest
    task: TrainTask

    def of_seat(self, seat: int) -> TrainTask:
        return replace(self.task, seat=SeatIndex(seat))


def small_job(folder: Path) -> SmallJob:
    pin_torch()
    store = LocalStore(folder / "store")
    manifest = small_manifest(store)
    model = open_initial_state(manifest, store)
    cid = store.add_pieces(model.pieces()).to_bytes()
    return SmallJob(store, manifest, TrainTask(manifest, FIRST, SeatIndex(2), DATA_SEED, cid))


def damage(store: LocalStore, cid: bytes) -> None:
    """Flips a bit of a file's last leaf on the disk."""
    leaf = store.leaves(Cid.from_bytes(cid), 1 << 30)[-1].cid
    (path,) = store.root.rglob(leaf.digest.hex())
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
