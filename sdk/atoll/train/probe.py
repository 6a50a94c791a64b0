"""Whether this machine gives a job's bits, or in tolerant mode comes near enough."""

from __future__ import annotations

import platform

import torch

from atoll.bits.batch import gather_batch
from atoll.bits.init import initial_params
from atoll.bits.layout import optimiser_layout, param_shapes
from atoll.bits.ops import operations
from atoll.bits.schedule import Recipe
from atoll.bits.state import GlobalState, SeatState
from atoll.bits.step import inner_step
from atoll.bits.tables import check_tables
from atoll.errors import NumericsMismatch
from atoll.law.draws import batch_offsets
from atoll.law.manifest import (
    UNSCALED,
    InnerSpec,
    Manifest,
    ModelSpec,
    NumericsSpec,
    ToleranceSpec,
)
from atoll.law.words import Digest, NumericsMode, SeatIndex
from atoll.train.code import code_digest
from atoll.train.coherence import CLEARLY_WITHIN
from atoll.train.probe_job import probe_digest
from atoll.train.tolerance import Replayed, default_tolerance, distances, excess

_MODEL = ModelSpec(
    kind="llama", vocab=256, width=64, layers=2, heads=4, kv_heads=4, head_dim=16,
    qkv_bias=False, qk_norm=False, mlp="swiglu", ffn=176, seq=64, tied=True, norm_eps="0.00001",
    rope_base=10000, rope_scaling=UNSCALED,
)  # fmt: skip
_INNER = InnerSpec(
    optimizer="adamw", lr="0.001", momentum="0", beta1="0.9", beta2="0.99", eps="0.00000001",
    weight_decay="0.1", dropout="0", clip="1", schedule="cosine", warmup_steps=1, steps=2,
    batch=8, segment=1, micro_batch=4,
)  # fmt: skip


def configure_native() -> None:
    """Pins what native bits depend on: one thread, deterministic kernels. Call before any other."""
    torch.set_num_threads(1)
    # What use_deterministic_algorithms does, without its second of importing the compiler.
    torch.set_deterministic_debug_mode("error")
    torch.set_float32_matmul_precision("highest")
    torch.set_flush_denormal(False)


def software_class() -> str:
    """The class within which native replays are bit-exact, as the manifest names it."""
    capability = torch.backends.cpu.get_cpu_capability()
    machine = platform.machine().lower()
    return f"torch {torch.__version__}; {machine} {capability}; threads {torch.get_num_threads()}"


def probe_excess(limits: ToleranceSpec) -> float:
    """How far this machine's fp32 probe lies from its fp64 one, as a share of what is allowed."""
    opening, claimed = _two_steps(torch.float32)
    _, closing = _two_steps(torch.float64)
    segment = Replayed(opening, claimed, closing, _INNER.steps)
    return excess(distances(segment), (0.0, 0.0), limits)


def _two_steps(dtype: torch.dtype) -> tuple[SeatState, SeatState]:
    """A micro-model's state before and after two steps of PyTorch's own arithmetic."""
    shapes = param_shapes(_MODEL)
    params = {name: p.to(dtype) for name, p in initial_params(shapes, seed=0).items()}
    model = GlobalState(0, params, {}, {})
    opening = state = SeatState.opening(model, None, optimiser_layout(shapes, _INNER))
    tokens = (
        torch.arange(1 << 12).mul(2654435761).remainder(1 << 32).div(1 << 24, rounding_mode="floor")
    )
    recipe = Recipe(_MODEL, _INNER, total_steps=2, ops=operations("tolerant"))
    for step in range(_INNER.steps):
        offsets = batch_offsets(Digest(bytes(32)), SeatIndex(0), step, _INNER.batch, 4000)
        batch = gather_batch(tokens.numpy().astype("u1"), offsets, _MODEL.seq)
        state = inner_step(state, batch, step, recipe).state
    return opening, state


def numerics_spec(mode: NumericsMode = "exact") -> NumericsSpec:
    """What a manifest made on this machine says about numerics.

    In exact and tolerant mode it says the same on every machine.
    """
    return NumericsSpec(
        mode=mode,
        code_digest=code_digest(),
        software_class=software_class() if mode == "native" else None,
        probe_digest=None if mode == "tolerant" else probe_digest(mode),
        tolerance=default_tolerance() if mode == "tolerant" else None,
    )


def check_environment(manifest: Manifest) -> None:
    """Holds the manifest against what this machine works out.

    Raises:
        ManifestError: its tables are not those of its choices.
        NumericsMismatch: this machine does not give what its numerics ask for.
    """
    wanted = manifest.numerics
    if wanted.mode == "native" and wanted.software_class != software_class():
        raise NumericsMismatch(
            f"this machine is {software_class()!r}, the job needs {wanted.software_class!r}",
            next_step="install the PyTorch version it names, on such a CPU, or take another job",
        )
    if wanted.code_digest != code_digest():
        here, there = code_digest().hex()[:16], wanted.code_digest.hex()[:16]
        raise NumericsMismatch(
            f"the training code here is {here}, the job needs {there}",
            next_step="install the version of atoll that the job was made with",
        )
    _check_probe(wanted)
    check_tables(manifest)  # last: a long job's take half a minute, and anybody can name a job


def _check_probe(wanted: NumericsSpec) -> None:
    if wanted.tolerance is not None:
        found = probe_excess(wanted.tolerance)
        if found > CLEARLY_WITHIN:
            raise NumericsMismatch(
                f"two probe steps lie {found:.2g} of the job's tolerance away from fp64",
                next_step="run `atoll numerics calibrate` to see why, or take another job",
            )
    elif wanted.probe_digest != probe_digest(wanted.mode):
        here, there = probe_digest(wanted.mode), wanted.probe_digest or b""
        raise NumericsMismatch(
            f"the probe gives {here.hex()[:16]} here, the job needs {there.hex()[:16]}",
            next_step="check OMP, MKL and ATEN variables, or take another job",
        )
