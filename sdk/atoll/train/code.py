"""Which code a replay runs: one digest over the files that decide a bit. Needs no torch."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from atoll.protocol.types import Digest

REPLAYED = (
    "aggregate/block_steps.py",
    "aggregate/codec.py",
    "aggregate/dct.py",
    "aggregate/dense.py",
    "aggregate/feedback.py",
    "aggregate/fp32.py",
    "aggregate/grid.py",
    "aggregate/header.py",
    "aggregate/layout.py",
    "aggregate/packing.py",
    "aggregate/registry.py",
    "aggregate/sparse.py",
    "numerics/acceptance.py",
    "numerics/attention.py",
    "numerics/build.py",
    "numerics/compiled.py",
    "numerics/elementary.py",
    "numerics/engine.py",
    "numerics/exact.py",
    "numerics/gemm.py",
    "numerics/grid.py",
    "numerics/kernels.c",
    "numerics/kernels.py",
    "numerics/linear.py",
    "numerics/muon.py",
    "numerics/philox.py",
    "numerics/pointwise.py",
    "numerics/reference.py",
    "train/batch.py",
    "train/decimals.py",
    "train/fixed.py",
    "train/init.py",
    "train/layout.py",
    "train/model.py",
    "train/ops.py",
    "train/recipe.py",
    "train/round.py",
    "train/segment.py",
    "train/state.py",
    "train/step.py",
    "train/tensors.py",
)
"""Files below `atoll/`, ascending."""


def code_digest() -> Digest:
    """SHA-256 over name and SHA-256 of every file in `REPLAYED`."""
    root = Path(__file__).parent.parent
    lines = (f"{name} {sha256((root / name).read_bytes()).hexdigest()}\n" for name in REPLAYED)
    return Digest(sha256("".join(lines).encode()).digest())
