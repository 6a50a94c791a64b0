"""One process of a calibration: the segments of a reference run, trained again another way.

Run as `python -m atoll.lab.trial FOLDER TRIAL`, TRIAL being JSON; prints what `measure` gives.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from atoll.bits.batch import gather_batch
from atoll.bits.init import initial_params
from atoll.bits.layout import optimiser_layout, param_shapes
from atoll.bits.ops import NativeOps, Ops
from atoll.bits.schedule import Recipe
from atoll.bits.state import GlobalState, SeatState
from atoll.bits.step import inner_step
from atoll.bits.tokens import Tokens
from atoll.lab.differential import BATCH, LabRun, lab_tokens
from atoll.train.coherence import coherence
from atoll.train.tolerance import Replayed, distances, residual, state_parts

REFERENCE: Final = "reference"
CHEATS: Final = (
    "a step skipped",
    "half the batch",
    "no weight decay",
    "rate 10 % low",
    "a stale batch",
    "bf16 products",
)


@dataclass(frozen=True, slots=True)
class Trial:
    """How segments are trained: `what` is the reference, a CHEAT, or honest under any other name.

    Attributes:
        segments: of `steps` each.
        seeds: of weights and data; each gives a run of its own.
        dtype: in which the arithmetic runs; stored as fp32.
        caps: environment variables of this process (see `lab.CAPS`).
    """

    run: LabRun
    segments: int
    seeds: tuple[int, ...]
    what: str = REFERENCE
    threads: int = 1
    dtype: str = "float32"
    device: str = "cpu"
    caps: Mapping[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return self.run.steps // self.segments


@dataclass(frozen=True, slots=True)
class Measured:
    """One segment against the reference: the largest ρ and the smallest work of its tensors."""

    params: float
    slots: float
    loss: float
    work: float


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Every segment of every seed, and each seed's mean cosine between residuals."""

    segments: tuple[Measured, ...]
    cosines: tuple[float, ...]


class _Bf16(NativeOps):
    """Operands of products rounded to bf16, sums in fp32, as tensor cores do it."""

    def linear(self, x_BTI: Tensor, weight_OI: Tensor) -> Tensor:
        return super().linear(x_BTI.bfloat16().float(), weight_OI.bfloat16().float())

    def head(self, x_BTD: Tensor, weight_VD: Tensor) -> Tensor:
        return self.linear(x_BTD, weight_VD)

    def linears(self, x_BTI: Tensor, weights: list[Tensor]) -> tuple[Tensor, ...]:  # type: ignore[override]
        return tuple(self.linear(x_BTI, weight_OI) for weight_OI in weights)


def train_reference(trial: Trial, folder: Path) -> None:
    """Trains every seed's run and writes the state and loss at every boundary."""
    for seed in trial.seeds:
        state, losses = _opening(trial, seed), [0.0]
        _state_file(folder, seed, 0).write_bytes(state.to_bytes())
        for segment in range(trial.segments):
            state, loss = _trained(trial, state, seed, segment)
            _state_file(folder, seed, segment + 1).write_bytes(state.to_bytes())
            losses.append(loss)
        _loss_file(folder, seed).write_text(json.dumps(losses))


def measure(trial: Trial, folder: Path) -> TrialResult:
    """Trains every segment from the reference's opening and measures where it ends."""
    found, cosines = [], []
    for seed in trial.seeds:
        losses, sketches = json.loads(_loss_file(folder, seed).read_text()), []
        for segment in range(trial.segments):
            opening, closing = (_read(trial, folder, seed, segment + i) for i in (0, 1))
            claimed, loss = _trained(trial, opening, seed, segment)
            replayed = Replayed(opening, claimed, closing, trial.steps)
            sketch = np.frombuffer(residual(replayed, key=seed), dtype="<f4")
            sketches.append(sketch)
            found.append(_measured(replayed, loss, losses[segment + 1]))
        cosines.append(coherence(sketches).mean_cosine)
    return TrialResult(tuple(found), tuple(cosines))


def _measured(segment: Replayed, loss: float, expected: float) -> Measured:
    by_part = [(d.part == "params", d) for d in distances(segment)]
    return Measured(
        params=max(d.rho for is_params, d in by_part if is_params),
        slots=max(d.rho for is_params, d in by_part if not is_params),
        loss=abs(loss - expected) / abs(expected),
        work=min(d.work for _, d in by_part),
    )


def _trained(trial: Trial, state: SeatState, seed: int, segment: int) -> tuple[SeatState, float]:
    """The state after a segment, in fp32 on the CPU, and the mean loss."""
    recipe, tokens = _recipe(trial), lab_tokens(seed)
    steps = range(segment * trial.steps, (segment + 1) * trial.steps)
    state, losses = _moved(state, lambda t: t.to(trial.device, getattr(torch, trial.dtype))), []
    for step in steps[:-1] if trial.what == "a step skipped" else steps:
        stale = trial.what == "a stale batch" and step == steps[-1]
        batch = _batch(tokens, trial, step - stale)
        rows = BATCH // 2 if trial.what == "half the batch" else BATCH
        done = inner_step(state, batch[:rows], step, recipe)
        state = done.state
        losses.append(done.loss)
    return _moved(state, lambda t: t.to("cpu", torch.float32)), sum(losses) / len(losses)


def _recipe(trial: Trial) -> Recipe:
    inner = trial.run.inner()
    if trial.what == "no weight decay":
        inner = inner.model_copy(update={"weight_decay": "0"})
    if trial.what == "rate 10 % low":
        inner = inner.model_copy(update={"lr": str(float(inner.lr) * 0.9)})
    ops: Ops = _Bf16() if trial.what == "bf16 products" else NativeOps()
    return Recipe(trial.run.model(), inner, trial.run.steps, ops)


def _opening(trial: Trial, seed: int) -> SeatState:
    shapes = param_shapes(trial.run.model())
    model = GlobalState(0, initial_params(shapes, seed), {}, {})
    return SeatState.opening(model, None, optimiser_layout(shapes, trial.run.inner()))


def _batch(tokens: Tokens, trial: Trial, step: int) -> Tensor:
    last = len(tokens) - trial.run.seq - 1
    offsets = [(step * BATCH + row) * 2654435761 % last for row in range(BATCH)]
    return gather_batch(tokens, offsets, trial.run.seq).to(trial.device)


def _moved(state: SeatState, move: Callable[[Tensor], Tensor]) -> SeatState:
    params, m, v, feedback = (
        {name: move(t) for name, t in tensors.items()} for tensors in state_parts(state).values()
    )
    return SeatState(params, m, v, feedback, state.count, state.batches)


def _state_file(folder: Path, seed: int, boundary: int) -> Path:
    return folder / f"{seed}-{boundary}.state"


def _loss_file(folder: Path, seed: int) -> Path:
    return folder / f"{seed}.losses"


def _read(trial: Trial, folder: Path, seed: int, boundary: int) -> SeatState:
    layout = optimiser_layout(param_shapes(trial.run.model()), trial.run.inner())
    return SeatState.from_bytes(_state_file(folder, seed, boundary).read_bytes(), layout)


def main() -> None:
    """Runs one trial in this process."""
    folder, plain = Path(sys.argv[1]), json.loads(sys.argv[2])
    seeds = tuple(plain.pop("seeds"))
    trial = Trial(**{**plain, "run": LabRun(**plain["run"]), "seeds": seeds})
    torch.set_num_threads(trial.threads)
    torch.set_float32_matmul_precision("highest")
    if trial.what == REFERENCE:
        train_reference(trial, folder)
        return
    sys.stdout.write(json.dumps(asdict(measure(trial, folder))) + "\n")


if __name__ == "__main__":
    main()
