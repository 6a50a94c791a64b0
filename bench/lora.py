"""What adapters cost on a model of 124M parameters: `python bench/lora.py [--json] [--preset P]`.

Weights are random, of the shapes of a Llama-like model as large as GPT-2, or of a preset's. A
provider's round of one segment of two steps is trained in a process of its own, from the store, and
another replays it; a member's merges updates of all seats (the same one over again: their sizes are
what counts) and writes the next global state. Printed are the update's bytes and each process's
peak memory and CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.jobs import PLAIN
from tests.unit.train.factories import KEY, task_of
from torch import Tensor

from atoll.aggregation.merge_round import merge
from atoll.job.presets import preset
from atoll.numerics.init import initial_global_state, write_params
from atoll.numerics.state_layout import param_count, param_shapes
from atoll.numerics.tensors import tree_root
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.manifest import DataSpec, InitSpec, Manifest
from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.model_spec import LoraSpec, ModelSpec
from atoll.protocol.types import Digest, SeatIndex, to_bitmap
from atoll.storage.local import LocalStore
from atoll.train.data import write_tokens
from atoll.train.probe import numerics_spec, pin_torch
from atoll.train.replay import RevealedRound, replay_seat
from atoll.train.round import train_round
from atoll.train.seat_task import TrainTask
from atoll.train.stored_states import read_global_state

MAX_UPDATE = 3_000_000
FROZEN_BYTES, MEMORY_BASE = 8, 10**9
"""The bar: so much a parameter of the base, and a gigabyte."""
LORA = LoraSpec(rank=8, alpha="16", targets=("q", "k", "v", "o", "gate", "up", "down"))
_MODEL = {
    "vocab": 50257, "width": 768, "layers": 12, "heads": 12, "kv_heads": 12, "head_dim": 64,
    "ffn": 2048, "seq": 256,
}  # fmt: skip
_KIB = 1024


def weight(name: str, shape: tuple[int, ...]) -> Tensor:
    """Ones for gains, and noise of which every tensor has its own."""
    if len(shape) == 1:
        return torch.ones(shape)
    random = torch.Generator().manual_seed(sum(name.encode()))
    return torch.randn(shape, generator=random) * 0.02


def prepare(folder: Path, name: str) -> None:
    """Writes base, data, first model and manifest into a store below the folder."""
    store = LocalStore(folder / "store", sync=False)
    model = PLAIN.model.model_copy(update=_MODEL) if PLAIN.model else ModelSpec(**_MODEL)
    if name and (shape := preset(name).model) is not None:
        model = shape.model_copy(update={"seq": _MODEL["seq"]})
    sizes = {"inner.steps": 2, "inner.segment": 2, "inner.batch": 2, "inner.micro_batch": 1}
    codec = preset("lora").method.codec
    job = PLAIN.but({**sizes, "model": model, "lora": LORA, "rounds": 1, "method.codec": codec})
    shapes = param_shapes(model)
    weights = {name: weight(name, shape) for name, shape in shapes.items()}
    cid = store.add_pieces(write_params(shapes, weights.__getitem__))
    init = InitSpec(seed=None, cid=cid.to_bytes(), root=tree_root(weights))
    manifest = job.resolve(_data(store, model.vocab), init, numerics_spec(), now=0)
    initial_state = store.add_pieces(initial_global_state(manifest).pieces())
    (folder / "manifest").write_bytes(manifest.to_bytes())
    (folder / "initial_state").write_bytes(initial_state.to_bytes())


def _data(store: LocalStore, vocabulary: int) -> DataSpec:
    tokens = (np.arange(100_000) * 7919 % vocabulary).astype("<u2")
    written = write_tokens(tokens, store)
    return DataSpec(
        cid=written.cid,
        root=written.root,
        nodes_cid=written.nodes_cid,
        dtype="uint16",
        masked=False,
        aligned=False,
        train_tokens=len(tokens),
        eval_cid=None,
        eval_tokens=0,
        eval_batches=0,
        tokenizer_cid=store.add_bytes(b"no tokenizer").to_bytes(),
    )


def role(name: str, folder: Path) -> dict[str, float]:
    """Does a role's work in this process."""
    pin_torch()
    store = LocalStore(folder / "store", sync=False)
    manifest = Manifest.from_bytes((folder / "manifest").read_bytes())
    task = task_of(manifest, (folder / "initial_state").read_bytes())
    before, started = _peak(), time.perf_counter()
    figures = {"provider": _trained, "verifier": _replayed, "member": _merged}[name](
        task, store, folder
    )
    figures |= {
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time(), 1),
    }
    return figures | {"peak_bytes": float(_peak()), "bytes_before": float(before)}


def _trained(task: TrainTask, store: LocalStore, folder: Path) -> dict[str, float]:
    trained = train_round(task, store)
    (folder / "checkpoint_commitments").write_bytes(trained.checkpoint_commitments(KEY).to_bytes())
    (folder / "root").write_bytes(trained.update_root)
    (folder / "update").write_bytes(trained.update)
    return {"update_bytes": float(len(trained.update))}


def _replayed(task: TrainTask, store: LocalStore, folder: Path) -> dict[str, float]:
    checkpoint_commitments = CheckpointCommitments.from_bytes(
        (folder / "checkpoint_commitments").read_bytes()
    )
    claimed = RevealedRound(checkpoint_commitments, Digest((folder / "root").read_bytes()))
    return {"matches": float(replay_seat(task, claimed, store).mismatch_at is None)}


def _merged(task: TrainTask, store: LocalStore, folder: Path) -> dict[str, float]:
    manifest, update = task.manifest, (folder / "update").read_bytes()
    seats = [SeatIndex(seat) for seat in range(manifest.terms.seats)]
    there = to_bitmap(seats)
    merged = merge(
        read_global_state(manifest, task.global_state_cid, store),
        dict.fromkeys(seats, update),
        record=MergeRecord(there, 1, [there], dict.fromkeys(seats, manifest.segments)),
        data_seed=task.data_seed,
        manifest=manifest,
    )
    store.add_pieces(merged.global_state.pieces())
    return {"merged": float(sum(merged.weights.values()))}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB


def _apart(name: str, folder: Path, shape: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--role", name, "--folder", str(folder)]
    command += ["--preset", shape] if shape else []
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(shape: str) -> dict[str, object]:
    """Every figure, and whether the bars hold."""
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        _apart("prepare", folder, shape)
        roles = {name: _apart(name, folder, shape) for name in ("provider", "verifier", "member")}
        model = Manifest.from_bytes((folder / "manifest").read_bytes()).model
    base = param_count(model)
    limit = FROZEN_BYTES * base + MEMORY_BASE
    holds = all(found["peak_bytes"] <= limit for found in roles.values())
    # The bar of an update's bytes is that of a model as large as GPT-2.
    holds = holds and (bool(shape) or roles["provider"]["update_bytes"] <= MAX_UPDATE)
    matches = roles["verifier"]["matches"] == 1.0 and roles["member"]["merged"] == 1.0
    return {
        "base_parameters": base, "limit_bytes": limit, "holds": holds and matches, **roles,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--preset", default="", help="whose model it is, of random weights")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.role == "prepare":
        prepare(chosen.folder, chosen.preset)
        sys.stdout.write("{}\n")
    elif chosen.role:
        sys.stdout.write(json.dumps(role(chosen.role, chosen.folder)) + "\n")
    else:
        found = measure(chosen.preset)
        indent = None if chosen.json else 2
        sys.stdout.write(json.dumps(found, indent=indent) + "\n")
        sys.exit(0 if found["holds"] else 1)


if __name__ == "__main__":
    main()
