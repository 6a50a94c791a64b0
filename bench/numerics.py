"""Exact mode against native PyTorch: op by op, whole steps, memory, and loss at equal tokens.

    python bench/numerics.py [--width W --layers L --seq T --batch B --steps N] [--no-loss] [--json]
    python bench/numerics.py --loss 300 [--seeds 3] [--width W --layers L --seq T] [--json]
    python bench/numerics.py --device cuda [...]

Without --loss, losses are those of 150 steps of a small model; with it, of the model named.

Each mode runs in a process of its own with the same allocator setting, on one thread. The baseline
is plain PyTorch: fused AdamW, scaled_dot_product_attention, fp32 (and bf16 autocast). For Muon it
is our step with native operations, since PyTorch's own Muon multiplies in bf16. Times are CPU
seconds of the training thread, so that other work on the machine counts less (on a GPU by the
clock, and an operation's is its launch); the best half of the steps is averaged, and the best of
three processes counts. The last line of --json is the whole
document.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from atoll.numerics.batch import MicroBatch
from atoll.numerics.gradients import StepInput
from atoll.numerics.init import initial_params
from atoll.numerics.kernels.engine import make_engine
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.freed_memory import keep_freed_memory
from atoll.numerics.kernels.interface import Engine
from atoll.numerics.kernels.variables import DEVICES
from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps, Ops
from atoll.numerics.schedule import Recipe
from atoll.numerics.schedule_tables import schedule_of
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import optimiser_layout, param_shapes
from atoll.numerics.step import inner_step
from atoll.protocol.method_spec import InnerSpec
from atoll.protocol.model_spec import UNSCALED, ModelSpec
from atoll.protocol.optimisers import INNER_OPTIMISERS

MODES = ("native", "native-bf16", "exact", "exact-eager")
Step = Callable[[torch.Tensor, int], float]


class ModeFailed(Exception):
    """A mode cannot run here: bf16 products kill the process on some virtual machines."""


def main() -> None:
    options = _options()
    if options.mode:
        print(json.dumps(_measure(options)))
        return
    if options.loss:
        document = _loss_document(options)
    else:
        document = _speed_document(options)
        if not options.no_loss:
            document |= {"loss": _loss_document(_small(options))}
    if not options.json:
        print(_table(document))
        return
    print(json.dumps(document))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, value in (("width", 128), ("layers", 4), ("seq", 128), ("batch", 8), ("steps", 6)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--loss", type=int, default=0, help="train so many steps, compare losses")
    parser.add_argument("--no-loss", action="store_true", help="measure speed and memory alone")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3, help="processes a mode; the best counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", default="0.002")
    parser.add_argument("--optimizer", choices=("adamw", "muon"), default="adamw")
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--mode", choices=MODES, help="measure one mode, in this process")
    return parser.parse_args()


def _specs(options: argparse.Namespace) -> tuple[ModelSpec, InnerSpec]:
    width, total = options.width, max(options.loss, options.steps + 1)  # one to warm up
    heads = max(1, width // 64)
    model = ModelSpec(
        kind="llama", vocab=256, width=width, layers=options.layers, heads=heads, kv_heads=heads,
        head_dim=width // heads, qkv_bias=False, qk_norm=False, mlp="swiglu",
        ffn=-(-8 * width // 3 // 64) * 64, seq=options.seq, tied=True, norm_eps="0.00001",
        rope_base=10000, rope_scaling=UNSCALED,
    )  # fmt: skip
    inner = InnerSpec(
        optimizer=options.optimizer, lr=options.lr,
        momentum="0" if "momentum" in INNER_OPTIMISERS[options.optimizer].unused else "0.95",
        beta1="0.9", beta2="0.95", eps="0.00000001", weight_decay="0.1", dropout="0",
        clip="1",
        schedule="cosine", warmup_steps=min(20, total // 2), steps=total, batch=options.batch,
        segment=total, micro_batch=options.batch, lanes=1,
    )  # fmt: skip
    return model, inner


def _apart(options: argparse.Namespace, mode: str, **changes: object) -> dict[str, Any]:
    names = (
        "width", "layers", "seq", "batch", "steps", "loss", "seed", "lr", "optimizer", "device",
    )  # fmt: skip
    values = {name: getattr(options, name) for name in names} | changes
    arguments = [f"--{name}={value}" for name, value in values.items()]
    command = [sys.executable, __file__, f"--mode={mode}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ModeFailed(f"{mode} ended with {done.returncode}: {done.stderr[-300:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _speed_document(options: argparse.Namespace) -> dict[str, Any]:
    modes = [mode for mode in MODES if options.optimizer == "adamw" or mode != "native-bf16"]
    runs: dict[str, list[dict[str, Any]]] = {mode: [] for mode in modes}
    for _ in range(options.repeats):  # in turns, so that other work on the machine meets them all
        for mode in modes:
            try:
                runs[mode].append(_apart(options, mode))
            except ModeFailed as error:
                sys.stderr.write(f"{error}\n")
    found = {mode: min(some, key=lambda r: r["step_ms"]) for mode, some in runs.items() if some}
    fastest_native = max(r["tokens_per_second"] for m, r in found.items() if "native" in m)
    exact = found["exact"]["tokens_per_second"]
    return {
        "model": {
            n: getattr(options, n)
            for n in ("width", "layers", "seq", "batch", "optimizer", "device")
        },
        "step_speed_ratio": round(exact / found["native"]["tokens_per_second"], 3),
        "ratio_to_fastest_native": round(exact / fastest_native, 3),
        "memory_ratio": round(found["exact"]["peak_mib"] / found["native"]["peak_mib"], 3),
        "all_step_ms": {mode: [r["step_ms"] for r in some] for mode, some in runs.items()},
        "modes": found,
    }


def _small(options: argparse.Namespace) -> argparse.Namespace:
    """A run whose losses three seeds of both modes reach in about a minute."""
    size = {"width": 64, "layers": 2, "seq": 64, "loss": 150}
    return argparse.Namespace(**{**vars(options), **size})


def _loss_document(options: argparse.Namespace) -> dict[str, Any]:
    losses = {
        mode: [_apart(options, mode, seed=seed)["validation_loss"] for seed in range(options.seeds)]
        for mode in ("native", "exact")
    }
    means = {mode: statistics.mean(values) for mode, values in losses.items()}
    return {
        "model": {
            n: getattr(options, n)
            for n in ("width", "layers", "seq", "batch", "loss", "optimizer", "lr")
        },
        "validation_loss": losses,
        "mean": means,
        "spread": {mode: max(values) - min(values) for mode, values in losses.items()},
        "relative_difference": means["exact"] / means["native"] - 1,
    }


def _table(document: dict[str, Any]) -> str:
    lines = [json.dumps({k: v for k, v in document.items() if k != "modes"}, indent=1)]
    for mode, result in document.get("modes", {}).items():
        head = f"{mode:12} {result['step_ms']:9.1f} ms  {result['tokens_per_second']:9.0f} tokens/s"
        lines.append(f"{head}  {result['peak_mib']:7.0f} MiB")
        lines += [f"    {name:22} {ms:9.2f} ms" for name, ms in result.get("ops_ms", {}).items()]
    return "\n".join(lines)


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)
    keep_freed_memory()
    model, inner = _specs(options)
    clock: dict[str, float] = {}
    drawn = initial_params(param_shapes(model), seed=options.seed)
    params = {name: p.to(options.device) for name, p in drawn.items()}
    if options.mode == "native" and options.optimizer == "muon":
        step, evaluate = _ours(model, inner, params, NativeOps(torch.device(options.device)))
    elif "native" in options.mode:
        step, evaluate = _native(model, inner, params, options)
    else:
        kernels = "eager" if options.mode == "exact-eager" else "auto"
        engine = make_engine(kernels=kernels, device=options.device)
        step, evaluate = _ours(model, inner, params, ExactOps(_clocked(engine, clock)))
    if options.loss:
        return _losses(step, evaluate, options)
    generator, times = torch.Generator().manual_seed(1), []
    now = time.thread_time if options.device == "cpu" else time.perf_counter
    for index in range(options.steps + 1):
        drawn_BT1 = torch.randint(0, 256, (options.batch, options.seq + 1), generator=generator)
        batch = drawn_BT1.to(options.device)
        start = now()
        step(batch, index)  # which reads its loss, so that a GPU is done then
        times.append(now() - start)
        if index == 0:
            clock.clear()
    best = sorted(times[1:])[: max(1, options.steps // 2)]
    seconds = statistics.mean(best)
    return {
        "step_ms": round(seconds * 1e3, 2),
        "tokens_per_second": round(options.batch * options.seq / seconds, 1),
        "peak_mib": _peak_mib(options.device),
        "ops_ms": {
            name: round(total / options.steps * 1e3, 2)
            for name, total in sorted(clock.items(), key=lambda item: -item[1])
        },
    }


def _peak_mib(device: str) -> float:
    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return torch.cuda.max_memory_reserved() / 2**20  # with what a graph has


def _micro_batch(batch: torch.Tensor) -> MicroBatch:
    targets = batch[:, 1:]
    return MicroBatch(batch[:, :-1], targets, torch.ones(targets.shape, device=batch.device))


def _native(
    model: ModelSpec, inner: InnerSpec, params: dict[str, torch.Tensor], options: argparse.Namespace
) -> tuple[Step, Callable[[torch.Tensor], float]]:
    leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
    groups = [
        {"params": [p for p in leaves.values() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in leaves.values() if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), fused=True)

    def loss_of(batch: torch.Tensor) -> torch.Tensor:
        enabled = options.mode == "native-bf16"
        with torch.autocast(options.device, torch.bfloat16, enabled=enabled):
            m = _micro_batch(batch)
            logits = forward(leaves, m.ids, model, NativeOps())
            return NativeOps().cross_entropy(logits.float(), m.targets, m.weights)

    def step(batch: torch.Tensor, index: int) -> float:
        for group in optimizer.param_groups:
            group["lr"] = schedule_of(inner, inner.steps).rates[index]
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(leaves.values()), float(inner.clip))
        optimizer.step()
        return loss.item()

    def evaluate(batch: torch.Tensor) -> float:
        with torch.no_grad():
            return loss_of(batch.to(options.device)).item()

    return step, evaluate


def _ours(
    model: ModelSpec, inner: InnerSpec, params: dict[str, torch.Tensor], ops: Ops
) -> tuple[Step, Callable[[torch.Tensor], float]]:
    recipe = Recipe(model, inner, inner.steps, ops)
    layout = optimiser_layout(param_shapes(model), inner)
    state = SeatState.initial(GlobalState(0, params, {}, {}), layout)

    def step(batch: torch.Tensor, index: int) -> float:
        nonlocal state
        done = inner_step(state, StepInput([_micro_batch(batch)], index), recipe)
        state = done.state
        return done.loss

    def evaluate(batch: torch.Tensor) -> float:
        with torch.no_grad():
            m = _micro_batch(batch.to(recipe.ops.device))
            logits = forward(state.params, m.ids, model, recipe.ops)
            return recipe.ops.cross_entropy(logits, m.targets, m.weights).item()

    return step, evaluate


def _clocked(engine: Engine, clock: dict[str, float]) -> Engine:
    """The engine with each of its operations' time added up by name."""

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            start = time.thread_time()
            result = function(*arguments, **named)
            clock[name] = clock.get(name, 0.0) + time.thread_time() - start
            return result

        return call

    kernels = engine.kernels
    for name in (n for n in dir(kernels) if not n.startswith("_") and n != "name"):
        setattr(kernels, name, timed(name, getattr(kernels, name)))
    route = replace(engine.route, matmul=timed("int8 products", engine.route.matmul))
    return replace(engine, route=route, batched=timed("attention products", engine.batched))


def _losses(
    step: Step, evaluate: Callable[[torch.Tensor], float], options: argparse.Namespace
) -> dict[str, Any]:
    """Trains on the standard library's own source, byte by byte, and evaluates on its end."""
    import sysconfig
    from pathlib import Path

    folder = Path(sysconfig.get_paths()["stdlib"])
    text = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    split = len(tokens) * 19 // 20

    def draw(low: int, high: int, generator: torch.Generator) -> torch.Tensor:
        starts = torch.randint(low, high - options.seq - 1, (options.batch,), generator=generator)
        return torch.stack([tokens[s : s + options.seq + 1] for s in starts.tolist()])

    training = torch.Generator().manual_seed(100 + options.seed)
    for index in range(options.loss):
        step(draw(0, split, training).to(options.device), index)
    held_out = torch.Generator().manual_seed(7)
    values = [evaluate(draw(split, len(tokens), held_out)) for _ in range(16)]
    return {"validation_loss": statistics.mean(values)}


if __name__ == "__main__":
    main()
