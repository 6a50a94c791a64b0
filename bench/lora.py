"""What adapters cost on a model of 124M parameters: `python bench/lora.py [--json]`.

Weights are random, of the shapes of a Llama-like model as large as GPT-2. A provider's round of
one segment of two steps is trained in a process of its own, from the store, and another replays
it; printed are the update's bytes and each process's peak memory.
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

from atoll.job.presets import preset
from atoll.numerics.init import initial_global_state, write_params
from atoll.numerics.state_layout import param_count, param_shapes
from atoll.numerics.tensors import tree_root
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.manifest import DataSpec, InitSpec, Manifest
from atoll.protocol.model_spec import LoraSpec, ModelSpec
from atoll.protocol.types import Digest
from atoll.storage.local import LocalStore
from atoll.train.data import write_tokens
from atoll.train.probe import numerics_spec, pin_torch
from atoll.train.replay import RevealedRound, replay_seat
from atoll.train.round import train_round

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


def prepare(folder: Path) -> None:
    """Writes base, data, first model and manifest into a store below the folder."""
    store = LocalStore(folder / "store", sync=False)
    model = PLAIN.model.model_copy(update=_MODEL) if PLAIN.model else ModelSpec(**_MODEL)
    sizes = {"inner.steps": 2, "inner.segment": 2, "inner.batch": 2, "inner.micro_batch": 1}
    codec = preset("lora").method.codec
    job = PLAIN.but({**sizes, "model": model, "lora": LORA, "rounds": 1, "method.codec": codec})
    shapes = param_shapes(model)
    weights = {name: weight(name, shape) for name, shape in shapes.items()}
    cid = store.add_pieces(write_params(shapes, weights.__getitem__))
    init = InitSpec(seed=None, cid=cid.to_bytes(), root=tree_root(weights))
    manifest = job.resolve(_data(store), init, numerics_spec(), now=0)
    initial_state = store.add_pieces(initial_global_state(manifest).pieces())
    (folder / "manifest").write_bytes(manifest.to_bytes())
    (folder / "initial_state").write_bytes(initial_state.to_bytes())


def _data(store: LocalStore) -> DataSpec:
    tokens = (np.arange(100_000) * 7919 % _MODEL["vocab"]).astype("<u2")
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
    before, started, found = _peak(), time.perf_counter(), {}
    if name == "provider":
        trained = train_round(task, store)
        found["update_bytes"] = float(len(trained.update))
        (folder / "checkpoint_commitments").write_bytes(
            trained.checkpoint_commitments(KEY).to_bytes()
        )
        (folder / "root").write_bytes(trained.update_root)
    else:
        checkpoint_commitments = CheckpointCommitments.from_bytes(
            (folder / "checkpoint_commitments").read_bytes()
        )
        claimed = RevealedRound(checkpoint_commitments, Digest((folder / "root").read_bytes()))
        found["matches"] = float(replay_seat(task, claimed, store).mismatch_at is None)
    found |= {"seconds": round(time.perf_counter() - started, 1)}
    return found | {"peak_bytes": float(_peak()), "bytes_before": float(before)}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB


def _apart(name: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--role", name, "--folder", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure() -> dict[str, object]:
    """Every figure, and whether the bars hold."""
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        _apart("prepare", folder)
        roles = {name: _apart(name, folder) for name in ("provider", "verifier")}
        model = Manifest.from_bytes((folder / "manifest").read_bytes()).model
    base = param_count(model)
    limit = FROZEN_BYTES * base + MEMORY_BASE
    holds = all(found["peak_bytes"] <= limit for found in roles.values())
    holds = holds and roles["provider"]["update_bytes"] <= MAX_UPDATE
    matches = roles["verifier"]["matches"] == 1.0
    return {
        "base_parameters": base, "limit_bytes": limit, "holds": holds and matches, **roles,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.role == "prepare":
        prepare(chosen.folder)
        sys.stdout.write("{}\n")
    elif chosen.role:
        sys.stdout.write(json.dumps(role(chosen.role, chosen.folder)) + "\n")
    else:
        found = measure()
        indent = None if chosen.json else 2
        sys.stdout.write(json.dumps(found, indent=indent) + "\n")
        sys.exit(0 if found["holds"] else 1)


if __name__ == "__main__":
    main()
