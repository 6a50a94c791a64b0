"""Whether this machine gives a job's bits."""

from __future__ import annotations

import torch

from atoll.errors import NumericsMismatch
from atoll.numerics.kernels.devices import kind_here
from atoll.numerics.schedule_tables import check_tables
from atoll.protocol.manifest import Manifest, NumericsSpec
from atoll.protocol.types import Digest
from atoll.train.code import code_digest
from atoll.train.probe_job import probe_digest
from atoll.train.releases import check_code


def pin_torch() -> None:
    """Pins PyTorch's own settings: one thread, deterministic kernels. Call before any other.

    Exact bits do not depend on them, which the start-up step shows; experiments' native ones do.
    """
    torch.set_num_threads(1)
    # What use_deterministic_algorithms does, without its second of importing the compiler. On a GPU
    # it refuses sums that have any order, which ours of integers may have.
    torch.set_deterministic_debug_mode("error" if kind_here() == "cpu" else "default")
    # That also fills new memory with NaN, a tenth of a step: every kernel writes all that it makes.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.set_float32_matmul_precision("highest")
    torch.set_flush_denormal(False)


def numerics_spec() -> NumericsSpec:
    """What a manifest says about numerics; the same on every machine that comes to the bits."""
    return NumericsSpec(code_digest=code_digest(), probe_digest=probe_digest())


def check_environment(manifest: Manifest) -> None:
    """Holds the manifest against what this machine works out.

    Raises:
        ManifestError: its tables are not those of its choices.
        NumericsMismatch: this machine does not give what its numerics ask for.
    """
    wanted = manifest.numerics
    check_code(Digest(wanted.code_digest))
    _check_probe(wanted)
    check_tables(manifest)  # last: a long job's take half a minute, and anybody can name a job


def _check_probe(wanted: NumericsSpec) -> None:
    if wanted.probe_digest != probe_digest():
        here, there = probe_digest().hex()[:16], wanted.probe_digest.hex()[:16]
        raise NumericsMismatch(
            f"the probe gives {here} here, the job needs {there}",
            next_step="check OMP, MKL and ATEN variables, or take another job",
        )
