"""The differential lab: one small training run, whose digest every machine and setting must give.

A setting is how the run is computed (route, kernels, threads, instruction-set caps, device); each
is tried in a process of its own, since libraries read their caps once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import structlog
import torch

from atoll.errors import AtollError, NumericsMismatch
from atoll.nested import loads
from atoll.numerics.batch import MicroBatch, Windows
from atoll.numerics.gradients import StepInput
from atoll.numerics.init import initial_params
from atoll.numerics.kernels.devices import shown_gpus
from atoll.numerics.kernels.engine import make_engine
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.gemm import FP32_SPLIT_K, fp32_route
from atoll.numerics.kernels.philox import LOW32, philox4x32
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import optimiser_layout, param_shapes
from atoll.numerics.step import inner_step, state_roots
from atoll.protocol.method_spec import InnerSpec
from atoll.protocol.model_spec import UNSCALED, ModelSpec
from atoll.protocol.optimisers import INNER_OPTIMISERS
from atoll.train.island import Island

BATCH, VOCABULARY = 4, 256
CAPS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR")
"""Environment variables with which PyTorch's libraries are held to fewer instructions."""
EXPECTED = Path(__file__).with_name("expected.json")
RUN_SECONDS = 1800  # of one setting, on the slowest machine; more is a library that hangs


@dataclass(frozen=True, slots=True)
class LabRun:
    """What is trained: the digest is a function of this alone."""

    width: int = 64
    layers: int = 2
    seq: int = 64
    steps: int = 200
    seed: int = 0
    optimizer: Literal["adamw", "muon"] = "adamw"

    @property
    def key(self) -> str:
        """Its name in `expected.json`."""
        return (
            f"{self.optimizer} width {self.width} layers {self.layers} seq {self.seq} "
            f"steps {self.steps} seed {self.seed}"
        )

    def model(self) -> ModelSpec:
        heads, ffn = max(2, self.width // 64 // 2 * 2), -(-8 * self.width // 3 // 16) * 16
        return ModelSpec(
            kind="llama", vocab=VOCABULARY, width=self.width, layers=self.layers, heads=heads,
            kv_heads=heads // 2, head_dim=self.width // heads, qkv_bias=False, qk_norm=False,
            mlp="swiglu", ffn=ffn, seq=self.seq, tied=True, norm_eps="0.00001", rope_base=10000,
            rope_scaling=UNSCALED,
        )  # fmt: skip

    def inner(self) -> InnerSpec:
        momentum = "0" if "momentum" in INNER_OPTIMISERS[self.optimizer].unused else "0.95"
        return InnerSpec(
            optimizer=self.optimizer, lr="0.003", momentum=momentum, beta1="0.9", beta2="0.95",
            eps="0.00000001", weight_decay="0.1", dropout="0", clip="1", schedule="cosine",
            warmup_steps=10, steps=self.steps, batch=BATCH, segment=self.steps,
            micro_batch=BATCH // 2, lanes=1,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setting:
    """How it is computed.

    Attributes:
        slices: attention slices worked on at a time; None for the engine's own number.
        inner: columns of one fp32 product, on that route.
        ranks: processes that hold the state and compute steps, by turns at the GPUs where the
            device is one; those that follow choose route and kernels by themselves.
        caps: environment variables, set before libraries load.
    """

    route: str = "auto"
    threads: int = 1
    kernels: str = "auto"
    device: str = "cpu"
    slices: int | None = None
    inner: int = FP32_SPLIT_K
    ranks: int = 1
    caps: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LabResult:
    """One run's digest and how it came about.

    Attributes:
        digest: SHA-256 state digest after the last step, hex.
        isa: PyTorch's own word for its vector code here, and the caps in force.
        loss: of the last batch, nats a token.
    """

    digest: str
    route: str
    kernels: str
    threads: int
    isa: str
    device: str
    tokens_per_second: float
    loss: float


def run(what: LabRun, how: Setting) -> LabResult:
    """Trains in this process.

    Raises:
        ConfigError: the setting asks for what is not exact or not to be had here.
        NumericsMismatch: a step was not finite, which no setting of the lab is.
    """
    torch.set_num_threads(how.threads)
    engine = make_engine(how.route, how.kernels, how.device)
    if how.slices is not None:
        engine = replace(engine, slices=how.slices)
    if engine.route.name == "fp32":
        engine = replace(engine, route=fp32_route(how.inner))
    recipe = Recipe(what.model(), what.inner(), what.steps, ExactOps(engine))
    state, tokens = _initial_state(what), lab_tokens(what.seed)
    started, loss = time.perf_counter(), 0.0
    with Island(how.ranks, device=engine.device, gpus=_gpus(how)) as island:
        state = state.held_by(island.holds(param_shapes(what.model()), what.inner()))
        for step in range(what.steps):
            given = StepInput(_batch(tokens, what, step), step)
            done = inner_step(state, given, recipe)
            if done.diverged:
                raise NumericsMismatch(f"step {step} of the lab's run is not finite")
            state, loss = done.state, done.loss
        seconds = time.perf_counter() - started
        digest = state_roots(state).digest().hex()
    return LabResult(
        digest=digest,
        route=engine.route.name,
        kernels=engine.kernels.name,
        threads=how.threads,
        isa=instruction_set(),
        device=how.device,
        tokens_per_second=round(what.steps * BATCH * what.seq / seconds, 1),
        loss=loss,
    )


def _gpus(how: Setting) -> tuple[str, ...]:
    """Of each rank; some share one where there are more ranks."""
    if how.device == "cpu":
        return ()
    gpus = shown_gpus(torch.cuda.device_count())
    return tuple(gpus[rank % len(gpus)] for rank in range(how.ranks))


def instruction_set() -> str:
    """What PyTorch's own kernels use here, and the caps put on its libraries."""
    caps = "".join(f"; {name}={os.environ[name]}" for name in CAPS if name in os.environ)
    return torch.backends.cpu.get_cpu_capability() + caps


def lab_tokens(seed: int, count: int = 1 << 14) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """A walk over the bytes in steps of 0 to 3: something to learn, from Philox integers."""
    blocks = torch.arange(count)
    zeros = torch.zeros_like(blocks)
    word, *_ = philox4x32((blocks, zeros, zeros, zeros), (seed & LOW32, 0x1AB))
    walk: np.ndarray[tuple[int], np.dtype[np.uint8]] = (word >> 30).cumsum(0).byte().numpy()
    return walk


def _initial_state(what: LabRun) -> SeatState:
    shapes = param_shapes(what.model())
    params = initial_params(shapes, seed=what.seed)
    return SeatState.initial(GlobalState(0, params, {}, {}), optimiser_layout(shapes, what.inner()))


def _batch(
    tokens: np.ndarray[tuple[int], np.dtype[np.uint8]], what: LabRun, step: int
) -> list[MicroBatch]:
    last = len(tokens) - what.seq - 1
    offsets = [(step * BATCH + row) * 2654435761 % last for row in range(BATCH)]
    windows, size = Windows(tokens, what.seq), what.inner().micro_batch
    return [windows.at(offsets[at : at + size]) for at in range(0, BATCH, size)]


def standard_matrix() -> list[tuple[LabRun, Setting]]:
    """AdamW under every setting, Muon under every route, kernel implementation and thread count."""
    short = LabRun(optimizer="muon", width=32, layers=1, seq=16, steps=4)
    is_there, routes = torch.cuda.is_available(), ("auto", "bf16", "fp32", "fp64")
    on_gpu = [Setting(device="cuda", route=route) for route in routes] if is_there else []
    on_gpu += [Setting(device="cuda", kernels="eager")] if is_there else []
    everything = _computations() + _caps() + on_gpu
    muon = [(LabRun(optimizer="muon"), setting) for setting in (*_computations(), *on_gpu[:1])]
    capped = [(short, setting) for setting in _caps()]
    return [(LabRun(), setting) for setting in everything] + muon + capped


def _computations() -> list[Setting]:
    settings = [Setting(route=route) for route in ("int8", "fp32", "fp64")]
    settings += [Setting(kernels="eager"), Setting(threads=2), Setting(route="fp32", threads=2)]
    return [*settings, Setting(slices=1), Setting(slices=3), Setting(route="fp32", inner=48)]


def _caps() -> list[Setting]:
    """ATen's caps are tried on eager kernels, which are ATen's; the others bear on products."""
    settings = [
        Setting(caps={"ATEN_CPU_CAPABILITY": value}, kernels="eager", threads=threads)
        for value, threads in (("default", 1), ("avx2", 2), ("avx512", 1))
    ]
    values = {
        "ONEDNN_MAX_CPU_ISA": ("SSE41", "AVX2", "AVX512_CORE", "AVX512_CORE_VNNI"),
        "MKL_ENABLE_INSTRUCTIONS": ("SSE4_2", "AVX2", "AVX512"),
        "MKL_CBWR": ("COMPATIBLE",),
    }
    return settings + [
        Setting(caps={name: value}, route="fp32" if name.startswith("MKL") else "auto")
        for name, choices in values.items()
        for value in choices
    ]


def run_apart(what: LabRun, how: Setting) -> LabResult | str:
    """As `run`, in a new process with the caps set; its error's text where it has no result."""
    arguments = [json.dumps(asdict(what)), json.dumps(asdict(replace(how, caps={})))]
    kept = {k: v for k, v in os.environ.items() if k not in CAPS}
    # Threads that spin while they wait take a shared machine's cores from each other.
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **kept, **how.caps}
    done = subprocess.run(  # noqa: S603 - this interpreter on this package
        [sys.executable, "-m", "atoll.lab.differential", *arguments],
        capture_output=True, text=True, timeout=RUN_SECONDS, check=False, env=environment,
    )  # fmt: skip
    if done.returncode:
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no result"
    return LabResult(**loads(done.stdout.splitlines()[-1]))


def expected_digest(what: LabRun) -> str | None:
    """The digest this repository says that run has, if it says."""
    digests: dict[str, str] = loads(EXPECTED.read_text())
    return digests.get(what.key)


def main() -> None:
    """`python -m atoll.lab.differential RUN SETTING`, both JSON: prints the result's JSON."""
    # Standard output is the document's alone.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))
    try:
        result = run(LabRun(**loads(sys.argv[1])), Setting(**loads(sys.argv[2])))
    except AtollError as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


if __name__ == "__main__":
    main()
