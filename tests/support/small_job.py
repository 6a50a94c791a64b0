"""A job so small that a round takes a second, in a store: no part of the job room is needed.

Four segments of two steps, AdamW, int8, four seats of which one may be bad.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.unit.protocol.factories import DOMAIN, make_terms, plain_manifest

from atoll.numerics.tables import tables_root
from atoll.protocol.manifest import Manifest, NumericsSpec
from atoll.protocol.terms import terms_to_plain
from atoll.protocol.words import Digest, JobId, RoundIndex, SeatIndex, Slot, Terms
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.prepare import prepare
from atoll.train.initial import open_initial_state
from atoll.train.probe import numerics_spec, pin_torch
from atoll.train.program import program_root
from atoll.train.seat_task import TrainTask
from atoll_devnet.processes.warm import warm_context

DATA_SEED = Digest(b"\x05" * 32)
FIRST = Slot(DOMAIN, JobId(1), RoundIndex(0))
TEXT = "".join(f"line {i}: the quick brown fox jumps over {i * i} lazy dogs\n" for i in range(300))
SMALL = {"width": 32, "layers": 2, "heads": 2, "kv_heads": 2, "ffn": 64, "seq": 32}
STEPS = {"batch": 4, "micro_batch": 4, "lr": "0.003"}
KINDS = ("embedding", "matrix", "vector")
GRID = {
    "exponents": dict.fromkeys(KINDS, -10),
    "moment_exponents": dict.fromkeys(KINDS, -12),
}
"""As fine as −5 times an update allows: none of its values is cut off."""


def small_terms(**changes: Any) -> Terms:
    """Those of `small_manifest`."""
    sizes = {"steps": 8, "segment_steps": 2, "tokens_per_step": 4 * 32}
    return make_terms(**{**sizes, **changes})


@cache
def numerics_of_members() -> NumericsSpec:
    """As members find them, asked of the process that they are forked from, which knows them."""
    with ProcessPoolExecutor(1, mp_context=warm_context()) as pool:
        return pool.submit(numerics_spec).result()


def small_manifest(
    store: LocalStore, numerics: NumericsSpec | None = None, **changes: Any
) -> Manifest:
    """Its data are put into the store.

    Args:
        numerics: None for those that this process comes to.
        changes: of the terms.
    """
    plain = plain_manifest()
    plain["model"] |= SMALL
    terms = small_terms(**changes)
    plain["inner"] |= STEPS | {"steps": terms.steps, "segment": terms.segment_steps}
    plain["codec"] |= GRID
    plain["numerics"] = (numerics or numerics_spec()).model_dump()
    text = store.root.parent / "text.txt"
    text.write_text(TEXT)
    options = DataOptions(paths=(text,), held_out="0.1", model_vocab=plain["model"]["vocab"])
    plain["data"] = prepare(options, store, lambda _: None).spec(1).model_dump()
    plain["terms"] = terms_to_plain(terms)
    drafted = Manifest.model_validate(plain)
    total = drafted.terms.rounds * drafted.inner.steps
    plain["tables"] = tables_root(drafted.model, drafted.inner, total)
    return Manifest.model_validate(plain)


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
