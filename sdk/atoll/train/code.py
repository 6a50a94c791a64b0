"""Which code a replay runs: one digest over the files that decide a bit. Needs no torch."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from atoll.law.words import Digest

REPLAYED = (
    "bits/batch.py",
    "bits/codec/base.py",
    "bits/codec/block_steps.py",
    "bits/codec/dct.py",
    "bits/codec/dense.py",
    "bits/codec/feedback.py",
    "bits/codec/fp32.py",
    "bits/codec/grid.py",
    "bits/codec/header.py",
    "bits/codec/layout.py",
    "bits/codec/packing.py",
    "bits/codec/registry.py",
    "bits/codec/sparse.py",
    "bits/decimals.py",
    "bits/fixed.py",
    "bits/init.py",
    "bits/kernels/acceptance.py",
    "bits/kernels/attention.py",
    "bits/kernels/build.py",
    "bits/kernels/compiled.py",
    "bits/kernels/elementary.py",
    "bits/kernels/engine.py",
    "bits/kernels/exact.py",
    "bits/kernels/gemm.py",
    "bits/kernels/grid.py",
    "bits/kernels/interface.py",
    "bits/kernels/kernels.c",
    "bits/kernels/linear.py",
    "bits/kernels/muon.py",
    "bits/kernels/philox.py",
    "bits/kernels/pointwise.py",
    "bits/kernels/reference.py",
    "bits/layout.py",
    "bits/link.py",
    "bits/model.py",
    "bits/ops.py",
    "bits/outer.py",
    "bits/schedule.py",
    "bits/segment.py",
    "bits/state.py",
    "bits/step.py",
    "bits/tensors.py",
    "bits/tokens.py",
    "train/round.py",
)
"""Files below `atoll/`, ascending."""


def code_digest() -> Digest:
    """SHA-256 over name and SHA-256 of every file in `REPLAYED`."""
    root = Path(__file__).parent.parent
    lines = (f"{name} {sha256((root / name).read_bytes()).hexdigest()}\n" for name in REPLAYED)
    return Digest(sha256("".join(lines).encode()).digest())
